"""Data sets for several workers, the same in TensorFlow and in replicax.

`record_workers.py` plays them in TensorFlow, `test_against_tensorflow.py` in replicax. A case is
built from `data` and `io`, the namespaces of one of the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LAYOUTS = ((1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2))
"""Workers, and replicas on each."""

SIZES = (
    *((23, 10, False), (17, 8, False), (16, 8, False), (19, 8, False), (7, 10, False)),
    *((40, 9, False), (23, 10, True), (30, 7, False), (5, 2, False), (24, 6, True)),
    *((13, 3, False), (12, 12, False), (1, 4, False), (29, 5, False), (26, 8, True)),
    *((11, 1, False), (0, 4, False), (45, 16, False), (9, 4, True)),
)
"""Rows, batch size, drop_remainder."""


@dataclass(frozen=True)
class Libraries:
    """The names that a case is built from."""

    data: Any
    io: Any
    TensorSpec: Any
    folder: Path

    def text(self, *sizes: int, start: int = 0) -> Any:
        """The numbers from `start` on, as lines in files of the given sizes."""
        return self.data.TextLineDataset(self.text_files(*sizes, start=start))

    def text_files(self, *sizes: int, start: int = 0) -> list[str]:
        names = []
        for index, lines in enumerate(_numbers(sizes, start)):
            name = self.folder / f"lines-{start}-{index}.txt"
            name.write_text("".join(f"{line}\n" for line in lines))
            names.append(str(name))
        return names

    def records(self, *sizes: int) -> Any:
        """The numbers from 0 on, as records in files of the given sizes."""
        names = []
        for index, numbers in enumerate(_numbers(sizes, 0)):
            names.append(str(self.folder / f"records-{index}.tfrecord"))
            with self.io.TFRecordWriter(names[-1]) as writer:
                for number in numbers:
                    writer.write(str(number).encode())
        return self.data.TFRecordDataset(names)

    def range(self, *arguments: int) -> Any:
        return self.data.Dataset.range(*arguments)

    def batches(self, *sizes: int) -> Any:
        """Batches of the given sizes, from a generator: no operation tells of their size."""

        def generate() -> Iterator[Any]:
            yield from (np.asarray(numbers, "int32") for numbers in _numbers(sizes, 0))

        return self.data.Dataset.from_generator(
            generate, output_signature=self.TensorSpec([None], "int32")
        )


def _numbers(sizes: Sequence[int], start: int) -> list[list[int]]:
    count = itertools.count(start)
    return [list(itertools.islice(count, size)) for size in sizes]


def uneven(rows: int, files: int) -> list[int]:
    """Divides rows over files of unequal length: the later, the longer; the first may be empty."""
    weights = list(range(files))
    sizes = [rows * weight // max(sum(weights), 1) for weight in weights]
    sizes[-1] += rows - sum(sizes)
    return sizes


@dataclass(frozen=True)
class Case:
    """One data set under one policy, over so many workers and replicas."""

    label: str
    policy: str
    workers: int
    replicas: int
    make: Callable[[Libraries], Any]
    steps: int | None = None
    """How many steps are looked at, of data that does not end."""

    @property
    def name(self) -> str:
        return f"{self.policy} {self.label} on {self.workers} x {self.replicas}"

    def dataset(self, libraries: Libraries) -> Any:
        """Builds the data set, with its policy set."""
        options = libraries.data.Options()
        policies = libraries.data.experimental.AutoShardPolicy
        options.experimental_distribute.auto_shard_policy = policies[self.policy]
        return self.make(libraries).with_options(options)


def _of_a_source(source: str, size: tuple[int, int, bool], files: int) -> Callable[..., Any]:
    rows, batch, drop = size

    def make(libraries: Libraries) -> Any:
        match source:
            case "range":
                dataset = libraries.range(rows)
            case "slices":
                dataset = libraries.data.Dataset.from_tensor_slices(np.arange(rows))
            case "text":
                dataset = libraries.text(*uneven(rows, files))
            case "records":
                dataset = libraries.records(*uneven(rows, files))
            case _:
                raise ValueError(source)
        return dataset.batch(batch, drop_remainder=drop)

    return make


def _sources() -> Iterator[Case]:
    """Every policy and source over every layout, each with a few of the sizes in turn."""
    sizes = itertools.cycle(SIZES)
    for source, policies, count in (
        ("range", ("AUTO", "DATA", "OFF", "HINT"), 3),
        ("text", ("AUTO", "FILE", "DATA", "OFF", "HINT"), 3),
        ("records", ("AUTO", "FILE", "DATA"), 1),
        ("slices", ("AUTO",), 1),
    ):
        for policy, (workers, replicas) in itertools.product(policies, LAYOUTS):
            for number, size in enumerate(itertools.islice(sizes, count)):
                files = workers + number if source in ("text", "records") else 0
                where = f" in {files} files" if files else ""
                ending = " dropping" if size[2] else ""
                label = f"{source} {size[0]}{where} by {size[1]}{ending}"
                make = _of_a_source(source, size, files)
                yield Case(label, policy, workers, replicas, make)


def _hinted(libraries: Libraries) -> Any:
    hint = libraries.data.experimental.SHARD_HINT
    return libraries.range(22).shard(hint, hint).batch(6)


# Ten rows by six are cut differently by the two rules, on 2 replicas and on 4.
PIPELINES: dict[str, Callable[[Libraries], Any]] = {
    "map": lambda the: the.range(10).batch(6).map(lambda x: x + 1),
    "map before": lambda the: the.range(10).map(lambda x: x + 1).batch(6),
    "filter": lambda the: the.range(22).batch(6).filter(lambda x: x[0] != 6),
    "filter before": lambda the: the.range(15).filter(lambda x: x % 3 != 0).batch(6),
    "take": lambda the: the.range(40).batch(6).take(3),
    "skip": lambda the: the.range(16).batch(6).skip(1),
    "repeat": lambda the: the.range(7).batch(10).repeat(2),
    "repeat before": lambda the: the.range(7).repeat(2).batch(6),
    "prefetch": lambda the: the.range(10).batch(6).prefetch(1),
    "cache": lambda the: the.range(10).cache().batch(6),
    "shard": lambda the: the.range(33).batch(6).shard(2, 1),
    "concatenate": lambda the: the.range(10).batch(6).concatenate(the.range(20, 27).batch(6)),
    "concatenate another size": lambda the: (
        the.range(6).batch(5).concatenate(the.range(20, 27).batch(3))
    ),
    "unbatch and batch": lambda the: the.range(10).batch(3).unbatch().batch(6),
    "padded_batch": lambda the: the.range(10).padded_batch(6),
    "window": lambda the: the.range(10).window(6).flat_map(lambda window: window.batch(6)),
    "flat_map": lambda the: the.range(3).flat_map(
        lambda x: the.data.Dataset.range(x * 10, x * 10 + 10).batch(6)
    ),
    "zip": lambda the: the.data.Dataset.zip((the.range(10).batch(6), the.range(10).batch(6))).map(
        lambda a, b: a
    ),
    "batches of a generator": lambda the: the.batches(9, 5, 6, 7, 2),
    "empty batches of a generator": lambda the: the.batches(3, 0, 2),
    "fewer rows than replicas": lambda the: the.range(5).batch(1),
    "rows": lambda the: the.data.Dataset.from_tensor_slices(np.arange(20).reshape(10, 2)).batch(6),
    "one batch": lambda the: the.data.Dataset.from_tensors(np.arange(7)),
}
ENDLESS: dict[str, Callable[[Libraries], Any]] = {
    "repeat for ever": lambda the: the.range(7).batch(6).repeat(),
    "repeat for ever before": lambda the: the.range(7).repeat().batch(6),
    "repeat for ever before, dropping": lambda the: the.range(7).repeat().batch(6, True),
}
OF_FILES: dict[str, Callable[[Libraries], Any]] = {
    "lines mapped": lambda the: the.text(5, 9, 4, 2).map(lambda line: line).batch(6),
    "lines batched and mapped": lambda the: the.text(5, 9, 4, 2).batch(6).map(lambda line: line),
    "lines repeated": lambda the: the.text(5, 9, 4, 2).repeat(2).batch(6),
    "batches of lines repeated": lambda the: the.text(5, 9, 4, 2).batch(6).repeat(2),
    "lines taken": lambda the: the.text(5, 9, 4, 2).take(6).batch(4),
    "lines skipped": lambda the: the.text(5, 9, 4, 2).skip(3).batch(4),
    "batches of lines taken": lambda the: the.text(5, 9, 4, 2).batch(4).take(2),
    "lines cached": lambda the: the.text(5, 9, 4, 2).batch(4).prefetch(2),
    "lines filtered": lambda the: the.text(5, 9, 4, 2).filter(lambda line: line != b"3").batch(4),
    "lines interleaved": lambda the: (
        the.data.Dataset.from_tensor_slices(the.text_files(5, 9, 4, 2))
        .interleave(the.data.TextLineDataset, cycle_length=2, block_length=2)
        .batch(6)
    ),
    "lines flat-mapped": lambda the: (
        the.data.Dataset.from_tensor_slices(the.text_files(5, 9, 4, 2))
        .flat_map(the.data.TextLineDataset)
        .batch(6)
    ),
    "lines of named files": lambda the: the.data.TextLineDataset(
        the.data.Dataset.from_tensor_slices(the.text_files(5, 9, 4, 2))
    ).batch(6),
    "lines of listed files": lambda the: the.data.TextLineDataset(
        the.data.Dataset.list_files(the.text_files(5, 9, 4, 2), shuffle=False)
    ).batch(6),
    "two data sets of lines": lambda the: (
        the.text(5, 9, 4).concatenate(the.text(3, 3, 3, start=50)).batch(6)
    ),
    "lines beside lines": lambda the: (
        the.data.Dataset.zip((the.text(5, 9, 4), the.text(5, 9, 4, start=50)))
        .map(lambda a, b: b)
        .batch(6)
    ),
    "a file for each worker and more": lambda the: the.text(1, 0, 2, 3, 1, 4).batch(3),
    "an empty file": lambda the: the.text(0, 7, 5, 3).batch(4),
    "only empty files": lambda the: the.text(0, 0, 0, 0).batch(4),
}
HINTED: dict[str, Callable[[Libraries], Any]] = {"a hint": _hinted}
MIXED: dict[str, Callable[[Libraries], Any]] = {
    "lines beside numbers": lambda the: (
        the.data.Dataset.zip((the.text(4, 4), the.range(8)))
        .map(lambda line, number: number)
        .batch(4)
    ),
    "lines, then numbers as lines": lambda the: (
        the.text(4, 4)
        .concatenate(the.data.Dataset.from_tensor_slices([str(n) for n in range(100, 108)]))
        .batch(4)
    ),
}
"""What TensorFlow shards twice, and so loses half of: not to be copied."""

FEW_FILES: dict[str, Callable[[Libraries], Any]] = {
    "one file": lambda the: the.text(7).batch(4),
    "three files": lambda the: the.text(3, 4, 5).batch(4),
}
"""Fewer files than workers."""


def _classics() -> Iterator[Case]:
    """Small cases that show each rule."""
    for policy, label, layout, make in (
        ("AUTO", "range of 23 by 10", (2, 2), lambda the: the.range(23).batch(10)),
        ("OFF", "range of 23 by 10", (2, 2), lambda the: the.range(23).batch(10)),
        ("DATA", "range of 17 by 8", (2, 2), lambda the: the.range(17).batch(8)),
        ("AUTO", "range of 19 by 8", (2, 1), lambda the: the.range(19).batch(8)),
        ("AUTO", "range of 17 by 8", (2, 1), lambda the: the.range(17).batch(8)),
        ("AUTO", "13 and 9 lines by 8", (2, 2), lambda the: the.text(13, 9).batch(8)),
        ("FILE", "13 and 9 lines by 7", (2, 2), lambda the: the.text(13, 9).batch(7)),
        ("AUTO", "3 times 4 lines by 4", (2, 2), lambda the: the.text(4, 4, 4).batch(4)),
        ("AUTO", "3 times 4, dropping", (2, 2), lambda the: the.text(4, 4, 4).batch(4, True)),
    ):
        yield Case(label, policy, *layout, make)


def _pipelines() -> Iterator[Case]:
    several = ((2, 1), (2, 2), (3, 2), (4, 1))
    for table, policies, layouts, steps in (
        (PIPELINES, ("DATA", "OFF"), several, None),
        (ENDLESS, ("DATA", "OFF"), ((2, 2), (3, 1)), 5),
        (OF_FILES, ("FILE", "DATA"), ((2, 1), (2, 2), (3, 2)), None),
        (HINTED, ("HINT",), LAYOUTS, None),
    ):
        for (label, make), policy, layout in itertools.product(table.items(), policies, layouts):
            yield Case(label, policy, *layout, make, steps)


CASES = {case.name: case for case in (*_classics(), *_sources(), *_pipelines())}
"""What replicax does as TensorFlow does."""

OTHERS = {
    case.name: case
    for case in (
        *(Case(label, "AUTO", 2, 2, make) for label, make in MIXED.items()),
        *(
            Case(label, policy, 4, 1, make)
            for label, make in FEW_FILES.items()
            for policy in ("AUTO", "FILE")
        ),
        Case("no files", "FILE", 2, 1, PIPELINES["map"]),
    )
}
"""What TensorFlow does and replicax does not."""
