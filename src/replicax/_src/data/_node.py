"""Nodes: the tree of operations that a data set is, and readers: one walk over its elements.

A node never changes and runs nothing. `open` starts a walk; a walk is read in blocks. What walks
share and what tells them apart is in `_run.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, ClassVar, Self, dataclass_transform, final

import numpy as np

from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block
from replicax._src.data._composed_blocks import concatenate
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    ElementSpec,
    Leaf,
    Structure,
    map_leaves,
)
from replicax._src.data._run import Run

INFINITE = -1
UNKNOWN = -2


class Reader:
    """One walk over the elements of a node."""

    def take(self, count: int) -> Block:
        """Returns the next elements: at least one and at most `count`; none after the end.

        `count` is at least one.
        """
        raise NotImplementedError

    def skip(self, count: int) -> int:
        """Goes past `count` elements without computing them; returns how many there were."""
        skipped = 0
        while skipped < count:
            taken = len(self.take(min(count - skipped, 4096)))
            if taken == 0:
                break
            skipped += taken
        return skipped

    def close(self) -> None:
        """Ends the walk early: open files and generators are closed."""


class ReaderOfOne(Reader):
    """A walk that reads from one other, and closes that."""

    def __init__(self, reader: Reader):
        self._reader = reader

    @override
    def close(self) -> None:
        self._reader.close()


def take_all(reader: Reader, count: int) -> Block:
    """Returns the next `count` elements; fewer only at the end."""
    if count == 0:  # readers are asked for at least one
        return EMPTY
    block = reader.take(count)
    missing = count - len(block)
    if missing == 0 or len(block) == 0:
        return block
    blocks = [block]
    while missing > 0:
        block = reader.take(missing)
        if len(block) == 0:
            break
        blocks.append(block)
        missing -= len(block)
    return concatenate(blocks)


_dataclasses: set[type] = set()
_becoming = threading.RLock()


def _become_dataclass(cls: type[Node]) -> None:
    with _becoming:
        for each in reversed(cls.__mro__):
            if issubclass(each, Node) and each is not Node and each not in _dataclasses:
                dataclasses.dataclass(frozen=True, eq=False)(each)
                _dataclasses.add(each)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """An operation, with the operations that it reads from in its fields.

    Its subclasses are frozen dataclasses without being told. They become that when the first of
    their objects is made: there are many, and a program uses few of them.
    """

    _label: ClassVar[str]
    runs_user_code: ClassVar[bool] = False  # the user's Python functions and iterators
    pulls_user_code: ClassVar[bool] = False  # to get elements, not only to compute them
    keeps_elements: ClassVar[bool] = False  # hands on the elements of its input, in some order
    reorders: ClassVar[bool] = False  # and changes nothing but their order
    passes_on: ClassVar[bool] = False  # hands on the elements of its input, in order
    stacks_elements: ClassVar[bool] = False  # makes one large element of several small ones

    def __init_subclass__(cls, label: str | None = None, **traits: bool) -> None:
        """Describes a subclass.

        Args:
          label: What TensorFlow calls the operation, if that is not the class's name + "Dataset".
          **traits: Which of the attributes above are true of it.
        """
        cls._label = label or f"{cls.__name__}Dataset"
        for name, value in traits.items():
            assert name in Node.__annotations__, name
            setattr(cls, name, value)

    def __new__(cls, *_: object, **__: object) -> Self:
        if cls not in _dataclasses:
            _become_dataclass(cls)
        return super().__new__(cls)

    @property
    def label(self) -> str:
        """What TensorFlow calls the operation, for printing."""
        return self._label

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads from."""
        found: list[Node] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                found += value
        return tuple(found)

    def with_inputs(self, inputs: Sequence[Node]) -> Self:
        """Returns the same operation on other nodes."""
        given = iter(inputs)
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Node):
                changed[field.name] = next(given)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                changed[field.name] = tuple(next(given) for _ in value)
        return dataclasses.replace(self, **changed) if changed else self

    @property
    def draws(self) -> bool:
        """Whether it uses a seed that it drew for itself, its attribute `drawn`."""
        return False

    def open(self, run: Run) -> Reader:
        """Starts a walk."""
        raise NotImplementedError

    @functools.cached_property
    def cardinality(self) -> int:
        """The number of elements, or INFINITE, or UNKNOWN."""
        return self._cardinality()

    @functools.cached_property
    def spec(self) -> Any:
        """What the elements look like: a structure of `TensorSpec`."""
        return self._spec()

    @property
    def spec_is_known(self) -> bool:
        """Whether `spec` is there without running anything."""
        return "spec" in self.__dict__

    def _cardinality(self) -> int:
        return UNKNOWN

    def _spec(self) -> Any:
        raise NotImplementedError

    def details(self) -> str:
        """Returns the arguments, for printing."""
        return ""

    def settings(self) -> str:
        """Returns the arguments that decide which elements there are, and are no functions."""
        return "" if self.runs_user_code else self.details()


