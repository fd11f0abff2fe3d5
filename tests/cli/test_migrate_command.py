"""The command line of `replicax migrate`: files, output, exit statuses."""

import importlib.util
import io
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from replicax._src.cli.main import main
from replicax._src.cli.migrate import Ported, _command

MECHANICAL = "import tensorflow as tf\nv = tf.Variable(1.0)\n"
BY_HAND = "import tensorflow as tf\nwith tf.GradientTape() as tape:\n    f(tape)\n"


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
    write(project, train=f"{BY_HAND}    v = tf.Variable(tf.strings.join([1]))\nv.numpy()\n")
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
        "    4  needs thought  v = tf.Variable(tf.strings.join([1]))",
        "                      v = rx.Variable(tf.strings.join([1]))",
        "                      tf.strings.join: methods of bytes, in dataset.map",
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
    assert "1 line is left to be done by hand; it is marked" in capsys.readouterr().out


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


def test_links_out_of_a_folder_are_not_followed(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, mine__a=MECHANICAL, theirs__b=MECHANICAL)
    (project / "mine" / "b.py").symlink_to("../theirs/b.py")
    (project / "mine" / "folder").symlink_to("../theirs")
    (project / "mine" / "again.py").symlink_to("a.py")
    assert main(["migrate", "--write", "mine"]) == 2
    error = capsys.readouterr().err
    assert "mine/b.py: is a link out of mine: it was not followed; name the file" in error
    assert (project / "theirs" / "b.py").read_text() == MECHANICAL
    assert (project / "mine" / "a.py").read_text().startswith("import replicax")
    assert main(["migrate", "--write", "mine/b.py"]) == 0  # named, so meant
    assert (project / "theirs" / "b.py").read_text().startswith("import replicax")


def test_what_is_written_is_on_the_disk_before_the_old_file_goes(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    write(project, a=MECHANICAL)
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    assert main(["migrate", "--write", "a.py"]) == 0
    assert done == ["sync", "replace", "sync"]


def test_a_program_that_is_nested_too_deeply_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    branches = "elif x:\n    pass\n" * 1500
    write(project, a=f"import tensorflow as tf\nif x:\n    pass\n{branches}", b=MECHANICAL)
    assert main(["migrate", "--write", "."]) == 2
    assert "a.py: is nested too deeply" in capsys.readouterr().err
    assert (project / "b.py").read_text().startswith("import replicax")


def test_what_cannot_be_read_is_named_and_the_rest_is_done(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    write(project, a=MECHANICAL, old="import tensorflow as tf\nprint 'loss'\n")
    assert main(["migrate", "--write", "."]) == 2
    error = capsys.readouterr().err
    assert "old.py:2: Missing parentheses in call to 'print'" in error
    assert "port it to Python 3 first" in error
    assert (project / "a.py").read_text().startswith("import replicax")
    write(project, a=MECHANICAL)
    assert main(["migrate", "--write", "no_such.py", "", "a.py"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" in /")[0] for line in said] == [
        "replicax migrate: no_such.py: there is no such file or folder",
        'replicax migrate: "": there is no such file or folder',
    ]
    assert (project / "a.py").read_text().startswith("import replicax")


def test_what_no_program_is_written_in_is_named(project: Path, capsys: pytest.CaptureFixture[str]):
    write(project, a=MECHANICAL)
    (project / "a.ipynb").write_text('{"tensorflow": 2}')
    os.mkfifo(project / "pipe.py")
    (project / "nowhere.py").symlink_to("no_such.py")
    assert main(["migrate", "a.ipynb", "pipe.py"]) == 2
    error = capsys.readouterr().err
    assert "a.ipynb: is not a notebook" in error and "pipe.py: is neither a file nor a" in error
    (project / "a.ipynb").unlink()
    assert main(["migrate", "--json", "."]) == 0  # and in a folder they are passed over
    assert [file["path"] for file in json.loads(capsys.readouterr().out)["files"]] == ["a.py"]


def notebook(*sources: str | list[str]) -> str:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
        if source != "# Größe"
        else {"cell_type": "markdown", "metadata": {}, "source": ["tf.Variable is *not* code"]}
        for source in sources
    ]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1, ensure_ascii=False) + "\n"


