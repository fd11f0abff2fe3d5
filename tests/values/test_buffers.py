"""`ReplicaBuffers`: components and the assembled array, each made from the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax._src.devices import replica_mesh
from replicax._src.values import ReplicaBuffers

DTYPES = ["float32", "bfloat16", "float16", "int8", "int32", "complex64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3)])
def test_components_and_assembled_are_the_same_data(dtype: str, shape: tuple[int, ...]):
    mesh = replica_mesh(tuple(jax.devices()[:3]))
    parts = [jnp.full(shape, index, dtype) for index in range(3)]
    there_and_back = ReplicaBuffers(mesh, assembled=ReplicaBuffers(mesh, parts).assembled)
    for index, part in enumerate(there_and_back.components):
        assert part.dtype == jnp.dtype(dtype) and part.shape == shape
        assert part.devices() == {mesh.devices[index]}
        np.testing.assert_array_equal(part, parts[index])


def test_no_copy_is_made():
    mesh = replica_mesh(tuple(jax.devices()[:2]))
    parts = [jax.device_put(jnp.ones(5), device) for device in mesh.devices]
    again = ReplicaBuffers(mesh, assembled=ReplicaBuffers(mesh, parts).assembled).components
    for one, other in zip(parts, again, strict=True):
        assert one.unsafe_buffer_pointer() == other.unsafe_buffer_pointer()


def test_broadcast_and_change_of_one_component():
    mesh = replica_mesh(tuple(jax.devices()[:3]))
    buffers = ReplicaBuffers(mesh, assembled=mesh.spread(np.array([1.0, 2.0], np.float32)))
    changed = buffers.with_component(1, jnp.zeros(2))
    assert [part.tolist() for part in changed.components] == [[1, 2], [0, 0], [1, 2]]
    assert [part.tolist() for part in buffers.components] == [[1, 2]] * 3


def test_components_may_be_combined_across_devices():
    mesh = replica_mesh(tuple(jax.devices()[:2]))
    first, second = ReplicaBuffers(mesh, assembled=mesh.spread(jnp.ones(2))).components
    np.testing.assert_array_equal(first + second, [2, 2])