class OneInput(Node):
    """An operation on one node."""

    input: Node

    @override
    def _spec(self) -> Any:
        return self.input.spec

    @override
    def _cardinality(self) -> int:
        return self.input.cardinality


class Seeded:
    """What is added to a node that draws random numbers, by a seed that may be the user's."""

    seed: int | None
    drawn: int  # the seed that it drew for itself

    @property
    def draws(self) -> bool:
        return self.seed is None

    def random(self, run: Run, same_each_time: bool) -> np.random.Generator:
        """Returns the generator of one walk."""
        seed = run.seed_of(self.drawn) if self.seed is None else self.seed
        return run.random(seed, self.drawn, same_each_time)


@final
class Slices(Reader):
    """A walk over a block that is there from the start."""

    def __init__(self, block: Block):
        self._block = block
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._block) - self._position

    @override
    def take(self, count: int) -> Block:
        block, start = self._block, self._position
        if start == 0 and len(block) <= count:
            self._position = len(block)
            return block
        self._position = min(start + count, len(block))
        return block.select(slice(start, self._position))

    @override
    def skip(self, count: int) -> int:
        start = self._position
        self._position = min(start + count, len(self._block))
        return self._position - start


class Pulled(Reader):
    """A walk over blocks of any size from a generator, which may read from another walk."""

    def __init__(self, blocks: Generator[Block], reader: Reader | None = None):
        self._blocks = blocks
        self._reader = reader
        self._rest = Slices(EMPTY)

    @override
    def take(self, count: int) -> Block:
        block = self._rest.take(count)
        while len(block) == 0 and count:
            try:
                self._rest = Slices(next(self._blocks))
            except StopIteration:
                self.close()
                return EMPTY
            except BaseException:
                self.close()
                raise
            block = self._rest.take(count)
        return block

    @override
    def close(self) -> None:
        self._blocks.close()
        if self._reader is not None:
            self._reader.close()
        self._rest = Slices(EMPTY)


class Generated(OneInput):
    """An operation whose blocks a generator makes of those of its input."""

    @override
    def open(self, run: Run) -> Reader:
        reader = self.input.open(run)
        return Pulled(self._blocks(reader, run), reader)

    @override
    def _cardinality(self) -> int:
        return UNKNOWN

    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        """Yields the blocks of one walk."""
        raise NotImplementedError


@final
class Peekable(ReaderOfOne):
    """A walk whose next element can be seen before it is taken."""

    def __init__(self, reader: Reader):
        super().__init__(reader)
        self._next: Block = EMPTY

    def peek(self) -> Block | None:
        """Returns the next element, or None at the end."""
        if len(self._next) == 0:
            self._next = self._reader.take(1)
        return self._next if len(self._next) else None

    @override
    def take(self, count: int) -> Block:
        if len(self._next) == 0 or count == 0:
            return self._reader.take(count) if count else EMPTY
        first, self._next = self._next, EMPTY
        return first

    @override
    def skip(self, count: int) -> int:
        first = min(len(self._next), count)
        if first:
            self._next = EMPTY
        return first + self._reader.skip(count - first)


