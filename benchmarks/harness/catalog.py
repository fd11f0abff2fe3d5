"""All benchmarks, which are found by their folders, and the chapters of results from elsewhere."""

import functools
import importlib

from benchmarks.harness.benchmark import Benchmark, Chapter
from benchmarks.harness.processes import FOLDER
from benchmarks.harness.tables import Column, Table

# The order on the page; what is not named comes at the end.
_ORDER = ("step", "step_gpu", "first_call", "eager", "input", "multi_worker", "soak", "all_reduce")
_ORDER += ("sharded", "keras_fit", "keras_fit_gpu", "accelerator")


class Soak(Chapter):
    """Workers that are killed, stopped and interrupted in a training, again and again."""

    name = "soak"
    title = "Faults of many workers"
    tables = (
        Table(
            "faults",
            "Seconds until all workers were gone, and until the first new step.",
            (
                Column("fault"),
                Column("all gone", "gone", "g"),
                Column("first new step", "stepped", "g"),
            ),
        ),
    )


class Accelerator(Chapter):
    """One model under every strategy on the accelerator; its losses are those of one CPU device."""

    name = "accelerator"
    title = "Every strategy on a GPU"


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    """Returns the benchmarks by their names: `BENCHMARKS` of `benchmark.py` in each folder."""
    found = []
    for path in FOLDER.glob("*/benchmark.py"):
        module = importlib.import_module(f"benchmarks.{path.parent.name}.benchmark")
        found += [kind() for kind in getattr(module, "BENCHMARKS", ())]
    return {each.name: each for each in sorted(found, key=lambda each: order_of(each.name))}


def chapters() -> dict[str, Chapter]:
    """Returns the chapters of the page by their names, in their order."""
    found: list[Chapter] = [*benchmarks().values(), Soak(), Accelerator()]
    return {each.name: each for each in sorted(found, key=lambda each: order_of(each.name))}


def order_of(name: str) -> tuple[int, str]:
    """Returns where a chapter stands: chapters are sorted by this."""
    return _ORDER.index(name) if name in _ORDER else len(_ORDER), name
