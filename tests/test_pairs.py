"""Pairs of programs to be diffed: ours prints what TensorFlow printed when it was recorded.

Of a pair there are `NAME_tensorflow.py`, `NAME_replicax.py` and what the first one printed,
`NAME_output.txt`, in `examples/pairs`; `tests/cli/record.py` records it. Where TensorFlow is
installed, `tests/integrations_extra/test_pairs.py` runs both.
"""

import difflib
from pathlib import Path

import pytest

from tests import pairs

OF_TENSORFLOW = sorted(path.name for path in pairs.PAIRS.glob("*_tensorflow.py"))


def text_of(name: str) -> str:
    return (pairs.PAIRS / name).read_text(encoding="utf-8")


def test_there_are_two_of_each():
    assert len(pairs.NAMES) == 4
    assert [f"{name}_tensorflow.py" for name in pairs.NAMES] == OF_TENSORFLOW


@pytest.mark.parametrize("name", pairs.NAMES)
def test_port_prints_what_tensorflow_printed(name: str, tmp_path: Path):
    output = pairs.output_of_replicax(name, tmp_path)
    pairs.assert_same(output, text_of(f"{name}_output.txt"))


@pytest.mark.parametrize("name", pairs.NAMES)
def test_port_has_most_lines_as_they_were(name: str):
    """But for `tf` that is `rx` now, two of three lines are the same."""
    ours = text_of(f"{name}_replicax.py")
    assert "tensorflow as" not in ours and "TODO" not in ours
    renamed = text_of(f"{name}_tensorflow.py").replace("tf.keras", "keras").replace("tf.", "rx.")
    before, after = (text.split('"""', 2)[2].splitlines() for text in (renamed, ours))
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    assert sum(block.size for block in blocks) > 0.67 * len(before)