def test_notebooks_are_ported_cell_by_cell(project: Path, capsys: pytest.CaptureFixture[str]):
    path = project / "a.ipynb"
    path.write_text(
        notebook(
            ["if 1:\n", "    !pip install \\\n  tensorflow\n", "import tensorflow as tf"],
            "# Größe",
            ["%%time\n", "v = tf.Variable(1.0)\n", "tf.strings.join([2])\n"],
            "%%bash\nls  # tf.Variable",
            "x = tf.reduce_sum(v), ('%s'\n% v)",
        ),
        encoding="utf-8",
    )
    assert main(["migrate", "."]) == 1
    assert "x = jnp.sum(v)" in capsys.readouterr().out
    assert main(["migrate", "--write", "a.ipynb"]) == 1
    mark = "methods of bytes, in dataset.map"
    assert path.read_text(encoding="utf-8") == notebook(
        [
            *("if 1:\n", "    !pip install \\\n", "  tensorflow\n", "import tensorflow as tf\n"),
            *("import jax.numpy as jnp\n", "import replicax as rx"),
        ],
        "# Größe",
        [
            *("%%time\n", "v = rx.Variable(1.0)\n"),
            *(f"# TODO(replicax): tf.strings.join: {mark}\n", "tf.strings.join([2])\n"),
        ],
        "%%bash\nls  # tf.Variable",
        "x = jnp.sum(v), ('%s'\n% v)",
    )
    before = path.read_bytes()
    assert main(["migrate", "--write", "a.ipynb"]) == 1
    assert path.read_bytes() == before


def test_write_protected_file_stays(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    write(project, a=MECHANICAL)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # tests may run as root, who can
    assert main(["migrate", "--write", "a.py"]) == 2
    assert "a.py: is write-protected" in capsys.readouterr().err
    assert (project / "a.py").read_text() == MECHANICAL


def test_mistake_of_ours_loses_nothing_and_stops_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    write(project, a=MECHANICAL, b=MECHANICAL)
    results = iter([_command.port(MECHANICAL.encode())])

    def port(content: bytes) -> Ported:
        for result in results:
            return result
        raise KeyError("a name")

    monkeypatch.setattr(_command, "port", port)
    assert main(["migrate", "--write", "."]) == 2
    assert (project / "a.py").read_text() != MECHANICAL
    assert (project / "b.py").read_text() == MECHANICAL
    assert "b.py: cannot be ported, by a mistake in replicax (KeyError" in capsys.readouterr().err
    assert sorted(each.name for each in project.iterdir()) == ["a.py", "b.py"]


def test_reader_that_leaves_does_not_stop_the_writing(project: Path):
    write(project, a=MECHANICAL, b=MECHANICAL)

    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        _command.run(["."], write=True, to=Gone())
    assert (project / "a.py").read_text() == (project / "b.py").read_text() != MECHANICAL


@pytest.mark.parametrize("command", ["migrate a.py", "doctor"])
def test_output_to_a_closed_pipe_ends_quietly(
    command: str, project: Path, monkeypatch: pytest.MonkeyPatch
):
    """As in `replicax migrate . | head`."""
    write(project, a=MECHANICAL)
    read, pipe = os.pipe()
    os.close(read)
    with os.fdopen(pipe, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(command.split()) == 128 + signal.SIGPIPE


def test_output_in_few_letters(project: Path, monkeypatch: pytest.MonkeyPatch):
    write(project, a=f"{MECHANICAL}größe = tf.constant(2)\n")
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["migrate", "a.py"]) == 0
    assert rb"gr\xf6\xdfe = rx.constant(2)" in out.getvalue()


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
    assert 'pip install ".[migrate]"' in capsys.readouterr().err


def test_colours_only_on_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch):
    write(project, a=BY_HAND)
    out = io.StringIO()
    monkeypatch.setattr(out, "fileno", lambda: 1)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _command.run(["a.py"], to=out) == 1
    assert "\x1b[33mneeds thought" in out.getvalue()
