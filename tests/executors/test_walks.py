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


def test_eager_apply_gradients_takes_twelve_calls():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    stacks: dict[str, list[str]] = {}
    with strategy.scope():
        v = rx.Variable([1.0, 2.0])
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "replicax/_src" in frame.f_code.co_filename:
            calls = [name for name in calls_of(frame) if not name.endswith("comp>")]
            stacks.setdefault(calls[-1], calls)

    def step() -> None:
        sys.setprofile(note)
        optimizer.apply_gradients([(jnp.ones(2), v)])
        sys.setprofile(None)

    strategy.run(lambda: optimizer.apply_gradients([(jnp.ones(2), v)]))
    sys.setprofile(note)  # of this thread: what is done once for all replicas
    try:
        strategy.run(step)
    finally:
        sys.setprofile(None)

    def walk(last: str, first: str) -> list[str]:
        return stacks[last][stacks[last].index(first) :]

    in_replica = walk("Task.pause", "Optimizer.apply_gradients")
    calls = in_replica + walk("Launches.call", "_hold_meeting")
    assert calls == listed("`optimizer.apply_gradients(...)` in such")
    assert len(calls) == 12
    update = walk("OptimizerState._update_eagerly", "Optimizer._apply")
    assert update[1:] == listed("and from `Optimizer._apply`")


def test_compiled_call_takes_these_calls():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")

    @rx.function
    def step() -> None:
        strategy.run(lambda: v.assign_add(1.0))

    step()
    expected = listed("A call of a compiled function")
    made: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname in expected:
            made.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    assert made == expected
