"""Per-replica values as one array over a program's devices."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _jax_internals
from replicax._src._arrays import as_array
from replicax._src._planned_arrays import PlannedArray
from replicax._src.devices import ReplicaMesh
from replicax._src.functions._retry import NotOneProgram, Uneven, UnevenShapes
from replicax._src.values import (
    DistributedValues,
    keep_array,
    kept_array,
    local_count,
    shapes_everywhere,
    storage_of,
)

Shape: TypeAlias = tuple[int, ...]


def laid_out_over(mesh: ReplicaMesh, value: DistributedValues) -> jax.Array:
    """Returns the components of `value` as one array over `mesh`; it is kept with the value.

    Raises:
      Uneven: the components differ in shape or dtype, or are no arrays.
    """
    kept = kept_array(value)
    if kept is not None and kept[0] is mesh:
        return kept[1]
    buffers = storage_of(value)
    if buffers is not None and buffers.mesh is mesh:
        return buffers.assembled
    shape, dtype, is_weak = look_of(value)
    if local_count(value) != len(mesh.devices):
        raise other_replicas("a value", local_count(value), mesh)
    with _jax_internals.outside_of_traces():
        parts = [as_array(part, dtype) for part in value.values]
        array = mesh.assemble([mesh.at_home(part, i) for i, part in enumerate(parts)])
    assert array.shape == shape
    if not any(isinstance(part, np.ndarray) for part in value.values):  # those can be changed
        keep_array(value, mesh, array, is_weak)
    return array


def padded_over(mesh: ReplicaMesh, value: DistributedValues, shape: Shape, dtype: Any) -> jax.Array:
    """Returns the components of `value`, padded with zeros to one shape, as one array."""
    if local_count(value) != len(mesh.devices):
        raise other_replicas("an argument", local_count(value), mesh)
    parts: list[jax.Array] = []
    for index, part in enumerate(value.values):
        if np.shape(part) != shape:  # by NumPy, which has nothing to compile for each shape
            filled = np.zeros(shape, dtype)
            if not isinstance(part, PlannedArray):  # of which the shape is enough
                filled[tuple(map(slice, np.shape(part)))] = part
            parts.append(_jax_internals.put_on_one(filled, mesh.devices[index]))
        else:
            parts.append(mesh.at_home(as_array(part, dtype), index))
    return mesh.assemble(parts)


@functools.lru_cache(maxsize=256)
def numbers_over(mesh: ReplicaMesh, numbers: tuple[int, ...]) -> jax.Array:
    """Returns a number for each replica of this process, as one array over `mesh`."""
    with _jax_internals.outside_of_traces():
        parts = [as_array(np.int32(number)) for number in numbers]
        return mesh.assemble([mesh.at_home(part, index) for index, part in enumerate(parts)])


def uneven_look_of(value: DistributedValues) -> tuple[list[Shape], Any, bool]:
    """Returns the shapes of the components, the dtype that they share, and whether it is weak.

    The shapes are those on all workers, where they are known.

    Raises:
      Uneven: they cannot be padded to one shape.
    """
    parts = value.values
    shapes = shapes_everywhere(value) or [tuple(np.shape(part)) for part in parts]
    if len(set(shapes)) == 1 or len({len(shape) for shape in shapes}) > 1:
        look_of(value)  # says why
        raise UnevenShapes(f"the replicas have different shapes: {shapes}")
    if 0 in map(max, *shapes):
        raise Uneven("an argument has no items")
    dtypes = {(getattr(part, "dtype", None), getattr(part, "weak_type", False)) for part in parts}
    dtype, is_weak = dtypes.pop()
    if dtypes or dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended):
        raise Uneven("the replicas have different dtypes and shapes, or random keys")
    if np.dtype(dtype).kind in "OSU":
        raise Uneven("a component is text, which compiled programs do not take")
    return list(shapes), jax.dtypes.canonicalize_dtype(dtype), is_weak


def other_replicas(what: str, count: int, mesh: ReplicaMesh) -> NotOneProgram:
    return NotOneProgram(
        f"{what} is for {count} replicas, and another strategy has {len(mesh.devices)}"
    )


def look_of(value: DistributedValues) -> tuple[tuple[int, ...], Any, bool]:
    """Returns the shape and dtype that all components share, and whether the dtype is weak.

    Raises:
      Uneven: they do not share them.
    """
    if getattr(value, "_is_uneven", False):
        shapes = [tuple(np.shape(part)) for part in value.values]
        here = ", ".join(map(str, shapes)) + (
            " here, and others on other workers" if len(set(shapes)) == 1 else ""
        )
        raise UnevenShapes(f"the replicas have different shapes: {here}")
    buffers = storage_of(value)
    if buffers is not None:
        array = buffers.assembled
        return buffers.shape, array.dtype, getattr(array, "weak_type", False)
    kept = kept_array(value)
    if kept is not None:
        _, array, is_weak = kept
        return array.shape, array.dtype, is_weak
    found: tuple[Any, Any, bool] | None = None
    for part in value.values:
        if isinstance(part, jax.Array):
            here = (part.shape, part.dtype, getattr(part, "weak_type", False))
        elif isinstance(part, np.ndarray | np.generic | bool | int | float | complex):
            array = np.asarray(part)
            if array.dtype.kind in "OSU":
                raise Uneven("a component is text, which compiled programs do not take")
            is_weak = isinstance(part, int | float | complex) and not isinstance(
                part, np.generic | bool
            )
            here = (array.shape, jax.dtypes.canonicalize_dtype(array.dtype), is_weak)
        else:
            raise Uneven(f"a component is a {type(part).__name__}, which is no array")
        if found is not None and here[1:] != found[1:]:
            raise Uneven(f"the replicas have different dtypes: {found[1]} and {here[1]}")
        if found is not None and here != found:
            raise UnevenShapes(f"the replicas have different shapes: {found[0]} and {here[0]}")
        found = here
    assert found is not None
    return found
