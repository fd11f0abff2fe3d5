"""Looking at a pipeline: as a line, as a tree, and where its time goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple, final

from replicax._src import _html
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._caching import WithOptions
from replicax._src.data._elements import ElementSpec, leaves_with_names
from replicax._src.data._node import INFINITE, UNKNOWN, Node, take_all, walk
from replicax._src.data._run import Run


def one_line(node: Node) -> str:
    """Returns what TensorFlow prints: `<BatchDataset shapes: (None,), types: int64>`."""
    known = node.spec_is_known or not any(each.runs_user_code for each in walk(node))
    if not known:  # printing must not run the user's functions
        return f"<{node.label}>"
    try:
        spec = node.spec
    except Exception:  # a missing file must not keep a data set from being printed
        return f"<{node.label}>"
    leaves = [leaf for _, leaf in leaves_with_names(spec)]
    if any(not hasattr(leaf, "shape") for leaf in leaves):
        return f"<{node.label} element_spec={spec!r}>"
    shapes = _as_the_spec(spec, lambda leaf: str(leaf.shape))
    types = _as_the_spec(spec, lambda leaf: "string" if leaf.dtype == object else str(leaf.dtype))
    return f"<{node.label} shapes: {shapes}, types: {types}>"


def _as_the_spec(spec: ElementSpec, show: Callable[[TensorSpec], str]) -> str:
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{key}: {_as_the_spec(spec[key], show)}" for key in spec) + "}"
    if isinstance(spec, tuple):
        return "(" + ", ".join(_as_the_spec(each, show) for each in spec) + ")"
    return show(spec)


def short_label(node: Node) -> str:
    """Returns `Batch` for `BatchDataset`; the names of other libraries as they are."""
    label = node.label
    return label.removesuffix("Dataset") if label.isidentifier() else label


def size_text(node: Node) -> str:
    size = node.cardinality
    return {INFINITE: "without end", UNKNOWN: "unknown number"}.get(size, str(size))


def rows_of_tree(node: Node) -> list[tuple[str, str, str]]:
    """Returns `(operation, arguments, elements)` for each node, the sink first, indented."""
    rows: list[tuple[str, str, str]] = []

    def visit(each: Node, indent: int) -> None:
        name = short_label(each)
        rows.append(("  " * indent + name, each.details(), size_text(each)))
        for source in each.inputs:
            visit(source, indent + 1)

    visit(node, 0)
    return rows


def text_tree(node: Node) -> str:
    rows = rows_of_tree(node)
    width = max(len(name) for name, _, _ in rows)
    lines = [
        f"{name:<{width}}  {details + '  ' if details else ''}[{size}]"
        for name, details, size in rows
    ]
    return "\n".join([one_line(node), *("  " + line for line in lines)])


def html_tree(node: Node, title: str | None = None) -> str:
    rows = [(name.replace(" ", "\u00a0"), *rest) for name, *rest in rows_of_tree(node)]
    heading = one_line(node) if title is None else title
    return _html.table(heading, ("operation", "arguments", "elements"), rows)


class Stage(NamedTuple):
    """One operation of a pipeline, and what it adds to the time of an element of the sink."""

    operation: str
    details: str
    seconds: float
    share: float


@final
class Benchmark:
    """Where the time of a pipeline goes."""

    def __init__(self, stages: list[Stage], elements: int, seconds: float):
        self.stages = stages
        self.elements = elements
        self.seconds = seconds  # for one element of the whole pipeline

    def __str__(self) -> str:
        lines = [f"{self.seconds * 1e6:.1f} us for each of {self.elements} elements:"]
        for stage in self.stages:
            lines.append(
                f"  {stage.seconds * 1e6:10.1f} us {stage.share:5.0%}  {stage.operation}  "
                f"{stage.details}".rstrip()
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (stage.operation, stage.details, f"{stage.seconds * 1e6:.1f}", f"{stage.share:.0%}")
            for stage in self.stages
        ]
        title = f"{self.seconds * 1e6:.1f} us for each of {self.elements} elements"
        return _html.table(title, ("operation", "arguments", "us", "share"), rows)


def benchmark(node: Node, elements: int, warm_up: int) -> Benchmark:
    """Times the pipeline up to each of its operations, in turn; the differences are theirs."""
    line = [each for each in _main_line(node) if not isinstance(each, WithOptions)]
    total, read = _time_of(node, elements, warm_up)
    stages: list[Stage] = []
    below = 0.0
    for each in reversed(line):
        per_sink = _elements_of(each, node)
        now = total if each is node else _time_of(each, elements, warm_up, per_sink)[0]
        spent = max(now - below, 0.0)
        below = max(now, below)
        stages.append(Stage(short_label(each), each.details(), spent, 0.0))
    whole = sum(stage.seconds for stage in stages) or 1.0
    shared = [Stage(*stage[:3], stage.seconds / whole) for stage in stages]
    return Benchmark(list(reversed(shared)), read, total)


def _main_line(node: Node) -> list[Node]:
    """Returns the sink and what it reads from, as far as there is one thing to read from."""
    line = [node]
    while len(line[-1].inputs) == 1:
        line.append(line[-1].inputs[0])
    return line


def _elements_of(node: Node, sink: Node) -> int:
    """Returns how many elements of `node` go into one of `sink`, by the batches between them."""
    count = 1
    for each in walk(sink):
        if each is node:
            return count
        count *= getattr(each, "batch_size", 1)
    return count


def _time_of(node: Node, times: int, warm_up: int, count: int = 1) -> tuple[float, int]:
    """Returns the seconds for `count` elements, the median of many times, and how many."""
    reader = node.open(Run())
    spent: list[float] = []
    try:
        for _ in range(warm_up + times):
            start = time.perf_counter()
            block = take_all(reader, count)
            if len(block) == 0:
                break
            if count == 1:
                block.rows()
            else:
                block.stacked()  # as a batch does
            spent.append(time.perf_counter() - start)
    finally:
        reader.close()
    counted = spent[warm_up:] or spent  # a short data set is all warm-up
    return (statistics.median(counted) if counted else 0.0), len(counted)
