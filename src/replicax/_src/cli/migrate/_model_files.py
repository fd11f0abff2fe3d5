"""Names of the files of Keras models: Keras 3 tells by the name what is in a file."""

from typing import final

import libcst as cst
import libcst.matchers as m

from replicax._src.cli.migrate._edits import Edits
from replicax._src.cli.migrate._source import Source, dotted, found_in

_WHOLE = (".keras", ".h5", ".hdf5")
_WEIGHTS = ".weights.h5"
# How names of weights have ended, where the end says no more than this.
_OLD_ENDINGS = (".h5", ".hdf5", ".ckpt", ".tf", ".keras")

CALLS = (
    "keras.Model.load_weights",
    "keras.Model.save",
    "keras.Model.save_weights",
    "keras.callbacks.ModelCheckpoint",
    "keras.models.load_model",
    "keras.models.save_model",
)


@final
class FileName:
    """What the name of a file ends with, in a call that writes or reads a model."""

    def __init__(self, call: cst.Call, called: str, source: Source) -> None:
        self._source = source
        self._called = called
        self._has_weights = "weights" in called or _saves_weights_only(call)
        self._last = _last_text(_path(call, 1 if called.endswith("save_model") else 0))

    @property
    def is_seen(self) -> bool:
        """Whether its end is written in the call."""
        return self._last is not None

    def correct(self, edits: Edits) -> bool:
        """Gives it the ending that Keras 3 wants; returns whether it had another."""
        if self._last is None or (ending := self._new_ending()) is None:
            return False
        old, new = ending
        line, column = self._source.end(self._last)
        end = column - len(_quote(self._last))
        edits.replace((line, end - len(old)), (line, end), new)
        return True

    def _new_ending(self) -> tuple[str, str] | None:
        """Returns what goes from the end, and what comes there; None if it may stay."""
        assert self._last is not None
        text = _text(self._last)
        if not self._has_weights:
            if self._called.endswith("ModelCheckpoint") and text.endswith(".hdf5"):
                return ".hdf5", ".h5"
            return None if text.endswith(_WHOLE) else ("", ".keras")
        is_read = self._called.endswith("load_weights")
        if text.endswith(_WEIGHTS) or (
            is_read and text.endswith(_WHOLE) and text not in self._names_of_saved_weights()
        ):
            return None
        return next((each for each in _OLD_ENDINGS if text.endswith(each)), ""), _WEIGHTS

    def _names_of_saved_weights(self) -> set[str]:
        saving = m.Call(m.Attribute(attr=m.Name("save_weights")) | m.Name("ModelCheckpoint"))
        saving |= m.Call(m.Attribute(attr=m.Name("ModelCheckpoint")))
        calls = found_in(self._source.module, cst.Call, saving)
        found = [_last_text(_path(each, 0)) for each in calls]
        return {_text(each) for each in found if each is not None}


def _path(call: cst.Call, position: int) -> cst.BaseExpression | None:
    for index, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword else None
        if name == "filepath" or (name is None and index == position and not argument.star):
            return argument.value
    return None


def _saves_weights_only(call: cst.Call) -> bool:
    only = m.Arg(keyword=m.Name("save_weights_only"), value=~m.Name("False"))
    return any(m.matches(each, only) for each in call.args)


def _last_text(
    value: cst.BaseExpression | None,
) -> cst.SimpleString | cst.FormattedString | None:
    """Returns the text that a name ends with: of `folder + "w.h5"`, `"w.h5"`; None if not seen."""
    if isinstance(value, cst.SimpleString):
        return value if isinstance(value.evaluated_value, str) and value.evaluated_value else None
    if isinstance(value, cst.FormattedString):
        return value if m.matches(value.parts[-1], m.FormattedStringText()) else None
    if isinstance(value, cst.ConcatenatedString):
        return _last_text(value.right)
    if isinstance(value, cst.BinaryOperation):
        if isinstance(value.operator, cst.Modulo):
            return _unfilled(value.left)
        return _last_text(value.right)
    if isinstance(value, cst.Call):
        if m.matches(value.func, m.Attribute(attr=m.Name("format"))):
            assert isinstance(value.func, cst.Attribute)
            return _unfilled(value.func.value)
        if (dotted(value.func) or "").split(".")[-1] in ("join", "Path", "str") and value.args:
            return _last_text(value.args[-1].value)
    return None


def _unfilled(pattern: cst.BaseExpression) -> cst.SimpleString | cst.FormattedString | None:
    """Returns the text of a pattern, if nothing is filled in at its end."""
    found = _last_text(pattern)
    return None if found is None or _text(found)[-1] in "}sdf" else found


def _text(node: cst.SimpleString | cst.FormattedString) -> str:
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value)
    assert isinstance(last := node.parts[-1], cst.FormattedStringText)
    return last.value


def _quote(node: cst.SimpleString | cst.FormattedString) -> str:
    return node.quote if isinstance(node, cst.SimpleString) else node.end
