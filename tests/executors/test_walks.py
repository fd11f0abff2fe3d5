"""The calls between a user's line and the work, as `docs/design/rooms.md` has them."""

import sys
import threading
from types import FrameType

import jax.numpy as jnp
import optax

import replicax as rx
from tests.guards import ROOT


def calls_of(frame: FrameType | None) -> list[str]:
    """The functions of the package on a stack, outermost first."""
    found: list[str] = []
    while frame is not None:
        if "replicax/_src" in frame.f_code.co_filename:
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found[::-1]


def listed(title: str) -> list[str]:
    """The calls that the page lists after a line that starts so."""
    page = (ROOT / "docs/design/rooms.md").read_text(encoding="utf-8")
    block = page.partition(f"\n{title}")[2].partition("```text\n")[2].partition("```")[0]
    return [line.split()[0] for line in block.splitlines()]


def test_eager_run_takes_six_calls():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    caller = threading.get_ident()
    walks: list[list[str]] = []

    def replica_fn() -> None:
        frames = sys._current_frames()
        here = [name for name in calls_of(sys._getframe()) if name != "ThreadPool._serve"]
        walks.append(calls_of(frames[caller]) + here)

    strategy.run(replica_fn)
    assert walks == [listed("`strategy.run(fn)`, eagerly")] * 2
    assert len(walks[0]) == 6


def test_the_meeting_of_apply_gradients_takes_the_calls_that_are_listed():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    walk: list[str] = []
    with strategy.scope():
        v = rx.Variable([1.0, 2.0])
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step() -> None:
        optimizer.apply_gradients([(jnp.ones(2), v)])

    strategy.run(step)
    calls = listed("`optimizer.apply_gradients(...)` in such")

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_qualname
        is_ours = "replicax/_src" in frame.f_code.co_filename
        if event == "call" and is_ours and name in calls and name not in walk:
            walk.append(name)

    sys.setprofile(note)  # of this thread: what is done once for all replicas
    try:
        strategy.run(step)
    finally:
        sys.setprofile(None)
    in_meeting = calls[calls.index("_hold_meeting") :]
    assert [name for name in walk if name in in_meeting] == in_meeting
