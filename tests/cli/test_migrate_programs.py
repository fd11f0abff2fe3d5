"""Programs in the shape of TensorFlow's tutorials: read, ported by `--write` and by hand, and run.

Of a program there is `NAME_tensorflow.py`; the report on it, line by line, `NAME_report.txt`; what
TensorFlow printed when it ran, `NAME_output.txt` (see `record.py`); and, if something is left to be
done by hand, the finished port, `NAME_replicax.py`.

A report that is meant to change is written again, in `migrate_programs/`, with
`replicax migrate NAME_tensorflow.py > NAME_report.txt`.
"""

import re
import shutil
from pathlib import Path

import keras  # noqa: F401  # loaded here, because it sets variables of the environment
import pytest

from replicax._src.cli.main import main
from replicax._src.cli.migrate import Verdict, port
from tests.guards import ROOT
from tests.scripts import run_python

PROGRAMS = Path(__file__).parent / "migrate_programs"
PAGE = ROOT / "docs" / "migrate.md"
NAMES = sorted(path.name[: -len("_tensorflow.py")] for path in PROGRAMS.glob("*_tensorflow.py"))
MECHANICAL = [name for name in NAMES if not (PROGRAMS / f"{name}_replicax.py").exists()]
BY_HAND = [name for name in NAMES if name not in MECHANICAL]

# There was no TPU to record it on: four replicas of two cores, two images each, halved.
TPU_OUTPUT = """\
replicas 4
first [0.0, 12.0]
first [24.0, 36.0]
first [48.0, 60.0]
first [72.0, 84.0]
"""


def program(name: str, library: str = "tensorflow") -> Path:
    return PROGRAMS / f"{name}_{library}.py"


def expected_output(name: str) -> str:
    if name.startswith("tpu"):
        return TPU_OUTPUT
    return (PROGRAMS / f"{name}_output.txt").read_text(encoding="utf-8")


def output_of(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # int64 becomes int32 on the devices, which is said, and right here.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::UserWarning")
    if not path.name.startswith("multi_worker"):
        keras = "import keras" in path.read_text(encoding="utf-8")
        return run_python([str(path), str(folder)], folder, warm=True, keras=keras)
    launch = ["-m", "replicax", "launch", "--workers=2", "--devices-per-worker=1", str(path)]
    said = run_python([*launch, str(folder)], folder, warm=True)
    return "".join(f"{line}\n" for line in re.findall(r"^\[worker 0\] (.*)$", said, re.M))


def test_there_are_programs():
    assert len(MECHANICAL) >= 5 and len(BY_HAND) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_report_is_right(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(PROGRAMS)
    status = main(["migrate", f"{name}_tensorflow.py"])
    report = (PROGRAMS / f"{name}_report.txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == report
    assert status == (name in BY_HAND)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_with_tensorflow_is_in_the_report(name: str):
    text = program(name).read_text(encoding="utf-8")
    reported = {each.line for each in port(text.encode()).findings}
    code = re.sub(r'""".*?"""', lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(code.splitlines(), 1):
        if re.search(r"\btf\.|tensorflow|\.numpy\(\)|strategy\.", line.partition("#")[0]):
            assert number in reported, line


@pytest.mark.parametrize("name", MECHANICAL)
def test_mechanical_program_runs_as_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / f"{name}.py"
    shutil.copy(program(name), path)
    assert main(["migrate", "--write", str(path)]) == 0
    assert "tensorflow" not in path.read_text(encoding="utf-8")
    assert output_of(path, tmp_path, monkeypatch) == expected_output(name)


@pytest.mark.parametrize("name", BY_HAND)
def test_finished_port_runs_and_prints_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = program(name, "replicax")
    assert output_of(path, tmp_path, monkeypatch) == expected_output(name)


@pytest.mark.parametrize("name", BY_HAND)
def test_finished_port_has_the_lines_that_were_written(name: str):
    """What `--write` changed or left is in the port: only marked lines are done by hand."""
    ported = port(program(name).read_bytes())
    finished = program(name, "replicax").read_text(encoding="utf-8")
    assert port(finished.encode()).left == 0 and "tensorflow" not in finished
    by_hand = {each.line for each in ported.findings if each.verdict.by_hand}
    good = {each.line for each in ported.findings if each.verdict is not Verdict.THOUGHT} - by_hand
    old = ported.old.splitlines()
    written = {line: ported.new_lines.get(line, old[line - 1]) for line in sorted(good)}
    lost = [
        f"{line}: {text}"
        for line, text in written.items()
        if text.strip() not in finished and not text.strip().startswith(("import ", "from "))
    ]
    assert not lost


def test_the_page_shows_what_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    page = PAGE.read_text(encoding="utf-8")
    (before,) = re.findall(r'^```py title="train.py"\n(.*?)^```$', page, re.M | re.S)
    (report,) = re.findall(r"^\$ replicax migrate train.py\n(.*?)^```$", page, re.M | re.S)
    (step,) = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(before, encoding="utf-8")
    assert main(["migrate", "train.py"]) == 0
    assert capsys.readouterr().out == report
    assert main(["migrate", "--write", "train.py"]) == 0
    assert step in path.read_text(encoding="utf-8")
