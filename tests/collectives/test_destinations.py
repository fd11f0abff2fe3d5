"""Destinations: what stands for devices."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import replicax as rx
from replicax._src.collectives import destination_devices, mirror
from tests.replicas import mirrored


def test_names_lists_values_and_variables():
    cpus = jax.devices()
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0)
    assert destination_devices("CPU:3") == (cpus[3],)
    assert destination_devices(cpus[3]) == (cpus[3],)
    assert destination_devices(["CPU:3", "/cpu:1"]) == (cpus[3], cpus[1])
    assert destination_devices(("CPU:3", "/cpu:3")) == (cpus[3],)
    assert destination_devices(v) == (cpus[0], cpus[1])
    assert destination_devices(v.values[1]) == (cpus[1],)
    assert destination_devices(jax.device_put(jnp.ones(1), cpus[4])) == (cpus[4],)


@pytest.mark.parametrize("wrong", [None, [], {}, object()])
def test_what_stands_for_no_device(wrong: Any):
    with pytest.raises(TypeError, match="destinations"):
        destination_devices(wrong)


def test_mirror_gives_an_array_for_one_device():
    one = mirror(jnp.ones(2), (jax.devices()[3],))
    assert isinstance(one, jax.Array) and one.devices() == {jax.devices()[3]}
    two = mirror(jnp.ones(2), tuple(jax.devices()[3:5]))
    assert isinstance(two, rx.distribute.Mirrored)
