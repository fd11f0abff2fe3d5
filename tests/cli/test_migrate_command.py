"""The command line of `replicax migrate`: files, output, exit statuses."""

import importlib.util
import io
import json
import os
import stat
from pathlib import Path

import pytest

from replicax.cli._main import main
from replicax.cli.migrate import _command

MECHANICAL = "import tensorflow as tf\nv = tf.Variable(1.0)\n"
BY_HAND = "import tensorflow as tf\nwith tf.GradientTape() as tape:\n    pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")


def test_report_is_line_by_line(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, train=f"{BY_HAND}    v = tf.Variable(tf.cast(1, int))\nv.numpy()\n")
    assert main(["migrate", "train.py"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "train.py",
        "    1  changes        import tensorflow as tf",
        "                      import tensorflow as tf",
        "                      import replicax as rx",
        "                      import of tf: stays: lines below need it",
        "    2  needs thought  with tf.GradientTape() as tape:",
        "                      "
        "tf.GradientTape: make the block a function, loss_fn, that returns the loss",
        "    4  needs thought  v = tf.Variable(tf.cast(1, int))",
        "                      v = rx.Variable(tf.cast(1, int))",
        "                      tf.cast: x.astype(dtype)",
        "    5  carries over   v.numpy()",
        "       4 lines: 1 carries over, 1 changes, 2 need thought",
        "",
        "Nothing was written; with --write, 1 file will be. 2 lines are left to be done by hand; "
        "they will be marked with TODO(replicax).",
    ]
    assert (project / "train.py").read_text().startswith(BY_HAND)


def test_status_is_0_when_nothing_is_left_by_hand(project: Path):
    write(project, a=MECHANICAL, b="print(1)\n")
    assert main(["migrate", "a.py"]) == 0
    assert main(["migrate", "b.py"]) == 0
    assert main(["migrate", "."]) == 0
    write(project, c=BY_HAND)
    assert main(["migrate", "."]) == 1


def test_write_twice_changes_nothing_more(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, a=MECHANICAL, b=BY_HAND)
    os.chmod(project / "a.py", 0o750)
    assert main(["migrate", "--write", "a.py", "b.py"]) == 1
    assert "2 files written. 1 line is left to be done by hand" in capsys.readouterr().out
    assert (project / "a.py").read_text() == "import replicax as rx\nv = rx.Variable(1.0)\n"
    assert stat.S_IMODE((project / "a.py").stat().st_mode) == 0o750
    assert "# TODO(replicax): tf.GradientTape" in (project / "b.py").read_text()
    before = {path: path.stat().st_mtime_ns for path in project.iterdir()}
    assert main(["migrate", "--write", "."]) == 1
    assert before == {path: path.stat().st_mtime_ns for path in project.iterdir()}
    assert "1 line is left to be done by hand; they are marked" in capsys.readouterr().out


def test_diff(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, a=MECHANICAL.rstrip("\n"))
    assert main(["migrate", "--diff", "a.py"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "--- a/a.py",
        "+++ b/a.py",
        "@@ -1,2 +1,2 @@",
        "-import tensorflow as tf",
        "-v = tf.Variable(1.0)",
        "\\ No newline at end of file",
        "+import replicax as rx",
        "+v = rx.Variable(1.0)",
        "\\ No newline at end of file",
    ]
    assert (project / "a.py").read_text() == MECHANICAL.rstrip("\n")


def test_json(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, a=BY_HAND, b="print(1)\n", c="x = (  # tensorflow\n")
    assert main(["migrate", "--json", "."]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["written"], said["left"], said["unaffected"]) == (False, False, 1, 1)
    assert said["unreadable"] == [{"path": "c.py", "line": 1, "error": "'(' was never closed"}]
    (file,) = said["files"]
    assert (file["path"], file["left"], file["changed"]) == ("a.py", 1, True)
    assert [line["line"] for line in file["lines"]] == [1, 2]
    assert file["lines"][1] == {
        "line": 2,
        "verdict": "needs thought",
        "old": "with tf.GradientTape() as tape:",
        "new": "with tf.GradientTape() as tape:",
        "findings": [
            {
                "column": 5,
                "verdict": "needs thought",
                "name": "tf.GradientTape",
                "new": "",
                "advice": "make the block a function, loss_fn, that returns the loss",
            }
        ],
    }


def test_folders_are_read_without_what_is_not_the_users(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    write(project, src__pkg__a=MECHANICAL, src__b=MECHANICAL, env__lib__x=MECHANICAL)
    write(project, **{".git__x": MECHANICAL, "site-packages__x": MECHANICAL, "src__n": "1\n"})
    (project / "env" / "pyvenv.cfg").touch()
    (project / "src" / "notes.txt").write_text(MECHANICAL)
    assert main(["migrate", "--json", ".", "src/b.py"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in said["files"]] == ["src/b.py", "src/pkg/a.py"]
    assert said["unaffected"] == 1


def test_a_link_stays_a_link(project: Path):
    write(project, real=MECHANICAL)
    (project / "link.py").symlink_to("real.py")
    assert main(["migrate", "--write", "link.py"]) == 0
    assert (project / "link.py").is_symlink()
    assert (project / "real.py").read_text().startswith("import replicax")


def test_what_cannot_be_read_is_named_and_the_rest_is_done(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    write(project, a=MECHANICAL, old="import tensorflow as tf\nprint 'loss'\n")
    assert main(["migrate", "--write", "."]) == 2
    error = capsys.readouterr().err
    assert "old.py:2: Missing parentheses in call to 'print'" in error
    assert "port it to Python 3 first" in error
    assert (project / "a.py").read_text().startswith("import replicax")
    assert main(["migrate", "no_such.py"]) == 2
    assert "there is no file or folder 'no_such.py'" in capsys.readouterr().err


def test_bad_usage_is_status_2(project: Path, capsys: pytest.CaptureFixture[str]):
    for arguments in (["migrate"], ["migrate", "--diff", "--json", "."], ["migrate", "-x", "."]):
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
        assert leaving.value.code == 2
    with pytest.raises(SystemExit) as leaving:
        main(["migrate", "--help"])
    assert leaving.value.code == 0
    assert "replicax migrate --write src/" in capsys.readouterr().out


def test_without_libcst_it_says_what_to_install(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["migrate", "a.py"]) == 2
    assert 'pip install "replicax[migrate]"' in capsys.readouterr().err


def test_colours_only_on_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch):
    write(project, a=BY_HAND)
    out = io.StringIO()
    monkeypatch.setattr(_command, "_is_coloured", lambda _: True)
    assert _command.run(["a.py"], to=out) == 1
    assert "\x1b[33mneeds thought" in out.getvalue()
