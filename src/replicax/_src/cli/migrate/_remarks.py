"""What else is said of a name that changes by itself, where the rest of the file calls for it."""

import re
from typing import NamedTuple


class _Remark(NamedTuple):
    text: str
    where: re.Pattern[str]
    """What the file has."""
    unless: re.Pattern[str] | None = None
    """What it does not have."""


_ONE_FOLDER = _Remark(
    "all workers save to one folder, and the first writes: no temporary folders for the others",
    re.compile(r"\b(task_id|is_chief)\b"),
)
_REMARKS: dict[str, _Remark] = {
    "tf.train.Checkpoint": _Remark(
        "a Keras model in it has to be made in a scope; that of "
        'rx.distribute.OneDeviceStrategy("CPU:0") will do',
        re.compile(r"\bkeras\b"),
        re.compile(r"\.scope\("),
    ),
    "tf.train.CheckpointManager": _ONE_FOLDER,
}


def remark(name: str, text: str) -> str:
    """Returns what is said of a name of TensorFlow in a file with this text; "" if nothing."""
    found = _REMARKS.get(name)
    if found is None or not found.where.search(text):
        return ""
    return "" if found.unless is not None and found.unless.search(text) else found.text
