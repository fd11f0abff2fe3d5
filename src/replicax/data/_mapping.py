"""Functions of elements: map, filter, flat_map, interleave."""

from __future__ import annotations

import dataclasses
import dis
import functools
import types
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import jax
import numpy as np

from replicax._errors import add_note
from replicax.data._batching import Batch
from replicax.data._blocks import EMPTY, Block, Columns, ElementFunction, Held, Mapped, RecordRows
from replicax.data._elements import Structure, as_element, leaves_with_names, map_leaves, own
from replicax.data._node import (
    UNKNOWN,
    Node,
    OneInput,
    Pulled,
    Reader,
    Slices,
    chunk_of,
    drawing_nodes,
    first_elements,
    merged_specs,
    observed_spec,
    spec_of,
)
from replicax.data._run import Run, derived, draw
from replicax.functions import TensorSpec
from replicax.records import Unparsed, parse_example

ON_DEVICE = "on the device"
VECTORIZED = "vectorized"
PER_ELEMENT = "per element"


def call(fn: Callable[..., Any], element: Any, operation: str) -> Any:
    """`fn` of an element, as in tf.data: a tuple is several arguments."""
    try:
        return fn(*element) if type(element) is tuple else fn(element)
    except StopIteration as error:  # which would pass for the end of the data
        raise RuntimeError(
            f"{_name(fn)}, the function of {operation}, raised StopIteration."
        ) from error
    except Exception as error:
        add_note(error, f"Raised by {_name(fn)}, the function of {operation}.")
        raise


def _name(fn: Any) -> str:
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _result(fn: Callable[..., Any], value: Any, operation: str) -> Any:
    if value is None:
        raise TypeError(
            f"{_name(fn)}, the function of {operation}, returned None. Return the new element: "
            "is there a `return` missing?"
        )
    try:
        return as_element(value, list_is_tuple=True)
    except (TypeError, ValueError) as error:
        add_note(error, f"Returned by {_name(fn)}, the function of {operation}.")
        raise


class PerElement(ElementFunction):
    """Calls the function for one element at a time."""

    def __init__(self, fn: Callable[..., Any], parallel: int = 1):
        self._fn = fn
        self._parallel = parallel

    def rows(self, block: Block) -> list[Any]:
        elements = block.rows()
        if self._parallel == 1 or len(elements) == 1:
            return [self._one(element) for element in elements]
        # Threads for this block only: they cost less than what is worth running in parallel.
        with ThreadPoolExecutor(min(self._parallel, len(elements)), "rx.data.map") as pool:
            return list(pool.map(self._one, elements))

    def _one(self, element: Any) -> Any:
        # No name for the result: `own` looks at whether somebody else holds it.
        return own(_result(self._fn, call(self._fn, element, "map()"), "map()"))


class WholeBlocks(ElementFunction):
    """Calls the function once for many elements, stacked into arrays."""

    whole_blocks = True

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    def rows(self, block: Block) -> list[Any]:
        element = self.stacked(block)
        structure = Structure(element)
        return Columns(structure.leaves(element), structure).rows()

    def stacked(self, block: Block) -> Any:
        where = "map(vectorized=True)"
        result = _result(self._fn, call(self._fn, block.stacked(), where), where)
        for name, leaf in leaves_with_names(result):
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or len(leaf) != len(block):
                raise ValueError(
                    f"{_name(self._fn)}, the function of {where}, was given {len(block)} elements "
                    f"as rows of arrays and must return as many; result{name} has the shape "
                    f"{np.shape(leaf)}."
                )
        return result


class ParsedRecords(ElementFunction):
    """What `parse_single_example` gives of each record, computed for many at a time."""

    whole_blocks = True

    def __init__(self, features: Any, names: Sequence[str], structure: Structure):
        self._features = {name: features[name] for name in names}
        self._names = names
        self._structure = structure

    def rows(self, block: Block) -> list[Any]:
        return Columns(self._columns(block), self._structure).rows()

    def stacked(self, block: Block) -> Any:
        return self._structure.build(self._columns(block))

    def _columns(self, block: Block) -> list[Any]:
        records = block.records if isinstance(block, RecordRows) else block.rows()
        parsed = parse_example(records, self._features)
        return [parsed[name] for name in self._names]

    @classmethod
    def behind(cls, fn: Callable[..., Any], of_batches: bool) -> ParsedRecords | None:
        """If `fn` only parses records and picks features from them, that; otherwise None.

        The function is called with something that stands for a record: it can be parsed, and
        nothing else can be done with it or its features.
        """
        record = Unparsed(of_batches)
        try:
            result = fn(record)
            structure = Structure(tuple(result) if isinstance(result, list) else result)
            leaves = structure.leaves(result)
        except Exception:
            return None
        features = record.features
        if features is None or not all(record.owns(leaf) for leaf in leaves):
            return None
        return cls(features, [leaf.name for leaf in leaves], structure)


