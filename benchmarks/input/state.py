"""The position of an iterator: how large it is, how long it takes to go there, and whether exactly.

Each pipeline is read half an epoch far; its state goes to a new pipeline, as in a new process, and
both must then yield the same.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import replicax as rx
from benchmarks.harness import Cells
from benchmarks.input.data import Data
from benchmarks.input.replicax_streams import example_features, shuffled

BYTES_GOAL = 1024
COMPARED = 20  # batches


class State(NamedTuple):
    """The state of one pipeline; times in seconds."""

    title: str
    indexed: bool
    size: int
    save: float
    restore: float  # up to the next batch
    exact: bool

    def cells(self) -> Cells:
        times = (f"{1e6 * self.save:.0f} us", f"{1e3 * self.restore:.1f} ms")
        return self.title, str(self.size), *times, "yes" if self.exact else "NO"


HEADINGS = ("pipeline", "bytes", "save", "restore", "exact")


def sources(data: Data, strategy: Any) -> dict[str, tuple[bool, int, Callable[[], Any]]]:
    """Returns for each whether its elements have a number, batches of an epoch, and the pipeline."""
    a, d, e = data.a, data.d, data.e
    features = example_features(data)

    def in_memory() -> Any:
        return shuffled(a).batch(a.batch)

    def distributed() -> Any:
        return strategy.experimental_distribute_dataset(in_memory())

    def buffered() -> Any:
        rows = rx.data.Dataset.from_tensor_slices(a.columns)
        return rows.shuffle(max(a.count // 10, 1)).batch(a.batch)

    def records() -> Any:
        dataset = rx.data.TFRecordDataset(d.paths(data.folder)).shuffle(1000).batch(d.batch)
        return dataset.map(lambda some: rx.io.parse_example(some, features))

    def text() -> Any:
        return rx.data.TextLineDataset(e.paths(data.folder)).shuffle(1000).batch(e.batch)

    def generated() -> Any:
        spec = rx.TensorSpec((), np.int32)
        numbers = rx.data.Dataset.from_generator(
            lambda: iter(np.arange(a.count, dtype=np.int32)), output_signature=spec
        )
        return numbers.batch(a.batch)

    return {
        "in memory, shuffle(all)": (True, a.batches, in_memory),
        "the same, distributed to 4 devices": (True, a.batches, distributed),
        "in memory, shuffle(a tenth)": (True, a.batches, buffered),
        "records, shuffle(1000), parsed": (False, d.batches, records),
        "text, shuffle(1000)": (False, e.batches, text),
        "a generator": (False, a.batches, generated),
    }


def measure_states(data: Data, strategy: Any) -> list[State]:
    found = []
    for title, (indexed, batches, make) in sources(data, strategy).items():
        iterator = iter(make())
        for _ in range(batches // 2):
            next(iterator)
        begin = time.perf_counter()
        state = iterator.get_state()
        saved = time.perf_counter() - begin
        text = json.dumps(state)
        again = iter(make())
        begin = time.perf_counter()
        again.set_state(json.loads(text))
        first = next(again)
        restored = time.perf_counter() - begin
        theirs = itertools.islice(itertools.chain([first], again), COMPARED)
        pairs = zip(itertools.islice(iterator, COMPARED), theirs, strict=True)
        exact = all(equal(one, other) for one, other in pairs)
        found.append(State(title, indexed, len(text), saved, restored, exact))
    return found


def equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(mine), np.asarray(theirs)) for mine, theirs in pairs)


def state_findings(states: list[State], checkpoint: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the lines of the table of goals; `checkpoint` is what tf.data's state costs."""
    largest = max(state.size for state in states if state.indexed)
    exact = sum(state.exact for state in states)

    def finding(what: str, goal: str, measured: str, wall: str, met: bool | None) -> dict[str, Any]:
        about = {"case": "state", "what": what, "goal": goal}
        return {**about, "measured": measured, "wall": wall, "met": met}

    what, goal = "bytes at worst, indexed pipelines", f"< {BYTES_GOAL}"
    found = [finding(what, goal, str(largest), "-", largest < BYTES_GOAL)]
    what, goal = f"sources restored exactly, of {len(states)}", str(len(states))
    found.append(finding(what, goal, str(exact), "-", exact == len(states)))
    if checkpoint is not None:
        size, seconds = checkpoint["bytes"], checkpoint["restore"]
        what = f"times smaller than tf.data's ({size / 1e6:.0f} MB)"
        found.append(finding(what, "", f"{size / states[0].size:.0f}", "-", None))
        what = f"times faster restored than tf.data's ({seconds:.2f} s)"
        found.append(finding(what, "", "-", f"{seconds / states[0].restore:.0f}", None))
    return found
