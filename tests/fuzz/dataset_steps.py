"""Random pipelines: a list of steps, each as an operation on a data set, and on a list."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx

Dataset: Any = rx.data.Dataset


@dataclasses.dataclass(frozen=True)
class Kind:
    """What the elements of a pipeline are.

    Attributes:
      depth: how many dimensions each array has.
      ragged: whether those have different sizes.
      width: of how many arrays an element is a tuple; 0 for an array that stands alone.
    """

    depth: int = 0
    ragged: bool = False
    width: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation.

    Attributes:
      text: for people.
      apply: to a data set; the folder is for files.
      reference: the same for a list; None for a shuffle.
      kind: of the elements afterwards.
      buffer: of a shuffle.
    """

    text: str
    apply: Callable[[Any, Path], Any]
    reference: Callable[[list[Any]], list[Any]] | None
    kind: Kind
    buffer: int = 0


# ------------------------------------------------------------------ elements


def numbers_in(element: Any) -> list[int]:
    """All numbers of an element, be it of arrays or of lists."""
    if isinstance(element, tuple | list):
        return [number for part in element for number in numbers_in(part)]
    return [int(number) for number in np.ravel(np.asarray(element))]


def key(*element: Any) -> int:
    """A number that tells elements apart."""
    return sum((place + 1) * number for place, number in enumerate(numbers_in(element))) % 1009


def alone(arguments: tuple[Any, ...]) -> Any:
    """The element that a function was given: a tuple comes as several arguments."""
    return arguments if len(arguments) > 1 else next(iter(arguments))


def plus_one(element: Any) -> Any:
    if isinstance(element, tuple):
        return tuple(map(plus_one, element))
    return [plus_one(each) for each in element] if isinstance(element, list) else element + 1


def zipped(rows: Sequence[Any], width: int) -> Any:
    """Elements as one, as a batch has them."""
    return tuple(list(column) for column in zip(*rows)) if width else list(rows)


def unzipped(batch: Any) -> list[Any]:
    return list(zip(*batch)) if isinstance(batch, tuple) else list(batch)


def filled_up(batch: Any, depth: int) -> Any:
    """Lists of different lengths, with zeros up to the longest, in all dimensions."""
    if isinstance(batch, tuple):
        return tuple(filled_up(part, depth) for part in batch)
    sizes = [max(each) for each in zip(*[_sizes(row, depth) for row in batch])]
    return [_padded(row, sizes) for row in batch]


def _sizes(row: Any, depth: int) -> list[int]:
    return [] if depth == 0 else list(np.shape(row))


def _padded(row: Any, sizes: Sequence[int]) -> Any:
    if not sizes:
        return row
    rows = [_padded(each, sizes[1:]) for each in row]
    return rows + [np.zeros(sizes[1:], int).tolist()] * (sizes[0] - len(rows))


# ------------------------------------------------------------------ random steps


