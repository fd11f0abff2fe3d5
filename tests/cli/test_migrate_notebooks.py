"""Notebooks: of their text only the source of cells changes."""

import json
from pathlib import Path

import pytest

from replicax._src.cli.main import main
from replicax._src.cli.migrate import Unreadable
from replicax._src.cli.migrate._notebooks import Notebook


def ported(path: Path, content: str | bytes) -> str:
    """What `--write` makes of a notebook; again, it changes nothing."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["migrate", "--write", str(path)]) == 0
    result = path.read_bytes()
    assert main(["migrate", "--write", str(path)]) == 0
    assert path.read_bytes() == result
    return result.decode()


def cell(*lines: str) -> dict[str, object]:
    return {"cell_type": "code", "source": list(lines), "outputs": [], "metadata": {}}


@pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_everything_else_stays_as_it_is_written(
    tmp_path: Path, indent: int | str | None, newline: str
):
    cells = [cell("import tensorflow as tf\n", "x = tf.Variable('é')"), cell()]
    for ascii_only in (True, False):
        text = json.dumps({"cells": cells}, indent=indent, ensure_ascii=ascii_only)
        before = text.replace("\n", newline)
        after = before.replace("tensorflow as tf", "replicax as rx").replace("tf.V", "rx.V")
        assert ported(tmp_path / "a.ipynb", before) == after


def test_numbers_texts_and_marks_are_those_that_were_there(tmp_path: Path):
    before = (
        '\ufeff{"cells": [{"source": "import tensorflow as tf\\nx = tf.Variable(1)", '
        '"metadata": {"a": 1e400, "b": 1.10, "c": "\\ud800", "d": "\\u00e9"},\n'
        '"cell_type": "code"}, {"cell_type": "raw", "source": 3}], "x": []}'
    )
    after = before.replace("tensorflow as tf", "replicax as rx").replace("tf.V", "rx.V")
    assert ported(tmp_path / "a.ipynb", before) == after


def test_questions_are_magics(tmp_path: Path):
    lines = ["import tensorflow as tf\n", "tf.Variable?\n", "x = tf.Variable(1)\n", "x??\n", "?x"]
    after = ported(tmp_path / "a.ipynb", json.dumps({"cells": [cell(*lines)]}))
    assert json.loads(after)["cells"][0]["source"] == [
        *("import replicax as rx\n", "tf.Variable?\n", "x = rx.Variable(1)\n", "x??\n", "?x")
    ]


def test_cells_may_have_comments_like_ours(tmp_path: Path):
    cells = [cell("import tensorflow as tf\n", "#: cell 2\n", "x = tf.Variable(1)"), cell("y")]
    after = ported(tmp_path / "a.ipynb", json.dumps({"cells": cells}))
    assert [each["source"] for each in json.loads(after)["cells"]] == [
        ["import replicax as rx\n", "#: cell 2\n", "x = rx.Variable(1)"],
        ["y"],
    ]


def test_cells_may_be_indented(tmp_path: Path):
    first = ["import tensorflow as tf"]
    rest = ["  # a comment\n", "  x = tf.Variable(1)\n", "  if x:\n", "    y = x"]
    after = ported(tmp_path / "a.ipynb", json.dumps({"cells": [cell(*first), cell(*rest)]}))
    assert [each["source"] for each in json.loads(after)["cells"]] == [
        ["import replicax as rx"],
        [each.replace("tf", "rx") for each in rest],
    ]


def test_files_that_cells_write_are_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.ipynb"
    file = ("import tensorflow as tf\n", "v = tf.Variable(1)\n", "tf.strings.join(v)")
    cells = [
        cell("import tensorflow as tf\n", "tf.Variable(2)"),
        cell("%%writefile  b.py \n", *file),
        cell("%%writefile -a b.py\n", "else: tensorflow"),
        cell("%%writefile c.txt\n", *file),
    ]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert main(["migrate", "--write", str(path)]) == 2
    said = capsys.readouterr()
    assert f"{path}: b.py, cell 3:1: invalid syntax" in said.err
    assert f"{path}: b.py, cell 2\n    1  changes        import tensorflow as tf" in said.out
    written = [each["source"] for each in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    assert written == [
        ["import replicax as rx\n", "rx.Variable(2)"],
        [
            *("%%writefile  b.py \n", "import tensorflow as tf\n", "import replicax as rx\n"),
            "v = rx.Variable(1)\n",
            "# TODO(replicax): tf.strings.join: methods of bytes, in dataset.map\n",
            "tf.strings.join(v)",
        ],
        *(each["source"] for each in cells[2:]),
    ]
    before = path.read_bytes()
    assert main(["migrate", "--write", str(path)]) == 2
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"3", b'{"cells": 3}', b'{"cells": [3]}', b'{"cells": [{}]}', b"\xff"),
        b'{"cells": [',
        b'{"worksheets": [{"cells": []}]}',
        b'{"cells": [{"cell_type": "code", "source": "x = \'\\ud83d\'"}]}',
    ],
)
def test_what_is_no_notebook_is_unreadable(content: bytes):
    with pytest.raises(Unreadable, match="is not a notebook"):
        Notebook(content)


def test_a_line_of_many_spaces_is_read_at_once():
    spaces = " " * 200_000  # with more than one way to cut them, that would take hours
    program = Notebook(json.dumps({"cells": [cell(f"{spaces}x\n", "  x = !ls")]}).encode()).program
    assert f"{spaces}x\n" in program and '  pass  #: magic "x = !ls"' in program
