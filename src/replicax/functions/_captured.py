"""Per-replica values as one array over a program's devices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from replicax import _jax_internals
from replicax._arrays import as_array
from replicax.devices import ReplicaMesh
from replicax.functions._retry import NotOneProgram, Uneven, UnevenShapes
from replicax.values import DistributedValues


def laid_out_over(mesh: ReplicaMesh, value: DistributedValues) -> jax.Array:
    """The components of `value` as one array over `mesh`; it is kept with the value.

    Raises:
      Uneven: the components differ in shape or dtype, or are no arrays.
    """
    kept = value._laid_out_over
    if kept is not None and kept[0] is mesh:
        return kept[1]
    buffers = value._buffers
    if buffers is not None and buffers.mesh is mesh:
        return buffers.assembled
    shape, dtype = shape_and_dtype(value)
    if value._count != len(mesh.devices):
        raise other_replicas("a value", value._count, mesh)
    with _jax_internals.outside_of_traces():
        parts = [as_array(part, dtype) for part in value.values]
        array = mesh.assemble([mesh.at_home(part, i) for i, part in enumerate(parts)])
    assert array.shape == shape
    if not any(isinstance(part, np.ndarray) for part in value.values):  # those can be changed
        value._laid_out_over = (mesh, array)
    return array


def other_replicas(what: str, count: int, mesh: ReplicaMesh) -> NotOneProgram:
    return NotOneProgram(
        f"{what} is for {count} replicas, and another strategy has {len(mesh.devices)}"
    )


def shape_and_dtype(value: DistributedValues) -> tuple[tuple[int, ...], Any]:
    """The shape and dtype that all components share; `Uneven` if they do not."""
    if getattr(value, "_is_uneven", False):
        shapes = [tuple(np.shape(part)) for part in value.values]
        here = ", ".join(map(str, shapes)) + (
            " here, and others on other workers" if len(set(shapes)) == 1 else ""
        )
        raise UnevenShapes(f"the replicas have different shapes: {here}")
    buffers = value._buffers
    if buffers is not None and value._values is None:
        return buffers.shape, buffers.assembled.dtype
    if value._laid_out_over is not None:
        array = value._laid_out_over[1]
        return array.shape, array.dtype
    found: tuple[Any, Any] | None = None
    for part in value.values:
        if isinstance(part, jax.Array):
            here = (part.shape, part.dtype)
        elif isinstance(part, np.ndarray | np.generic | bool | int | float | complex):
            array = np.asarray(part)
            if array.dtype.kind in "OSU":
                raise Uneven("a component is text, which compiled programs do not take")
            here = (array.shape, jax.dtypes.canonicalize_dtype(array.dtype))
        else:
            raise Uneven(f"a component is a {type(part).__name__}, which is no array")
        if found is not None and here != found:
            raise UnevenShapes(f"the replicas have different shapes: {found[0]} and {here[0]}")
        found = here
    assert found is not None
    return found
