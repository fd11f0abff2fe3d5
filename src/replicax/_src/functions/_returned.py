"""What a compiled function returns: what of it the program gives, and what becomes of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src import _jax_internals, _tree
from replicax._src._arrays import as_result, is_number
from replicax._src._typing import Device, PyTree, Tracer
from replicax._src.collectives import default_device
from replicax._src.context import EACH
from replicax._src.devices import ReplicaMesh, put
from replicax._src.functions._arguments import Kind
from replicax._src.functions._captured import Shape
from replicax._src.functions._keys import constant_key
from replicax._src.functions._many import stacked_nothing
from replicax._src.functions._structure import flatten
from replicax._src.functions._trace import ProgramTrace
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    component,
    is_distributed_value,
    is_leaf,
    per_replica_type,
    storage_of,
    value_of_buffers,
)
from replicax._src.variable import Variable, VariableAggregation, copies_differ


class Returned:
    """The structure that a function returned when it was traced.

    Attributes:
      arrays: its arrays, while it is traced.
      count: how many these are.
      kinds: what each of them is.
      weak: whether each has a weak dtype.
      shapes: of those whose shape differs from replica to replica, the shape in each variant.
    """

    def __init__(self, result: PyTree, trace: ProgramTrace):
        self._mesh = trace.mesh
        # On one device the components of a per-replica value are arrays like any others.
        leaves, self._rebuild, self._structure = flatten(
            result, _is_variable if self._mesh is None else is_leaf
        )
        self._leaves: list[tuple[Kind, Any]] = []
        self._assigned: list[int | None] = []  # the logical devices that results are kept on
        self.kinds: list[Kind] = []
        self.weak: list[bool] = []
        self.shapes: dict[int, list[Shape]] = {}
        self.arrays: list[Any] = []
        for leaf in leaves:
            kind, array = _as_output(leaf)
            if array is not None and not array.size and trace.has_no_empty_results:
                # Programs for several devices cannot give arrays without items either.
                kind, leaf, array = Kind.EMPTY, self._without_items(kind, array), None
            self._leaves.append((kind, leaf if array is None else None))
            if array is not None:
                self.arrays.append(array)
                self.kinds.append(kind)
                self.weak.append(_is_weak(array))
                self._assigned.append(trace.assigned(array))
        self.count = len(self.arrays)
        self._bare = all(kind is Kind.ARRAY for kind, _ in self._leaves)

    def is_like(self, other: Returned) -> bool:
        """Returns whether another trace gave the same, but for the shapes and values of arrays."""
        return (
            self._structure == other._structure
            and self._assigned == other._assigned
            and self.weak == other.weak
            and _keys(self._leaves) == _keys(other._leaves)
        )

    def again(self, results: Sequence[Any], count: int, which: Sequence[int]) -> Any:
        """Returns what the function returns at a call.

        Args:
          results: of the program.
          count: of the calls whose results are stacked, if they are.
          which: the variant that each replica took.
        """
        if self._bare and self._mesh is None:
            return self._rebuild(results)
        if self.shapes:
            results = list(results)
            for index, shapes in self.shapes.items():
                results[index] = self._cut(results[index], [shapes[number] for number in which])
        given = zip(results, self._assigned, strict=True)
        return self._rebuild(
            [
                leaf
                if kind is Kind.CONSTANT
                else stacked_nothing(leaf, count)
                if kind is Kind.EMPTY
                else self._as_result(kind, *next(given))
                for kind, leaf in self._leaves
            ]
        )

    def _as_result(self, kind: Kind, array: jax.Array, logical_device: int | None) -> Any:
        mesh = self._mesh
        if mesh is None or isinstance(array, DistributedValues):
            return array
        if kind is Kind.ARRAY:
            if logical_device is not None:
                return mesh.component(array, 0, logical_device)
            return component_of(array, mesh)
        wrap = Mirrored if kind is Kind.MIRRORED else per_replica_type(mesh.devices)
        if logical_device is None:
            return value_of_buffers(wrap, ReplicaBuffers(mesh, assembled=array))
        replicas = range(len(mesh.devices))
        parts = [mesh.component(array, replica, logical_device) for replica in replicas]
        return wrap([_jax_internals.uncommitted(part) for part in parts])

    def _cut(self, array: jax.Array, shapes: Sequence[Shape]) -> Any:
        """Returns a padded result with the shape that it has on each replica."""
        assert self._mesh is not None
        parts = [self._mesh.component(array, index) for index in range(len(shapes))]
        return per_replica_type(self._mesh.devices)(
            [
                _jax_internals.uncommitted(
                    part if part.shape == shape else part[tuple(map(slice, shape))]
                )
                for part, shape in zip(parts, shapes, strict=True)
            ]
        )

    def _without_items(self, kind: Kind, array: jax.Array) -> Any:
        assert self._mesh is not None
        with _jax_internals.outside_of_traces():
            zeros = jnp.zeros(array.shape, array.dtype)
            zeros = _jax_internals.weakened(zeros) if _is_weak(array) else zeros
            if kind is Kind.ARRAY:
                return zeros
            wrap = Mirrored if kind is Kind.MIRRORED else per_replica_type(self._mesh.devices)
            return wrap([put(zeros, device) for device in self._mesh.devices])


def _as_output(leaf: object) -> tuple[Kind, Any]:
    if is_distributed_value(leaf):
        return Kind.of(leaf), as_result(component(leaf, EACH))
    if isinstance(leaf, Variable):
        return _as_output(_snapshot(leaf))
    if isinstance(leaf, Tracer):
        return Kind.ARRAY, leaf
    if is_number(leaf):
        return Kind.ARRAY, as_result(leaf)
    return Kind.CONSTANT, None


def _snapshot(variable: Variable) -> Any:
    """Returns the value; of a sync-on-read variable without an aggregation, those of all copies."""
    if copies_differ(variable) and variable.aggregation is VariableAggregation.NONE:
        return value_of_buffers(PerReplica, storage_of(variable))
    return variable.read_value()


def with_snapshots(structure: PyTree) -> Any:
    """`structure` with the values of variables in their places."""
    return _tree.map_structure(
        lambda leaf: _snapshot(leaf) if isinstance(leaf, Variable) else leaf, structure, is_leaf
    )


def _keys(leaves: Sequence[tuple[Kind, Any]]) -> list[Any]:
    return [(kind, constant_key(leaf)) for kind, leaf in leaves]


def _is_weak(array: jax.Array) -> bool:
    return getattr(array, "weak_type", False)  # random keys have no such thing


def _is_variable(value: object) -> bool:
    return isinstance(value, Variable)


def component_of(array: jax.Array, mesh: ReplicaMesh, device: Device | None = None) -> jax.Array:
    """Returns a replicated result on one device: the given one, or where results are wanted."""
    wanted = device or default_device()
    is_there = wanted in mesh.devices
    part = mesh.component(array, mesh.devices.index(wanted) if is_there else 0)
    if is_there and mesh.logical_devices == 1:
        return _jax_internals.uncommitted(part)
    if device is None and part.sharding.num_devices > 1:
        return part
    return put(part, wanted)
