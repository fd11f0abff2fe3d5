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
from _input_data import Data
from _input_goals import Finding
from _input_replicax import example_features, shuffled
from _report import Cells

import replicax as rx

BYTES_GOAL = 1024
COMPARED = 20  # batches


class State(NamedTuple):
    """Of one pipeline; times in seconds."""

    title: str
    indexed: bool
    size: int
    save: float
    restore: float  # up to the next batch
    exact: bool

    def cells(self) -> Cells:
        times = (f"{1e6 * self.save:.0f} us", f"{1e3 * self.restore:.1f} ms")
        return self.title, str(self.size), *times, "yes" if self.exact else "NO"


STATE_HEADINGS: Cells = ("pipeline", "bytes", "save", "restore", "exact")


def sources(data: Data, strategy: Any) -> dict[str, tuple[bool, int, Callable[[], Any]]]:
    """For each: whether its elements have a number, the batches of an epoch, and the pipeline."""
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


def state_findings(states: list[State], checkpoint: dict[str, Any] | None) -> list[Finding]:
    largest = max((state for state in states if state.indexed), key=lambda state: state.size)
    inexact = [state.title for state in states if not state.exact]
    found = [
        Finding(
            "state",
            "bytes at worst, indexed pipelines",
            f"< {BYTES_GOAL}",
            str(largest.size),
            "-",
            largest.size < BYTES_GOAL,
        ),
        Finding(
            "state",
            f"sources restored exactly, of {len(states)}",
            str(len(states)),
            str(len(states) - len(inexact)),
            "-",
            not inexact,
        ),
    ]
    if checkpoint is not None:
        size, time_ratio = checkpoint["bytes"] / states[0].size, checkpoint["restore"]
        found.append(
            Finding(
                "state",
                f"times smaller than tf.data's ({checkpoint['bytes'] / 1e6:.0f} MB)",
                "",
                f"{size:.0f}",
                "-",
                None,
            )
        )
        found.append(
            Finding(
                "state",
                f"times faster restored than tf.data's ({time_ratio:.2f} s)",
                "",
                "-",
                f"{time_ratio / states[0].restore:.0f}",
                None,
            )
        )
    return found
