"""The position of an iterator: how large it is, how long it takes to go there, and whether exactly.

Each pipeline is read half an epoch far; its state goes to a new pipeline, as in a new process, and
both must then yield the same.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import replicax as rx
from benchmarks.harness.tables import Cells, Row
from benchmarks.input.chains import Chains
from benchmarks.input.data import Data
from benchmarks.input.findings import finding

BYTES_GOAL = 1024
COMPARED = 20  # batches


HEADINGS = ("pipeline", "bytes", "save", "restore", "exact")


def sources(data: Data, strategy: Any) -> dict[str, tuple[bool, int, Callable[[], Any]]]:
    """Returns whether the elements of each are numbered, batches of an epoch, and the pipeline."""
    a, d, e = data.a, data.d, data.e
    chains = Chains(rx, data)

    def in_memory() -> Any:
        return chains.shuffled(a).batch(a.batch)

    def distributed() -> Any:
        return strategy.experimental_distribute_dataset(in_memory())

    def buffered() -> Any:
        rows = rx.data.Dataset.from_tensor_slices(a.columns)
        return rows.shuffle(max(a.count // 10, 1)).batch(a.batch)

    def records() -> Any:
        return chains.records().shuffle(1000).batch(d.batch).map(chains.parsed)

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


def measure_states(
    data: Data, strategy: Any, checkpoint: dict[str, Any] | None
) -> tuple[list[Cells], list[Row]]:
    """Returns a table of states, and the lines of the table of goals.

    Args:
      data: that is read.
      strategy: that distributes it.
      checkpoint: what the state of tf.data costs, if it takes part.
    """
    cells: list[Cells] = [HEADINGS]
    sizes, restores, exact = {}, [], 0
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
        restores.append(time.perf_counter() - begin)
        theirs = itertools.islice(itertools.chain([first], again), COMPARED)
        pairs = zip(itertools.islice(iterator, COMPARED), theirs, strict=True)
        is_exact = all(equal(one, other) for one, other in pairs)
        exact += is_exact
        sizes[title] = len(text), indexed
        times = f"{1e6 * saved:.0f} us", f"{1e3 * restores[-1]:.1f} ms"
        cells.append((title, str(len(text)), *times, "yes" if is_exact else "NO"))
    largest = max(size for size, indexed in sizes.values() if indexed)
    what, goal = "bytes at worst, indexed pipelines", f"< {BYTES_GOAL}"
    lines = [finding("state", what, goal, str(largest), "-", largest < BYTES_GOAL)]
    what, goal = f"sources restored exactly, of {len(sizes)}", str(len(sizes))
    lines.append(finding("state", what, goal, str(exact), "-", exact == len(sizes)))
    if checkpoint is not None:
        size, seconds = checkpoint["bytes"], checkpoint["restore"]
        smaller, faster = size / next(iter(sizes.values()))[0], seconds / restores[0]
        what = f"times smaller than tf.data's ({size / 1e6:.0f} MB)"
        lines.append(finding("state", what, "", f"{smaller:.0f}", "-"))
        what = f"times faster restored than tf.data's ({seconds:.2f} s)"
        lines.append(finding("state", what, "", "-", f"{faster:.0f}"))
    return cells, lines


def equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(mine), np.asarray(theirs)) for mine, theirs in pairs)
