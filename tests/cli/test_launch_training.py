"""Workers that know each other under the launcher: a fault in one, and what the log says of it.

JAX is replaced by a stand-in here, but for the page; `tests/multi_worker` has the same faults amid
real training.
"""

import os
import re
from pathlib import Path

import pytest

from replicax._src.cli import _generation
from tests.cli.launches import JOIN, launch, of
from tests.guards import ROOT

# Worker 1 does something in its 5th step, in the first generation.
LOOP = """
for number in range(20):
    step()
    if number == 5 and rank == 1 and generation == 0:
        {fault}
print("steps", m.progress.calls)
"""


def train(folder: Path, fault: str, *options: str) -> tuple[int, list[str]]:
    return launch(folder, JOIN + LOOP.replace("{fault}", fault), "--workers=2", *options)


def test_page_on_launching_is_true(tmp_path: Path):
    """The script in docs/launching.md, over two workers, with JAX."""
    page = (ROOT / "docs" / "launching.md").read_text(encoding="utf-8")
    found = re.search(r"```python[^\n]*\n(.*?)```", page, re.S)
    assert found
    status, lines = launch(tmp_path, found[1], "--workers=2", "--devices-per-worker=2")
    assert status == 0, "\n".join(lines)
    losses = [[line for line in of(lines, rank) if line.startswith("epoch")] for rank in (0, 1)]
    assert len(losses[0]) == 10 and losses[0] == losses[1]


# Worker 0 is ended as soon as worker 1 is gone: worker 1 goes only when worker 0 has told of it.
TOLD_FIRST = """
import atexit
from replicax._src.cluster.control import _exits
_exits._LAST_WORDS_SECONDS = 60
if rank == 1:
    atexit.register(lambda: open({fifo!r}).read())
else:
    write = sys.stderr.write
    def write_and_let_go(text):
        write(text)
        sys.stderr.flush()
        if "bad row 17" in text:
            open({fifo!r}, "w").close()
    sys.stderr.write = write_and_let_go
"""


def test_exception_is_told_once_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_generation, "_SECONDS_TO_FAIL", 60.0)
    os.mkfifo(fifo := tmp_path / "fifo")
    loop = LOOP.replace("{fault}", "raise ValueError('bad row 17')")
    program = JOIN + TOLD_FIRST.format(fifo=str(fifo)) + loop
    status, lines = launch(tmp_path, program, "--workers=2")
    assert status == 1
    assert sum("Traceback" in line for line in lines) == 1
    assert "ValueError: bad row 17" in of(lines, 1)
    assert any("worker 1" in line and "bad row 17" in line for line in of(lines, 0))
    assert of(lines, None)[-1].startswith("worker 1 failed: ValueError: bad row 17")


def test_early_exit_is_an_error(tmp_path: Path):
    status, lines = train(tmp_path, "sys.exit(0)")
    assert status == 1
    assert re.match(r"worker 1 .*finished after", of(lines, None)[-1])


def test_exit_that_is_raised_by_hand_is_an_end(tmp_path: Path):
    """Nothing in a process can see it but `sys.exit` itself, which was not called."""
    status, lines = train(tmp_path, "raise SystemExit(3)")
    assert status == 1, "\n".join(lines)
    assert re.match(r"worker 1 .*finished after", of(lines, None)[-1])


def test_kill_restarts(tmp_path: Path):
    status, lines = train(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", "--max-restarts=1")
    assert status == 0, "\n".join(lines)
    assert "worker 1 was killed by SIGKILL; restart 1 of 1" in of(lines, None)
    assert of(lines, 0)[-1] == of(lines, 1)[-1] == "steps 20"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "its process is stopped"),
        ("import threading; threading.Event().wait(600)", "threading.Event().wait(600)"),
    ],
    ids=["stopped", "stuck"],
)
def test_worker_that_stands_still_is_found(tmp_path: Path, fault: str, told: str):
    # On a busy machine a worker may seem to stand still that does not: that is one restart more.
    status, lines = train(tmp_path, fault, "--stall-timeout=2", "--max-restarts=9")
    assert status == 0, "\n".join(lines)
    said = of(lines, None)
    assert any(told in line for line in said)
    assert any(line.startswith("worker 1 ") and "restart 1 of 9" in line for line in said)
    assert of(lines, 0)[-1] == of(lines, 1)[-1] == "steps 20"