class Writer:
    """Writes one random pipeline."""

    def __init__(self, random: np.random.Generator, any_order: bool):
        self.random = random
        self.any_order = any_order  # whether shuffles may differ from walk to walk
        self.kind = Kind()
        self.steps: list[Step] = []

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def write(self) -> list[Step]:
        self.source()
        names = [name for name in dir(self) if name.startswith("add_")]
        for _ in range(self.number(1, 6)):
            getattr(self, names[self.number(0, len(names) - 1)])()
        return self.steps

    def then(self, text: str, apply: Any, reference: Any, **changed: Any) -> None:
        kind = dataclasses.replace(self.kind, **changed)
        buffer = changed.pop("buffer", 0)
        self.steps.append(Step(text, apply, reference, kind, buffer))
        self.kind = kind

    def source(self) -> None:
        count, which = self.number(0, 12), self.number(0, 3)
        if which == 0:
            step = self.number(1, 3)
            numbers = list(range(0, count, step))
            self.then(f"range(0, {count}, {step})", lambda *_: Dataset.range(0, count, step), None)
        elif which == 1:
            numbers = list(range(count))
            values = np.arange(count)
            self.then(f"slices({count})", lambda *_: Dataset.from_tensor_slices(values), None)
        elif which == 2:
            numbers = list(range(count))
            signature = rx.TensorSpec([], "int32")
            make = lambda *_: Dataset.from_generator(  # noqa: E731
                lambda: iter(range(count)), output_signature=signature
            )
            self.then(f"generator({count})", make, None)
        else:
            rows = max(count, 1)
            values = np.arange(2 * rows).reshape(rows, 2)
            numbers = values.tolist()
            make = lambda *_: Dataset.from_tensor_slices(values)  # noqa: E731
            self.then(f"rows({rows}, 2)", make, None, depth=1)
        last = self.steps.pop()
        self.steps.append(dataclasses.replace(last, reference=lambda _: list(numbers)))

    def add_map(self) -> None:
        vectorized = not self.kind.ragged and self.chance(0.3)
        options = {"vectorized": True} if vectorized else {}
        if not vectorized and self.chance(0.2):
            options = {"num_parallel_calls": 3}

        def function(*element: Any) -> Any:
            return plus_one(alone(element))

        self.then(
            f"map(+1, {options})",
            lambda dataset, _: dataset.map(function, **options),
            lambda rows: [plus_one(row) for row in rows],
        )

    def add_filter(self) -> None:
        of = self.number(2, 4)
        self.then(
            f"filter(key % {of})",
            lambda dataset, _: dataset.filter(lambda *element: key(*element) % of != 0),
            lambda rows: [row for row in rows if key(row) % of != 0],
        )

    def add_flat_map(self) -> None:
        of, cycle, block = self.number(1, 4), self.number(1, 3), self.number(1, 3)
        shuffled = self.any_order and self.chance(0.3)

        def make(*element: Any) -> Any:
            one = Dataset.from_tensors(alone(element)).repeat(key(*element) % of)
            return one.enumerate().shuffle(4).map(lambda i, x: x) if shuffled else one

        def reference(rows: list[Any], cycle: int, block: int) -> list[Any]:
            return woven([[row] * (key(row) % of) for row in rows], cycle, block)

        if self.chance(0.5):
            text = f"flat_map(repeat(key % {of}))"
            self.then(
                text, lambda dataset, _: dataset.flat_map(make), lambda rows: reference(rows, 1, 1)
            )
            return
        self.then(
            f"interleave(repeat(key % {of}), {cycle}, {block})",
            lambda dataset, _: dataset.interleave(make, cycle, block),
            lambda rows: reference(rows, cycle, block),
        )

    def add_batch(self) -> None:
        size, drop, kind = self.number(1, 4), self.chance(0.3), self.kind
        if kind.depth > 2:
            return

        def reference(rows: list[Any], pad: bool) -> list[Any]:
            batches = [rows[i : i + size] for i in range(0, len(rows), size)]
            whole = [batch for batch in batches if len(batch) == size or not drop]
            stacked = [zipped(batch, kind.width) for batch in whole]
            return [filled_up(batch, kind.depth) for batch in stacked] if pad else stacked

        pad = kind.ragged
        name = "padded_batch" if pad else "batch"
        self.then(
            f"{name}({size}, drop_remainder={drop})",
            lambda dataset, _: getattr(dataset, name)(size, drop_remainder=drop),
            lambda rows: reference(rows, pad),
            depth=kind.depth + 1,
            ragged=pad or not drop,
        )

    def add_unbatch(self) -> None:
        # Rows of padded batches may have one width in one batch and another in the next.
        if self.kind.depth:
            self.then(
                "unbatch()",
                lambda dataset, _: dataset.unbatch(),
                lambda rows: [row for batch in rows for row in unzipped(batch)],
                depth=self.kind.depth - 1,
                ragged=self.kind.ragged and self.kind.depth > 1,
            )

    def add_window(self) -> None:
        size, shift, stride = self.number(1, 3), self.number(1, 4), self.number(1, 2)
        drop, kind = self.chance(0.5), self.kind
        if kind.width or kind.ragged or kind.depth > 2:
            return

        def reference(rows: list[Any]) -> list[Any]:
            windows: list[Any] = []
            for start in range(0, len(rows), shift):
                window = rows[start : start + (size - 1) * stride + 1 : stride]
                if len(window) == size or not drop:
                    windows.append(window)
            return windows

        self.then(
            f"window({size}, {shift}, {stride}, {drop}).flat_map(batch)",
            lambda dataset, _: dataset.window(size, shift, stride, drop).flat_map(
                lambda window: window.batch(size)
            ),
            reference,
            depth=kind.depth + 1,
            ragged=not drop,
        )

    def add_repeat(self) -> None:
        count = self.number(0, 3)
        if self.any_order or not any(step.buffer for step in self.steps):
            self.then(
                f"repeat({count})",
                lambda dataset, _: dataset.repeat(count),
                lambda rows: rows * count,
            )

    def add_take(self) -> None:
        count = self.number(-1, 9)
        self.then(
            f"take({count})",
            lambda dataset, _: dataset.take(count),
            lambda rows: rows[:count] if count >= 0 else rows,
        )

    def add_skip(self) -> None:
        count = self.number(0, 9)
        self.then(
            f"skip({count})", lambda dataset, _: dataset.skip(count), lambda rows: rows[count:]
        )

    def add_shard(self) -> None:
        shards = self.number(1, 3)
        index = self.number(0, shards - 1)
        self.then(
            f"shard({shards}, {index})",
            lambda dataset, _: dataset.shard(shards, index),
            lambda rows: rows[index::shards],
        )

    def add_shuffle(self) -> None:
        buffer = self.number(1, 12)
        seed = self.number(0, 99) if not self.any_order or self.chance(0.5) else None
        again = self.any_order and self.chance(0.7)
        self.steps.append(
            Step(
                f"shuffle({buffer}, {seed}, {again})",
                lambda dataset, _: dataset.shuffle(buffer, seed, again),
                None,
                self.kind,
                buffer,
            )
        )

    def add_cache(self) -> None:
        number = len(self.steps)
        if self.chance(0.5):
            self.then("cache()", lambda dataset, _: dataset.cache(), list)
        else:
            self.then(
                f"cache('{number}')",
                lambda dataset, folder: dataset.cache(folder / str(number)),
                list,
            )

    def add_prefetch(self) -> None:
        self.then("prefetch(2)", lambda dataset, _: dataset.prefetch(2), list)

    def add_enumerate(self) -> None:
        if self.kind.width == 0 and self.kind.depth == 0:
            self.then(
                "enumerate(3)",
                lambda dataset, _: dataset.enumerate(3),
                lambda rows: [(number, row) for number, row in enumerate(rows, 3)],
                width=2,
            )

    def add_zip(self) -> None:
        count = self.number(0, 15)
        if self.kind.width == 0 and self.kind.depth == 0:
            self.then(
                f"zip(range({count}))",
                lambda dataset, _: Dataset.zip(dataset, Dataset.range(count)),
                lambda rows: list(zip(rows, range(count))),
                width=2,
            )

    def add_concatenate(self) -> None:
        count = self.number(0, 4)
        if not any(step.buffer for step in self.steps) or self.any_order:
            self.then(
                f"concatenate(its take({count}))",
                lambda dataset, _: dataset.concatenate(dataset.take(count)),
                lambda rows: rows + rows[:count],
            )

    def add_choose(self) -> None:
        choices = [self.number(0, 1) for _ in range(self.number(0, 12))]
        stop = self.chance(0.5)
        if any(step.buffer for step in self.steps) and not self.any_order:
            return

        def reference(rows: list[Any]) -> list[Any]:
            parts = [iter(rows), iter(rows[1:4])]
            chosen: list[Any] = []
            for choice in choices:
                row = next(parts[choice], None)
                if row is not None:
                    chosen.append(row)
                elif stop:
                    break
            return chosen

        self.then(
            f"choose_from_datasets([it, its skip(1).take(3)], {choices}, {stop})",
            lambda dataset, _: Dataset.choose_from_datasets(
                [dataset, dataset.skip(1).take(3)],
                Dataset.from_tensor_slices(np.array(choices, np.int64)),
                stop,
            ),
            reference,
        )

    def add_sample(self) -> None:
        count, seed = self.number(0, 6), self.number(0, 9) if self.chance(0.5) else None
        again = self.chance(0.5)
        if self.any_order:  # which are drawn is its own affair
            self.then(
                f"sample_from_datasets([it, its take({count})], seed={seed}, again={again})",
                lambda dataset, _: Dataset.sample_from_datasets(
                    [dataset, dataset.take(count)], [0.6, 0.3], seed, True, again
                ),
                list,
            )

    def add_resample(self) -> None:
        seed = self.number(0, 9) if self.chance(0.5) else None
        if self.any_order:
            self.then(
                f"rejection_resample(key % 2, seed={seed})",
                lambda dataset, _: dataset.rejection_resample(
                    lambda *element: key(*element) % 2, [0.3, 0.7], seed=seed
                ).map(lambda number, element: element),
                list,
            )

    def add_take_while(self) -> None:
        of = self.number(2, 6)
        self.then(
            f"take_while(key % {of})",
            lambda dataset, _: dataset.take_while(lambda *element: key(*element) % of != 1),
            lambda rows: list(itertools.takewhile(lambda row: key(row) % of != 1, rows)),
        )

    def add_scan(self) -> None:
        def reference(rows: list[Any]) -> list[Any]:
            return [[key(row), before] for row, before in zip(rows, [0, *map(key, rows)])]

        self.then(
            "scan(this key, the one before)",
            lambda dataset, _: dataset.scan(
                np.int32(0),
                lambda before, row: (np.int32(key(row)), np.array([key(row), before], np.int32)),
            ),
            reference,
            depth=1,
            ragged=False,
            width=0,
        )

    def add_unique(self) -> None:
        if self.kind.width == 0:
            self.then(
                "unique()",
                lambda dataset, _: dataset.unique(),
                lambda rows: [row for place, row in enumerate(rows) if row not in rows[:place]],
            )

    def add_group(self) -> None:
        of, size = self.number(1, 3), self.number(1, 3)

        def reference(rows: list[Any]) -> list[Any]:
            groups: dict[int, list[Any]] = collections.defaultdict(list)
            grouped: list[Any] = []
            for row in rows:
                group = groups[key(row) % of]
                group.append(row)
                if len(group) == size:
                    grouped += groups.pop(key(row) % of)
            return grouped + [row for each in sorted(groups) for row in groups[each]]

        self.then(
            f"group_by_window(key % {of}, {size})",
            lambda dataset, _: dataset.group_by_window(
                lambda *element: key(*element) % of, lambda _, window: window, size
            ),
            reference,
        )

    def add_bucket(self) -> None:
        if self.kind.depth != 1 or self.kind.width:
            return

        def reference(rows: list[Any]) -> list[Any]:
            waiting: list[list[Any]] = [[], []]
            batches: list[Any] = []
            for row in rows:
                bucket = waiting[len(row) >= 3]
                bucket.append(row)
                if len(bucket) == 2:
                    batches.append(filled_up(bucket, 1))
                    waiting[len(row) >= 3] = []
            return batches + [filled_up(bucket, 1) for bucket in waiting if bucket]

        self.then(
            "bucket_by_sequence_length(len, [3], [2, 2])",
            lambda dataset, _: dataset.bucket_by_sequence_length(len, [3], [2, 2]),
            reference,
            depth=2,
            ragged=True,
        )

    def add_ignored_errors(self) -> None:
        of = self.number(2, 4)

        def fails(number: Any, element: Any) -> Any:
            if number % of == of - 1 and number > 1:  # the first show what elements look like
                raise ValueError("on purpose")
            return element

        self.then(
            f"map(fails at {of - 1} of {of}).ignore_errors()",
            lambda dataset, _: dataset.enumerate().map(fails).ignore_errors(),
            lambda rows: [
                row for number, row in enumerate(rows) if number % of != of - 1 or number <= 1
            ],
        )

    def add_snapshot(self) -> None:
        number = len(self.steps)
        self.then(
            f"snapshot('s{number}')",
            lambda dataset, folder: dataset.snapshot(folder / f"s{number}"),
            list,
        )


def woven(parts: Sequence[list[Any]], cycle: int, block: int) -> list[Any]:
    """What `interleave` makes of lists."""
    waiting = collections.deque(collections.deque(part) for part in parts)
    slots: list[Any] = [None] * cycle
    rows: list[Any] = []
    while waiting or any(slot is not None for slot in slots):
        for place in range(cycle):
            if slots[place] is None and waiting:
                slots[place] = waiting.popleft()
            for _ in range(block):
                if slots[place]:
                    rows.append(slots[place].popleft())
                elif slots[place] is not None:
                    slots[place] = None
                    break
    return rows
