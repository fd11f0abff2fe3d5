"""The arguments of a compiled function: which are arrays, which are constants, what they look like.

Arrays and per-replica values are inputs of the program: it is traced for their shapes. Everything
else (numbers, strings, objects) is a constant: another value is another program.
"""

from __future__ import annotations

import copy
import enum
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, final

import jax
import numpy as np

from replicax._src._arrays import as_array
from replicax._src._jax_internals import ConcreteArray
from replicax._src._typing import PyTree, Tracer
from replicax._src.devices import ReplicaMesh, put
from replicax._src.functions._captured import (
    Shape,
    laid_out_over,
    look_of,
    numbers_over,
    other_replicas,
    padded_over,
    uneven_look_of,
)
from replicax._src.functions._keys import constant_key, plain_key
from replicax._src.functions._place import Place
from replicax._src.functions._retry import Uneven, UnevenShapes
from replicax._src.functions._structure import flatten, flatten_call
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    TracedBuffers,
    component,
    is_distributed_value,
    local_count,
    value_of_buffers,
)
from replicax._src.variable import Variable


@final
class Kind(enum.Enum):
    """What a leaf of the arguments or results of a program is."""

    ARRAY = "array"
    PER_REPLICA = "per replica"
    MIRRORED = "mirrored"
    CONSTANT = "constant"
    """The same at every call."""
    EMPTY = "empty"
    """Without items, which programs for several devices cannot give."""

    __hash__ = object.__hash__  # that of enumerations is slow, and keys of programs have many

    @staticmethod
    def of(value: DistributedValues) -> Kind:
        """Returns that of a value with a component for each replica."""
        return Kind.MIRRORED if isinstance(value, Mirrored) else Kind.PER_REPLICA


class Look(NamedTuple):
    """What an input looks like.

    Replicas may have different shapes: `shapes` are these, and `shape` holds the largest sizes.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: Any
    count: int = 1
    weak_type: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        shapes = " or ".join(_sizes(shape) for shape in self.shapes or [self.shape])
        text = f"{self.dtype}{shapes}"
        return text if self.kind is Kind.ARRAY else f"{text} ({self.kind.value})"


class Arguments:
    """The arguments of one call, taken apart."""

    __slots__ = (
        "_rebuild",
        "_shares",
        "inputs",
        "is_numbered",
        "key",
        "leaves",
        "looks",
        "replica",
        "structure",
        "variants",
        "which",
    )

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        """
        Raises:
          Uneven: the components of a per-replica value cannot be one array.
        """
        leaves, self._rebuild, self.structure = flatten_call((args, kwargs))
        self.leaves = leaves
        self.inputs: list[Any] = []  # the values that become inputs, in order
        self.looks: list[Any] = []  # for every leaf: a Look, or the constant
        self._shares: list[list[Shape]] | None = None  # of inputs with several shapes, by replica
        for leaf in leaves:
            self.looks.append(self._look(leaf))
        self.key: Hashable = (self.structure, tuple(self.looks))
        # The distinct shapes of those inputs on a replica, and which of them each replica has.
        self.variants: tuple[tuple[Shape, ...], ...] = ()
        self.which: Sequence[int] = ()
        self.is_numbered = False  # there is a variant for each replica
        self.replica: int | None = None  # that these are for alone
        if self._shares is not None:
            by_replica = _by_replica(self._shares)
            self.variants = tuple(sorted(set(by_replica), reverse=True))
            self.which = [self.variants.index(each) for each in by_replica]
            self.key = (self.key, self.variants)

    @property
    def have_empty(self) -> bool:
        """Whether an array has no items."""
        return any(0 in look.shape for look in self.looks if isinstance(look, Look))

    def _look(self, leaf: object) -> Any:
        if type(leaf) is ConcreteArray:
            self.inputs.append(leaf)
            return Look(Kind.ARRAY, leaf.shape, leaf.dtype, 1, leaf.weak_type)
        if is_distributed_value(leaf):
            self.inputs.append(leaf)
            kind = Kind.of(leaf)
            try:
                shape, dtype, is_weak = look_of(leaf)
            except UnevenShapes:
                shares, dtype, is_weak = uneven_look_of(leaf)
                self._shares = [*(self._shares or ()), shares]
                shape = tuple(map(max, *shares))
                shapes = tuple(sorted(set(shares), reverse=True))
                return Look(kind, shape, dtype, local_count(leaf), is_weak, shapes)
            return Look(kind, shape, dtype, local_count(leaf), is_weak)
        if isinstance(leaf, Tracer):
            raise RuntimeError(
                "An argument of an rx.function is a value of a function that was traced before and "
                "has ended: it was kept in a global, a list or an attribute while rx.function or "
                "jax.jit traced it. Return such values from the function instead."
            )
        if isinstance(leaf, jax.Array):
            self.inputs.append(leaf)
            weak = getattr(leaf, "weak_type", False)  # random keys have no such thing
            return Look(Kind.ARRAY, leaf.shape, leaf.dtype, weak_type=weak)
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU":
            raise Uneven("an argument is text, which compiled programs do not take")
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != object:
            self.inputs.append(leaf)
            return Look(Kind.ARRAY, leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
        return constant_key(leaf)

    def said_shapes(self) -> str:
        """Returns the shapes that replicas have, for a message."""
        return "; ".join(", ".join(map(str, shapes)) for shapes in self._shares or ())

    def of_variant(self, number: int) -> Self:
        """These arguments with the shapes that they have on some replicas, to trace with."""
        variant = self._reshaped(self.variants[number], lambda look: bool(look.shapes))
        variant.replica = number if self.is_numbered else None
        return variant

    def for_each_replica(self, count: int) -> Self:
        """These arguments with a variant for each of so many replicas."""
        numbered = copy.copy(self)
        numbered.is_numbered = True
        numbered.variants = (
            ((),) * count if self._shares is None else tuple(_by_replica(self._shares))
        )
        numbered.which = range(len(numbered.variants))
        return numbered

    def which_here(self, mesh: ReplicaMesh) -> Sequence[int]:
        """Returns the variants of this process's replicas."""
        return self.which[mesh.first : mesh.first + len(mesh.devices)]

    def of_first_replica(self, mesh: ReplicaMesh) -> list[Any]:
        """Returns what the first replica of this process has of the inputs of a variant."""
        parts = [
            component(value, 0) if isinstance(value, DistributedValues) else value
            for value in self.inputs
        ]
        return [*map(as_array, parts), as_array(np.int32(self.which_here(mesh)[0]))]

    def of_shapes(self, shapes: Iterable[Sequence[Any]]) -> Self:
        """These arguments with other shapes of the inputs, to trace with; they may be symbolic."""
        return self._reshaped(shapes, lambda look: True)

    def _reshaped(self, shapes: Iterable[Sequence[Any]], which: Callable[[Look], bool]) -> Self:
        other = copy.copy(self)
        given = iter(shapes)
        other.looks = [
            look._replace(shape=tuple(next(given)), shapes=())
            if isinstance(look, Look) and which(look)
            else look
            for look in self.looks
        ]
        return other

    def rebuilt(self, tracers: Sequence[Any], mesh: ReplicaMesh | None) -> tuple[Any, Any]:
        """`(args, kwargs)` with tracers in the place of the inputs."""
        given = iter(tracers)
        new = [
            _traced(look, given, mesh) if isinstance(look, Look) else leaf
            for leaf, look in zip(self.leaves, self.looks, strict=True)
        ]
        return self._rebuild(new)

    def input_looks(self, mesh: ReplicaMesh | None) -> list[Look]:
        """Returns what the inputs of a program look like; for one device, each component is one."""
        looks = [look for look in self.looks if isinstance(look, Look)]
        if self.variants:
            return [*looks, Look(Kind.PER_REPLICA, (), np.dtype(np.int32), len(self.which))]
        if mesh is not None:
            return looks
        return [look for look in looks for _ in range(look.count)]

    def laid_out(self, place: Place) -> list[Any]:
        """Returns the inputs as a compiled program takes them."""
        if self.variants:
            assert place.mesh is not None
            looks = [look for look in self.looks if isinstance(look, Look)]
            arrays = [
                padded_over(place.mesh, value, look.shape, look.dtype)
                if look.shapes
                else lay_out(value, place)
                for value, look in zip(self.inputs, looks, strict=True)
            ]
            return [*arrays, numbers_over(place.mesh, tuple(self.which_here(place.mesh)))]
        if place.mesh is not None:
            return [lay_out(value, place) for value in self.inputs]
        parts: list[Any] = []
        for value in self.inputs:
            if isinstance(value, DistributedValues):
                parts += [lay_out(part, place) for part in value.values]
            else:
                parts.append(lay_out(value, place))
        return parts


