"""`PerReplica`: components, printing, and the refusal to be one array."""

import copy
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.values import ReplicaBuffers
from tests.replicas import mirrored

WRONG_USES: dict[str, Callable[[Any], Any]] = {
    "np.asarray": np.asarray,
    "np.sum": np.sum,
    "np.add": lambda value: np.add(value, 1),
    "jnp.sum": jnp.sum,
    "jnp.asarray": jnp.asarray,
    "jnp.add": lambda value: jnp.add(value, 1),
    "float": float,
    "int": int,
    "bool": bool,
    "len": len,
    "abs": abs,
    "round": round,
    "iteration": list,
    "value + 1": lambda value: value + 1,
    "1 + value": lambda value: 1 + value,
    "array + value": lambda value: jnp.ones(2) + value,
    "numpy + value": lambda value: np.ones(2) + value,
    "value @ array": lambda value: value @ jnp.ones(2),
    "value == 1": lambda value: value == 1,
    "value < 1": lambda value: value < 1,
    "-value": operator.neg,
    "value[0]": lambda value: value[0],
    "value in": lambda value: 1.0 in value,
}


@pytest.mark.parametrize("use", WRONG_USES)
@pytest.mark.parametrize("count", [1, 2])
def test_use_as_one_array_says_what_to_do(use: str, count: int):
    value = rx.distribute.PerReplica([jnp.ones(2)] * count)
    with pytest.raises(TypeError, match=r"strategy\.reduce"):
        WRONG_USES[use](value)


def test_array_methods_say_what_to_do():
    value = rx.distribute.PerReplica([jnp.ones(2)] * 2)
    with pytest.raises(AttributeError, match=r"strategy\.reduce"):
        value.sum()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        value.nonsense  # noqa: B018


def test_components_in_replica_order():
    value = rx.distribute.PerReplica(iter("abc"))
    assert value.values == ("a", "b", "c")


def test_printing():
    text = repr(rx.distribute.PerReplica([1, jnp.array(2.0)]))
    assert text == "PerReplica:{\n  0: 1,\n  1: Array(2., dtype=float32, weak_type=True)\n}"
    assert str(rx.distribute.PerReplica([1])) == "PerReplica:{\n  0: 1\n}"


@pytest.mark.parametrize("wrong", [3, None, "ab"])
def test_components_must_be_given_in_a_sequence(wrong: Any):
    with pytest.raises(TypeError):
        rx.distribute.PerReplica(wrong)


def test_no_components_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        rx.distribute.PerReplica([])


def test_it_is_a_pytree():
    value = rx.distribute.PerReplica([jnp.ones(2), jnp.zeros(3)])
    doubled = jax.tree.map(lambda x: 2 * x, value)
    assert isinstance(doubled, rx.distribute.PerReplica)
    assert [part.shape for part in doubled.values] == [(2,), (3,)]
    assert len(jax.tree.leaves({"a": value})) == 2


def test_it_goes_through_jit():
    value = rx.distribute.PerReplica([jnp.ones(2), jnp.zeros(3)])
    result = jax.jit(lambda x: jax.tree.map(lambda y: y + 1, x))(value)
    np.testing.assert_array_equal(result.values[1], np.ones(3))


def test_it_is_hashable_and_can_be_copied():
    value = rx.distribute.PerReplica([jnp.ones(2)])
    assert {value: 1}[value] == 1
    np.testing.assert_array_equal(copy.copy(value).values[0], np.ones(2))
    np.testing.assert_array_equal(copy.deepcopy(value).values[0], np.ones(2))


def test_components_of_an_assembled_value_are_its_shards():
    strategy = mirrored(3)
    mesh = strategy.extended._create_variable(lambda **_: None, initial_value=0.0)._buffers.mesh
    parts = [jax.device_put(jnp.full(2, float(i)), d) for i, d in enumerate(mesh.devices)]
    value = rx.distribute.PerReplica._from_buffers(
        ReplicaBuffers(mesh, assembled=mesh.assemble(parts))
    )
    for index, part in enumerate(value.values):
        np.testing.assert_array_equal(part, np.full(2, index))
        assert part.devices() == {mesh.devices[index]}
    # Components of different devices can be combined, as users do.
    np.testing.assert_array_equal(sum(value.values), np.full(2, 3.0))
