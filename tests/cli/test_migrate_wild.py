"""Programs as people write them with `tf.distribute`: ported by `--write` alone, and run.

TensorFlow has not recorded what they print: they check themselves, and say "done".
"""

import shutil
from pathlib import Path

import keras  # noqa: F401  # loaded here, because it sets variables of the environment
import pytest

from replicax._src.cli.main import main
from tests.scripts import run_python

PROGRAMS = sorted((Path(__file__).parent / "migrate_wild").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_is_ported_and_runs(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / program.name
    shutil.copy(program, path)
    assert main(["migrate", "--write", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "import tensorflow" not in text
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    command, with_keras = [str(path), str(tmp_path)], "import keras" in text
    if program.stem.startswith("multi_worker"):
        launch = ["-m", "replicax", "launch", "--workers=2", "--devices-per-worker=1"]
        command, with_keras = [*launch, *command], False
    assert run_python(command, tmp_path, warm=True, keras=with_keras).rstrip().endswith("done")