def drawing_nodes(node: Node) -> list[Any]:
    """Returns the nodes that use a seed which they drew for themselves."""
    return [each for each in walk(node) if each.draws]


def chunk_of(node: Node) -> int:
    """Returns how many elements to take at a time.

    One, where the user's functions run: they are called when their element is asked for. Many,
    where elements are small.
    """
    if any(each.runs_user_code or each.stacks_elements for each in walk(node)):
        return 1
    return 256


def walk(node: Node) -> Iterator[Node]:
    """Yields the node and everything it reads from, the node first."""
    yield node
    for each in node.inputs:
        yield from walk(each)


def rewritten(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Returns the tree with the nodes that `change` returns, where it does not return None."""
    new = change(node)
    if new is not None:
        return new
    inputs = [rewritten(each, change) for each in node.inputs]
    if all(a is b for a, b in zip(inputs, node.inputs)):
        return node
    return node.with_inputs(inputs)


# ------------------------------------------------------------------ specs


def spec_of(element: Element) -> Any:
    """Returns the spec of one element."""

    def spec_of_leaf(leaf: Leaf) -> Any:
        if isinstance(leaf, DatasetBase):
            return DatasetSpec(leaf.element_spec)
        if isinstance(leaf, bytes):
            return TensorSpec.on_host((), object)
        return TensorSpec.on_host(leaf.shape, leaf.dtype)

    return map_leaves(spec_of_leaf, element)


@final
class DatasetSpec:
    """The spec of a leaf that is itself a data set, such as a window."""

    def __init__(self, element_spec: ElementSpec):
        self.element_spec = element_spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and self.element_spec == other.element_spec

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r})"


def merged_specs(one: ElementSpec, other: ElementSpec) -> Any:
    """Returns the narrowest spec that both fit; None if there is none."""
    structure = Structure(one)
    second = structure.leaves_like(other)
    if second is None:
        return None
    merged: list[Any] = []
    for a, b in zip(structure.leaves(one), second):
        if isinstance(a, DatasetSpec) or isinstance(b, DatasetSpec):
            if a != b:
                return None
            merged.append(a)
            continue
        if a.dtype != b.dtype:
            return None
        shape = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape))
        merged.append(TensorSpec.on_host(shape, a.dtype))
    return structure.build(merged)


def batched_spec(spec: ElementSpec, size: int | None) -> Any:
    """Returns the spec of a batch of `size` elements; None for any number."""

    def batched(leaf: TensorSpec | DatasetSpec) -> Any:
        if isinstance(leaf, DatasetSpec):
            return TensorSpec.on_host((size,), object)
        shape = None if leaf.shape is None else (size, *leaf.shape)
        return TensorSpec.on_host(shape, leaf.dtype)

    return map_leaves(batched, spec)


def first_elements(node: Node, count: int = 2) -> list[Any]:
    """Returns some elements, to see what they look like."""

    def in_order(each: Node) -> Node | None:
        return rewritten(each.inputs[0], in_order) if each.reorders else None

    # To fill the buffer of a shuffle would be a waste.
    reader = rewritten(node, in_order).open(Run(is_preview=True))
    try:
        return take_all(reader, count).rows()
    finally:
        reader.close()


@final
class NoElements(ValueError):
    """What elements look like was to be seen from the first, and there is none."""


def observed_spec(node: Node) -> Any:
    """Returns the spec that the first elements show, where a user's function decides it."""
    elements = first_elements(node)
    if not elements:
        raise NoElements(
            "The data set has no elements, so that nothing is known about what they look like: "
            f"{node.label}. Give from_generator an `output_signature`, or check the data."
        )
    spec = spec_of(elements[0])
    for element in elements[1:]:
        spec = merged_specs(spec, spec_of(element))
        if spec is None:
            raise TypeError(
                "The elements of the data set do not look alike: the first is "
                f"{spec_of(elements[0])!r}, the next is {spec_of(element)!r}."
            )
    return spec
