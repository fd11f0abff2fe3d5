"""Kills a program inside its saves and removals, again and again: `kill_inside_saves`.

The program restores the latest checkpoint, checks that it is of one piece, and saves again; what it
restores may not be older than what it said was saved. As a script:
`python -m tests.checkpoints.kills 200`, or `200 .removed`.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

from replicax._src.checkpoints._leftovers import remove_leftovers
from tests.guards import ROOT

PROGRAM = """
import os
import sys
import time
import jax.numpy as jnp
import replicax as rx

if sys.argv[2] == ".removed":  # else it is over before anybody on a busy machine has seen it
    unlink = os.unlink

    def unlink_slowly(*args, **kwargs):
        time.sleep(0.02)
        unlink(*args, **kwargs)

    os.unlink = unlink_slowly

strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    vs = [rx.Variable(jnp.zeros(250_000), aggregation="SUM") for _ in range(8)]
iterator = iter(rx.data.Dataset.range(10**9))
checkpoint = rx.train.Checkpoint(vs=vs, iterator=iterator, step=0)

@rx.function
def step():
    strategy.run(lambda: [v.assign_add(jnp.full(v.shape, 0.5)) for v in vs] and None)

with rx.train.CheckpointManager(checkpoint, sys.argv[1], max_to_keep=2) as manager:
    manager.restore_or_initialize()
    for v in vs:
        assert (v.numpy() == checkpoint.step).all(), (checkpoint.step, v)
    assert iterator.get_state()["position"] == checkpoint.step
    print("restored", checkpoint.step, flush=True)
    while True:
        step()
        assert next(iterator) == checkpoint.step
        checkpoint.step += 1
        manager.save()
        manager.wait()
        print("saved", checkpoint.step, flush=True)
"""


class Kills(NamedTuple):
    """What happened."""

    inside: int  # kills while a checkpoint was half-written, or half-removed
    saved: int  # checkpoints written in all


def kill_inside_saves(
    folder: Path, kills: int, seed: int = 0, timeout: float = 200, ending: str = ".partial"
) -> Kills:
    """Starts and kills a program; raises `AssertionError` if a restore was not what it must be.

    Args:
      folder: for the program and its checkpoints.
      kills: how many.
      seed: for the moments.
      timeout: seconds until a save begins.
      ending: of the name that is waited for: ".removed" for kills inside removals.
    """
    program = folder / "program.py"
    program.write_text(PROGRAM)
    directory = folder / "checkpoints"
    chosen = random.Random(seed)
    inside, saved = 0, 0
    for _ in range(kills):
        saved = _run_and_kill(program, directory, chosen, saved, timeout, ending)
        inside += any(name.endswith(ending) for name in os.listdir(directory))
    remove_leftovers(str(directory), "ckpt")
    left = [name for name in os.listdir(directory) if not re.fullmatch(r"ckpt-\d+", name)]
    assert not left, left
    return Kills(inside, saved)


def _run_and_kill(
    program: Path,
    directory: Path,
    chosen: random.Random,
    saved: int,
    timeout: float,
    ending: str,
) -> int:
    """One life of the program; returns the number of the last step that it said was saved."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "2",
    }
    process = subprocess.Popen(
        [sys.executable, str(program), str(directory), ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        restored = _next(process.stdout, "restored")
        assert saved <= restored, f"step {saved} was saved, and step {restored} restored"
        # Let it save a few times, and kill it at some point of the next save.
        for _ in range(chosen.randrange(4)):
            saved = max(saved, _next(process.stdout, "saved"))
        end = time.monotonic() + timeout
        while not _is_stopped_inside(process, directory, ending, chosen):
            assert time.monotonic() < end, "no save has begun, or no removal"
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            if line.startswith("saved "):
                saved = max(saved, int(line.split()[1]))
        return saved
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def _is_stopped_inside(
    process: subprocess.Popen[str], directory: Path, ending: str, chosen: random.Random
) -> bool:
    """Whether the program stands still while something has this ending; if not, it runs on."""

    def is_there() -> bool:
        return any(name.endswith(ending) for name in os.listdir(directory))

    if not is_there():
        time.sleep(0.0002)
        return False
    time.sleep(chosen.random() * (0.03 if ending == ".partial" else 0.1))
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if is_there():
        return True
    process.send_signal(signal.SIGCONT)
    return False


def _next(lines: IO[str], word: str) -> int:
    """Returns the number in the next line that begins with `word`; XLA may say things between."""
    seen = []
    for line in lines:
        if line.startswith(f"{word} "):
            return int(line.split()[1])
        seen.append(line)
    raise AssertionError("the program failed:\n" + "".join(seen))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(kill_inside_saves(Path(made), int(sys.argv[1]), ending=[*sys.argv, ".partial"][2]))