@dataclasses.dataclass(frozen=True, eq=False)
class Map(OneInput):
    """A function of each element."""

    fn: Callable[..., Any]
    mode: str = PER_ELEMENT
    parallel: int = 1
    label: ClassVar[str] = "MapDataset"
    runs_user_code: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        if self._as_rows is not None:
            return self._as_rows.open(run)
        parallel = 1 if self.mode != PER_ELEMENT else self.parallel
        return MapReader(self.input.open(run), self._function, parallel)

    @functools.cached_property
    def _as_rows(self) -> Node | None:
        """If all it does is to parse batches of records, batches of parsed records: the same."""
        batch = self.input
        if self.mode != PER_ELEMENT or not isinstance(batch, Batch):
            return None
        if not reads_records(batch.input) or not _may_parse(self.fn):
            return None
        parsed = ParsedRecords.behind(self.fn, of_batches=True)
        if parsed is None:
            return None
        rows = dataclasses.replace(self, input=batch.input)
        rows.__dict__["_function"] = parsed
        return batch.with_inputs([rows])

    @functools.cached_property
    def _function(self) -> ElementFunction:
        if self.mode == VECTORIZED:
            return WholeBlocks(self.fn)
        if self.mode == ON_DEVICE:
            return PerElement(jax.jit(self.fn))
        if reads_records(self.input) and _may_parse(self.fn):
            parsed = ParsedRecords.behind(self.fn, of_batches=False)
            if parsed is not None:
                return parsed
        return PerElement(self.fn, self.parallel)

    def _spec(self) -> Any:
        if self.mode == ON_DEVICE:
            return abstract_spec(self.fn, self.input.spec)
        if self.mode == VECTORIZED:
            return observed_spec(self)
        elements = first_elements(self.input)
        if not elements:
            return observed_spec(self)  # which says that there is nothing
        function = PerElement(self.fn)
        spec = spec_of(function._one(elements[0]))
        # A batch may have fewer rows than the first one: what depends on the number is not known.
        shorter = _one_row_less(elements[0], self.input.spec)
        for element in [*elements[1:], *shorter]:
            try:
                other = spec_of(function._one(element))
            except Exception:
                continue
            spec = merged_specs(spec, other) or spec
        return spec

    def details(self) -> str:
        mode = "" if self.mode == PER_ELEMENT else f", {self.mode}"
        return _name(self.fn) + mode


def abstract_spec(fn: Callable[..., Any], spec: Any) -> Any:
    """What a function for the device makes of an element that looks like `spec`."""

    def look(size: int) -> Any:
        def sized(leaf: Any) -> Any:
            shape = [size if each is None else each for each in leaf.shape]
            return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

        element = map_leaves(sized, spec)
        result = jax.eval_shape(fn, *(element if type(element) is tuple else (element,)))
        if isinstance(result, list):
            result = tuple(result)
        return map_leaves(lambda leaf: TensorSpec.on_host(leaf.shape, leaf.dtype), result)

    for name, leaf in leaves_with_names(spec):
        if leaf.shape is None:
            raise ValueError(
                f"The shape of element{name} is not known, so that it cannot be told what "
                f"{_name(fn)} makes of it. Give from_generator an `output_signature` with shapes."
            )
    return merged_specs(look(2), look(3))


def _one_row_less(element: Any, spec: Any) -> list[Any]:
    leaves = [leaf for _, leaf in leaves_with_names(element)]
    specs = [leaf for _, leaf in leaves_with_names(spec)]
    if any(not getattr(each, "shape", None) or each.shape[0] is not None for each in specs):
        return []
    if any(not isinstance(leaf, np.ndarray) or len(leaf) < 2 for leaf in leaves):
        return []
    return [map_leaves(lambda leaf: leaf[:-1], element)]


_PARSERS = {"parse_example", "parse_single_example"}


def _may_parse(fn: Any) -> bool:
    """Whether a function names a parser; others are not called just to see what they do."""
    if isinstance(fn, functools.partial):
        return getattr(fn.func, "__name__", "") in _PARSERS or _may_parse(fn.func)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None or _PARSERS.isdisjoint((*code.co_names, *code.co_freevars)):
        return False
    return _has_one_way(code)


def _has_one_way(code: types.CodeType) -> bool:
    """Whether there are no two ways through a function, so that one run tells all of it."""
    names = {each.opname for each in dis.get_instructions(code)}
    if code.co_exceptiontable or any("JUMP" in name and "IF" in name for name in names):
        return False
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return all(map(_has_one_way, inner))


def reads_records(node: Node) -> bool:
    """Whether the elements of a node are records of a file."""
    while node.keeps_elements or node.label in ("TakeDataset", "SkipDataset", "ShardDataset"):
        node = node.inputs[0]
    return getattr(node, "yields_records", False)


