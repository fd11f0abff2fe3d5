"""Programs that tests run, on their own or in a fork that has the imports behind it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.launches import wait_until_gone
from tests.scripts import run_python

PROGRAM = """
import json, os, sys
import jax
import replicax as rx

SEEN = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "name": __name__,
    "is main": vars(sys.modules["__main__"]) is globals(),
    "file": os.path.basename(globals().get("__file__", "none")),
    "path": sys.path[0] and os.path.realpath(sys.path[0]),
    "variable": os.environ.get("A_VARIABLE"),
    "devices": len(jax.devices()),
    "x64": jax.config.jax_enable_x64,
    "sum": float(rx.Variable([1.0, 2.0]).numpy().sum()),
    "input": sys.stdin.read(),
}
print(json.dumps(SEEN))
"""


@pytest.mark.parametrize("way", ["file", "-c", "-m"])
def test_a_warm_program_sees_what_a_cold_one_does(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("A_VARIABLE", "its value")
    arguments = {"file": ["program.py"], "-c": ["-c", PROGRAM], "-m": ["-m", "program"]}[way]
    seen = [
        json.loads(run_python([*arguments, "one", "two"], tmp_path, warm=warm))
        for warm in (False, True)
    ]
    assert seen[0] == seen[1]
    assert seen[1]["arguments"] == ["one", "two"] and seen[1]["devices"] == 8


def test_settings_that_jax_reads_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert json.loads(run_python(["-c", PROGRAM], tmp_path, warm=True))["x64"]


def test_warm_programs_know_nothing_of_each_other(tmp_path: Path):
    program = "import os, replicax; print(hasattr(replicax, 'mark'), 'MARK' in os.environ)"
    program += "; replicax.mark = 1; os.environ['MARK'] = '1'"
    for _ in range(2):
        assert run_python(["-c", program], tmp_path, warm=True) == "False False\n"


@pytest.mark.parametrize(
    "program, words",
    [
        ("print('so far'); raise KeyError('gone')", r"so far\n(.*\n)*KeyError: 'gone'"),
        ("import sys; sys.exit('the reason')", "the reason"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "failed"),
    ],
)
def test_a_warm_program_that_fails(program: str, words: str, tmp_path: Path):
    with pytest.raises(AssertionError, match=words):
        run_python(["-c", program], tmp_path, warm=True)


def test_a_warm_program_that_does_not_end_is_ended(tmp_path: Path):
    program = "import os, time; open('number', 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", program], tmp_path, timeout=0.5, warm=True)
    number = tmp_path / "number"
    if number.exists() and (text := number.read_text()):  # it may be ended before it has begun
        wait_until_gone(int(text))
    assert run_python(["-c", "print(1)"], tmp_path, warm=True) == "1\n"


def test_processes_that_a_warm_program_starts_are_forks_too(tmp_path: Path):
    inner = "import sys; print('optax' in sys.modules, input()); sys.exit(3)"
    outer = f"import subprocess, sys\nargs = [sys.executable, '-c', {inner!r}]"
    outer += "\nprint(subprocess.run(args, input=b'given').returncode)"
    assert run_python(["-uc", outer], tmp_path, warm=True) == "False given\n3\n"
    assert run_python(["-c", outer], tmp_path, warm=True) == "True given\n3\n"


def test_signals_reach_a_warm_program(tmp_path: Path):
    inner = "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15])"
    inner += "; print('ready', flush=True); signal.sigwait([15]); print('told', flush=True)"
    inner += "; os.kill(os.getpid(), 10)"
    outer = f"import subprocess, sys\nargs = [sys.executable, '-c', {inner!r}]"
    outer += "\nprocess = subprocess.Popen(args, stdout=subprocess.PIPE)"
    outer += "\nprint(process.stdout.readline()); process.terminate()"
    outer += "\nprint(process.communicate()[0], process.returncode)"
    assert run_python(["-c", outer], tmp_path, warm=True) == "b'ready\\n'\nb'told\\n' -10\n"
