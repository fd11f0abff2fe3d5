"""The arguments of a compiled function: which are arrays, which are constants, what they look like.

Arrays and per-replica values are inputs of the program: it is traced for their shapes. Everything
else (numbers, strings, objects) is a constant: another value is another program.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from replicax import _tree
from replicax._arrays import as_array, strong
from replicax._typing import Tracer
from replicax.devices import ReplicaMesh
from replicax.functions._captured import laid_out_over, shape_and_dtype
from replicax.values import DistributedValues, Mirrored, PerReplica, TracedBuffers, is_leaf
from replicax.variables import Variable

_BY_VALUE = (int, float, complex, str, bytes, bool, type(None), enum.Enum, np.dtype, slice, range)


class ByIdentity:
    """An object as a part of a key: equal to itself while it lives."""

    __slots__ = ("__weakref__", "_hash", "_reference")

    def __init__(self, value: Any):
        self._hash = id(value)
        try:
            self._reference: Any = weakref.ref(value)
        except TypeError:  # without weak references; it stays alive as long as the key
            self._reference = lambda: value

    def when_gone(self, fn: Callable[..., Any], *args: Any) -> None:
        """Calls `fn(*args)` when the object is gone."""
        value = self._reference()
        if isinstance(self._reference, weakref.ref) and value is not None:
            weakref.finalize(value, fn, *args).atexit = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByIdentity):
            return False
        mine = self._reference()
        return mine is not None and mine is other._reference()

    def __repr__(self) -> str:
        value = self._reference()
        return _tree.describe(value) if value is not None else "an object that is gone"


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What an input looks like: `kind` is "array", "per replica" or "mirrored"."""

    kind: str
    shape: tuple[int, ...]
    dtype: Any
    count: int = 1

    def __repr__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return text if self.kind == "array" else f"{text} ({self.kind})"


class Arguments:
    """The arguments of one call, taken apart."""

    __slots__ = ("_rebuild", "inputs", "key", "leaves", "looks", "structure")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        """
        Raises:
          Uneven: a per-replica value has components of different shapes.
        """
        leaves, self._rebuild, self.structure = flatten((args, kwargs))
        self.leaves = leaves
        self.inputs: list[Any] = []  # the values that become inputs, in order
        self.looks: list[Any] = []  # for every leaf: a Look, or the constant
        for leaf in leaves:
            self.looks.append(self._look(leaf))
        self.key = (self.structure, tuple(self.looks))

    @property
    def have_empty(self) -> bool:
        """Whether an array has no items."""
        return any(0 in look.shape for look in self.looks if isinstance(look, Look))

    def _look(self, leaf: Any) -> Any:
        if isinstance(leaf, DistributedValues) and not leaf._passed_whole:
            shape, dtype = shape_and_dtype(leaf)
            self.inputs.append(leaf)
            kind = "mirrored" if isinstance(leaf, Mirrored) else "per replica"
            return Look(kind, shape, dtype, leaf._count)
        if isinstance(leaf, Tracer):
            raise RuntimeError(
                "An argument of an rx.function is a value of a function that was traced before and "
                "has ended: it was kept in a global, a list or an attribute while rx.function or "
                "jax.jit traced it. Return such values from the function instead."
            )
        if isinstance(leaf, jax.Array):
            self.inputs.append(leaf)
            return Look("array", leaf.shape, leaf.dtype)
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != object:
            self.inputs.append(leaf)
            return Look("array", leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
        return constant_key(leaf)

    def rebuilt(self, tracers: Sequence[Any], mesh: ReplicaMesh | None) -> tuple[Any, Any]:
        """`(args, kwargs)` with tracers in the place of the inputs."""
        given = iter(tracers)
        new = [
            _traced(look, given, mesh) if isinstance(look, Look) else leaf
            for leaf, look in zip(self.leaves, self.looks, strict=True)
        ]
        return self._rebuild(new)

    def input_looks(self, mesh: ReplicaMesh | None) -> list[Look]:
        """What the inputs of a program look like; for one device, every component is one."""
        looks = [look for look in self.looks if isinstance(look, Look)]
        if mesh is not None:
            return looks
        return [look for look in looks for _ in range(look.count)]

    def laid_out(self, mesh: ReplicaMesh | None) -> list[Any]:
        """The inputs as a compiled program takes them."""
        if mesh is not None:
            return [lay_out(value, mesh) for value in self.inputs]
        parts: list[Any] = []
        for value in self.inputs:
            if isinstance(value, DistributedValues):
                parts += [lay_out(part, None) for part in value.values]
            else:
                parts.append(lay_out(value, None))
        return parts


def _traced(look: Look, given: Iterator[Any], mesh: ReplicaMesh | None) -> Any:
    tracer = next(given)
    if look.kind == "array":
        return tracer
    wrap = Mirrored if look.kind == "mirrored" else PerReplica
    if mesh is None:
        return wrap([tracer, *itertools.islice(given, look.count - 1)])
    if look.count != mesh.size:
        raise ValueError(
            f"An argument of an rx.function is for {look.count} replica(s), but the function runs "
            f"{mesh.size}. Make it with the same strategy."
        )
    return wrap._from_buffers(TracedBuffers(mesh, tracer, mirrored=look.kind == "mirrored"))


def lay_out(value: Any, mesh: ReplicaMesh | None) -> Any:
    """An input as the compiled program takes it."""
    if mesh is not None and isinstance(value, DistributedValues):
        return laid_out_over(mesh, value)
    if isinstance(value, jax.Array):
        value = strong(value)
        if mesh is None or value.sharding == mesh.replicated:
            return value
    elif mesh is None:
        return as_array(value)
    else:
        value = np.array(value)  # the transfer may read it after the user has changed it
    return jax.device_put(value, mesh.replicated)


def constant_key(value: Any) -> Any:
    """What stands for a constant in the key of a program."""
    if isinstance(value, _BY_VALUE):
        if isinstance(value, float) and value != value:
            return (float, "nan")
        return (type(value), repr(value) if isinstance(value, float | slice) else value)
    if isinstance(value, type) or callable(value) or isinstance(value, Variable):
        return ByIdentity(value)
    if dataclasses.is_dataclass(value) or isinstance(value, frozenset):
        try:
            hash(value)
            return (type(value), value)
        except TypeError:
            pass
    return ByIdentity(value)


def is_stream(value: Any) -> bool:
    """Whether a leaf of the arguments is something to iterate over: a data set, a generator."""
    if isinstance(value, str | bytes | range | np.ndarray | DistributedValues | Variable):
        return False
    if isinstance(value, jax.Array | frozenset | set | type):
        return False
    return isinstance(value, Iterator | Iterable) or hasattr(value, "get_next")


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] = is_leaf
) -> tuple[list[Any], Callable[[Sequence[Any]], Any], Any]:
    """All leaves, a function that puts others in their places, and a key for the structure.

    JAX's own walk, which is fast, where it sees what ours does.
    """

    def stop(value: Any) -> bool:
        return is_leaf(value) or isinstance(value, Iterator)

    try:
        leaves, structure = jax.tree_util.tree_flatten(tree, is_leaf=stop)
    except (TypeError, ValueError):  # a dict whose keys do not sort
        leaves = None
    else:
        if not any(dataclasses.is_dataclass(leaf) for leaf in leaves):
            return leaves, structure.unflatten, structure
    leaves, rebuild = _tree.flatten(tree, is_leaf)
    return leaves, rebuild, _tree.describe(_tree.map_structure(lambda _: None, tree, is_leaf))