class MapReader(Reader):
    """A walk with a function still to be applied."""

    def __init__(self, reader: Reader, function: ElementFunction, parallel: int):
        self._reader = reader
        self._function = function
        self._parallel = parallel
        self._ready = Slices(EMPTY)

    def take(self, count: int) -> Block:
        block = self._ready.take(count)
        if len(block):
            return block
        block = self._reader.take(max(count, self._parallel))
        if len(block) == 0:
            return block
        if count >= self._parallel:
            return Mapped(self._function, block)
        # Fewer are asked for than are to be computed side by side.
        try:
            self._ready = Slices(Held(self._function.rows(block)))
        except Exception:  # of one of them: it is to fail alone, when its turn comes
            self._ready = Slices(Mapped(self._function, block))
        return self._ready.take(count)

    def skip(self, count: int) -> int:
        ready = self._ready.skip(count)
        return ready + self._reader.skip(count - ready)

    def close(self) -> None:
        self._reader.close()


@dataclasses.dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """The elements of which a function says True."""

    predicate: Callable[..., Any]
    label: ClassVar[str] = "FilterDataset"
    runs_user_code: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        return FilterReader(self.input.open(run), self.predicate)

    def _cardinality(self) -> int:
        return UNKNOWN

    def details(self) -> str:
        return _name(self.predicate)


class FilterReader(Reader):
    """A walk that leaves elements out."""

    def __init__(self, reader: Reader, predicate: Callable[..., Any]):
        self._reader = reader
        self._predicate = predicate

    def take(self, count: int) -> Block:
        while len(block := self._reader.take(count)):
            rows = block.rows()
            kept = [index for index, row in enumerate(rows) if self._is_kept(row)]
            if kept:
                return Held([own(rows[index]) for index in kept])  # not the others as well
        return Held(())

    def _is_kept(self, element: Any) -> bool:
        answer = np.asarray(call(self._predicate, element, "filter()"))
        if answer.dtype != bool or answer.size != 1:
            raise TypeError(
                f"{_name(self._predicate)}, the function of filter(), must return one bool for an "
                f"element; got {answer!r}."
            )
        return bool(answer)

    def close(self) -> None:
        self._reader.close()


@dataclasses.dataclass(frozen=True, eq=False)
class Interleave(OneInput):
    """The elements of the data sets that a function makes of each element, taking turns.

    With a `cycle_length` of 1, one after the other: `flat_map`.
    """

    fn: Callable[..., Any]
    cycle_length: int
    block_length: int
    operation: str
    drawn: int = dataclasses.field(default_factory=draw)
    label: ClassVar[str] = "InterleaveDataset"
    runs_user_code: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        return Pulled(self._blocks(self.input.open(run), run))

    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        slots: list[Reader | None] = [None] * self.cycle_length
        chunks = [1] * self.cycle_length
        opened, slot, taken = 0, 0, 0
        more = True
        try:
            while more or any(slots):
                current = slots[slot]
                if current is None and more:
                    block = reader.take(1)
                    more = len(block) > 0
                    if more:
                        node = self.data_set_of(block.rows()[0])
                        current = slots[slot] = node.open(self._inner_run(run, node, opened))
                        chunks[slot] = chunk_of(node)
                        opened += 1
                if current is not None:
                    alone = self.cycle_length == 1
                    block = current.take(chunks[slot] if alone else self.block_length - taken)
                    taken += len(block)
                    if len(block):
                        yield block
                    else:
                        current.close()
                        slots[slot] = None
                        taken = self.block_length
                else:
                    taken = self.block_length
                if taken >= self.block_length and (self.cycle_length > 1 or slots[0] is None):
                    slot, taken = (slot + 1) % self.cycle_length, 0
        finally:
            reader.close()
            for each in slots:
                if each is not None:
                    each.close()

    @property
    def draws(self) -> bool:
        return True

    def _inner_run(self, run: Run, node: Node, number: int) -> Run:
        """The walk over the data set of one element: its shuffles must not draw anew each time."""
        seed = run.seed_of(self.drawn)
        seeds = {
            each.drawn: derived(seed, number, index)
            for index, each in enumerate(drawing_nodes(node))
        }
        return run.in_epoch(number).with_seeds(seeds).anew()

    def data_set_of(self, element: Any) -> Node:
        made = call(self.fn, element, self.operation)
        node = getattr(made, "_data_set_node", None)
        if node is None:
            raise TypeError(
                f"{_name(self.fn)}, the function of {self.operation}, must return a data set for "
                f"each element (rx.data.Dataset); got {made!r}."
            )
        return node

    def first_made(self) -> Node | None:
        """The data set of the first element, to see what they are like."""
        elements = first_elements(self.input, 1)
        return self.data_set_of(elements[0]) if elements else None

    def _cardinality(self) -> int:
        return UNKNOWN

    def _spec(self) -> Any:
        made = self.first_made()
        return observed_spec(self) if made is None else made.spec

    def settings(self) -> str:
        return f"{self.cycle_length} {self.block_length}"

    def details(self) -> str:
        cycle = f", {self.cycle_length} at a time" if self.cycle_length > 1 else ""
        return _name(self.fn) + cycle
