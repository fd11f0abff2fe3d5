"""Operations that go along and remember: scan, take_while, unique, and which elements to drop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, final

import numpy as np

from replicax._src._errors import add_note
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src._warnings import warn
from replicax._src.data._blocks import Block, Broken, Held
from replicax._src.data._elements import Element, Structure, as_element, own
from replicax._src.data._mapping import call, is_kept, name_of, seen_spec
from replicax._src.data._node import (
    Generated,
    Reader,
    Seeded,
    chunk_of,
    observed_spec,
    spec_of,
)
from replicax._src.data._run import Run, draw


@final
class Scan(Generated, runs_user_code=True, pulls_user_code=True):
    """What a function makes of a state and each element: the next state, and an element."""

    initial: Any
    fn: Callable[..., Any]

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        state, structure = self.initial, Structure(self.initial)
        while len(block := reader.take(1)):
            try:
                state, element = self._step(structure, state, block.rows()[0])
            except Exception as error:
                yield Broken(error)
                continue
            yield Held([element])

    @override
    def _cardinality(self) -> int:
        return self.input.cardinality

    def _step(self, structure: Structure, state: Element, element: Element) -> tuple[Any, Any]:
        try:
            made = self.fn(state, element)  # a tuple is one argument, as in TensorFlow
        except Exception as error:
            add_note(error, f"Raised by {name_of(self.fn)}, the function of scan().")
            raise
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise TypeError(
                f"{name_of(self.fn)}, the function of scan(), must return a pair: the new state "
                f"and the element; got {made!r}."
            )
        new = own(as_element(made[0]))
        leaves = structure.leaves_like(new)
        before, after = spec_of(state), spec_of(new)
        if leaves is None or structure.leaves(before) is None:
            raise TypeError(
                f"{name_of(self.fn)}, the function of scan(), must return a state of the structure "
                f"of the initial one, {before!r}; got {after!r}."
            )
        kinds = [[each.dtype for each in structure.leaves(spec)] for spec in (before, after)]
        if kinds[0] != kinds[1]:
            raise TypeError(
                f"{name_of(self.fn)}, the function of scan(), must return a state of the dtypes "
                f"of the initial one, {before!r}; got {after!r}. Convert it, or start with a state "
                "of that dtype, such as np.int64(0)."
            )
        return new, own(as_element(made[1], list_is_tuple=True))

    @override
    def _spec(self) -> Any:
        return observed_spec(self)

    @override
    def details(self) -> str:
        return name_of(self.fn)


@final
class TakeWhile(Generated, runs_user_code=True, pulls_user_code=True):
    """The elements up to the first of which a function says False."""

    predicate: Callable[..., Any]

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        while len(block := reader.take(1)):
            try:
                row = block.rows()[0]
                if not is_kept(self.predicate, row, "take_while()"):
                    return
            except Exception as error:
                yield Broken(error)
                continue
            yield Held([own(row)])

    @override
    def details(self) -> str:
        return name_of(self.predicate)


@final
class Unique(Generated):
    """Each element once: where it comes first."""

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        seen: set[Any] = set()
        chunk = chunk_of(self.input)
        while len(block := reader.take(chunk)):
            try:
                rows = block.rows()
            except Exception as error:
                yield Broken(error)
                continue
            new: list[Any] = []
            for row in rows:
                key = _key(row)
                if key not in seen:
                    seen.add(key)
                    new.append(own(row))
            yield Held(new)


UNIQUE_TYPES = (np.dtype(np.int32), np.dtype(np.int64), np.dtype(object))


def check_can_be_unique(spec: object) -> None:
    """Raises a `TypeError` for elements that `unique` does not compare, as TensorFlow's does."""
    if not isinstance(spec, TensorSpec) or spec.dtype not in UNIQUE_TYPES:
        raise TypeError(
            "unique() takes a data set whose elements are one array of int32, int64 or text; "
            f"these are {spec!r}. Compare others by a key: map() each to (key, element) and use "
            "group_by_window or a set of keys in filter()."
        )


def _key(row: Any) -> Any:
    if isinstance(row, bytes):
        return row
    if row.dtype == object:
        return row.shape, tuple(row.ravel().tolist())
    return row.item() if row.ndim == 0 else (row.shape, row.tobytes())


@final
class IgnoreErrors(Generated):
    """The elements without those whose functions fail."""

    log_warning: bool

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        chunk = chunk_of(self.input)
        failed = False  # to read on, just before
        while True:
            try:
                block = reader.take(chunk)
                if len(block) == 0:
                    return
                failed = False
            except Exception as error:
                if failed:  # for good: nothing is gained by trying again
                    raise
                failed = True
                self._tell(error)
                continue
            try:
                rows = block.rows()
            except Exception as error:
                self._tell(error)
                continue
            yield Held(rows)

    def _tell(self, error: Exception) -> None:
        if self.log_warning:
            warn(f"ignore_errors() leaves an element out: {type(error).__name__}: {error}")


# ------------------------------------------------------------------ other shares of classes

_SMOOTHING = 10  # elements of each class, as if they had been seen before the first
_ESTIMATED_AT_ONCE = 32  # elements


@final
class Resample(
    Seeded, Generated, label="RejectionResampleDataset", runs_user_code=True, pulls_user_code=True
):
    """Pairs of a class and an element, of which so many are dropped that classes come as wanted.

    An element is kept with a probability proportional to its class's share in the result over the
    share in the input. Shares that were not told are counted on the way, as TensorFlow does.
    """

    class_func: Callable[..., Any]
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int | None
    drawn: int = dataclasses.field(default_factory=draw)

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        random = self.random(run, same_each_time=False)
        seen = np.full(len(self.target), float(_SMOOTHING))
        ended = False
        while not ended:
            rows: list[Any] = []
            for _ in range(_ESTIMATED_AT_ONCE if self.initial is None else 1):
                block = reader.take(1)
                ended = len(block) == 0
                if ended:
                    break
                try:
                    row = block.rows()[0]
                    value = call(self.class_func, row, "rejection_resample()")
                    rows.append((self._class(value), own(row)))
                except Exception as error:
                    yield Broken(error)
            if not rows:
                continue
            numbers = np.array([int(number) for number, _ in rows])
            seen += np.bincount(numbers, minlength=len(seen))
            kept = random.random(len(rows)) < self._acceptance(seen)[numbers]
            yield Held([row for row, keep in zip(rows, kept.tolist()) if keep])

    def _acceptance(self, seen: np.ndarray) -> np.ndarray:
        initial = seen / seen.sum() if self.initial is None else np.array(self.initial)
        ratio = np.array(self.target) / np.maximum(initial, np.finfo(np.float32).tiny)
        return ratio / ratio.max()

    def _class(self, value: object) -> Any:
        number: Any = as_element(value)
        if np.ndim(number) or not isinstance(number, np.generic) or number.dtype.kind not in "iu":
            raise TypeError(
                f"{name_of(self.class_func)}, the class_func of rejection_resample(), must return "
                f"one integer; got {value!r}."
            )
        if not 0 <= int(number) < len(self.target):  # pyright: ignore[reportArgumentType]
            raise ValueError(
                f"{name_of(self.class_func)}, the class_func of rejection_resample(), returned "
                f"the class {number}, and target_dist has {len(self.target)}, counted from 0."
            )
        return number

    @override
    def _spec(self) -> Any:
        def class_spec(element: Element) -> Any:
            return spec_of(self._class(call(self.class_func, element, "rejection_resample()")))

        return seen_spec(self.input, class_spec, self), self.input.spec

    @override
    def details(self) -> str:
        return name_of(self.class_func)