def _by_replica(shares: Sequence[Sequence[Shape]]) -> list[tuple[Shape, ...]]:
    """For each replica its shapes of all inputs that have several."""
    if len({len(each) for each in shares}) > 1:
        raise Uneven("the replicas have different shapes, and are of different strategies")
    return list(zip(*shares, strict=True))


def _sizes(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def _traced(look: Look, given: Iterator[Any], mesh: ReplicaMesh | None) -> Any:
    tracer = next(given)
    if look.kind is Kind.ARRAY:
        return tracer
    wrap = Mirrored if look.kind is Kind.MIRRORED else PerReplica
    if mesh is None:
        return wrap([tracer, *itertools.islice(given, look.count - 1)])
    if look.count != len(mesh.devices):
        if look.count == 1:  # of a strategy with one replica
            return wrap([tracer])
        raise other_replicas("an argument", look.count, mesh)
    return value_of_buffers(wrap, TracedBuffers(mesh, tracer, mirrored=wrap is Mirrored))


def lay_out(value: object, place: Place) -> Any:
    """Returns an input as the compiled program takes it, on the program's devices."""
    mesh = place.mesh
    if mesh is None:
        if not isinstance(value, jax.Array):
            return as_array(value)
        device = place.devices[0]
        elsewhere = value.sharding.num_devices > 1 or device not in value.sharding.device_set
        return put(value, device) if elsewhere else value
    if isinstance(value, DistributedValues):
        if local_count(value) > 1 or len(mesh.devices) == 1:
            return laid_out_over(mesh, value)
        value = component(value, 0)
    if not isinstance(value, jax.Array):
        value = np.array(value)  # the transfer may read it after the user has changed it
    elif value.sharding == mesh.replicated:
        return value
    return mesh.spread(value)


def is_stream(value: object) -> bool:
    """Returns whether a leaf of the arguments is to be iterated over: a data set, a generator."""
    if isinstance(value, str | bytes | range | np.ndarray | DistributedValues | Variable):
        return False
    if isinstance(value, jax.Array | frozenset | set | type):
        return False
    return isinstance(value, Iterator | Iterable) or hasattr(value, "get_next")


def objects_in(arguments: PyTree) -> list[Any]:
    """Returns the leaves of arguments that are neither numbers nor arrays, and may change."""
    values = (jax.Array, np.ndarray, DistributedValues, Variable)
    return [
        leaf
        for leaf in flatten(arguments)[0]
        if not isinstance(leaf, values) and plain_key(leaf) is None and not is_stream(leaf)
    ]
