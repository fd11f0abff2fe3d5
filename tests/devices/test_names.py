"""Device strings, in every spelling that TensorFlow takes."""

from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src.devices import canonical_name, resolve, resolve_all, short_name

FORMS = [
    "{kind}:{index}",
    "/{kind}:{index}",
    "/device:{kind}:{index}",
    "device:{kind}:{index}",
    "/job:localhost/device:{kind}:{index}",
    "/replica:0/task:0/device:{kind}:{index}",
    "/job:localhost/replica:0/task:0/device:{kind}:{index}",
    "/job:localhost/replica:0/task:0/{kind}:{index}",
]


@given(st.sampled_from(FORMS), st.integers(0, 7), st.randoms(use_true_random=False))
def test_every_spelling_in_any_case_is_the_same_device(form: str, index: int, random: Any):
    text = form.format(kind="cpu", index=index)
    mixed = "".join(random.choice([c.upper(), c.lower()]) for c in text)
    device = jax.devices("cpu")[index]
    assert resolve(mixed) == device
    assert resolve(f"  {mixed} ") == device
    assert resolve(canonical_name(resolve(mixed))) == device
    assert resolve(short_name(device)) == device


@given(st.text(max_size=12))
def test_any_text_is_a_device_or_a_clear_error(text: str):
    try:
        assert resolve(text) in jax.devices()
    except ValueError as error:
        assert isinstance(error, rx.errors.DeviceError)
        assert "Devices here: CPU:0" in str(error)


def test_the_index_may_be_left_out():
    assert resolve("CPU") == resolve("/cpu") == resolve("/device:CPU") == jax.devices("cpu")[0]


def test_names_that_are_handed_out():
    device = jax.devices("cpu")[3]
    assert short_name(device) == "CPU:3"
    assert canonical_name(device) == "/job:localhost/replica:0/task:0/device:CPU:3"


@pytest.mark.parametrize("name", ["CPU:8", "/cpu:99", "GPU:77", "TPU:0", "CPU:-1", "XPU:0", ""])
def test_unknown_devices_list_what_there_is(name: str):
    with pytest.raises(rx.errors.DeviceError, match=r"Devices here: CPU:0, CPU:1"):
        resolve(name)


@pytest.mark.parametrize("name", ["/task:1/device:CPU:0", "/replica:2/device:CPU:0"])
def test_devices_of_other_processes_are_refused(name: str):
    with pytest.raises(rx.errors.DeviceError, match="another process"):
        resolve(name)


@pytest.mark.parametrize("wrong", [0, 1.5, None, ["CPU:0"], b"CPU:0"])
def test_what_is_no_device_at_all(wrong: Any):
    with pytest.raises(TypeError, match="A device is a string"):
        resolve(wrong)


@pytest.mark.parametrize("devices", [["CPU:1", "/cpu:1"], ["CPU:0", "CPU:2", "/device:cpu:0"]])
def test_one_device_under_two_names(devices: list[str]):
    with pytest.raises(rx.errors.DeviceError, match="more than once"):
        resolve_all(devices)
    with pytest.raises(ValueError, match="more than once"):
        rx.distribute.MirroredStrategy(devices)


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_no_devices_means_all_of_the_best(nothing: Any):
    best = jax.devices() if jax.default_backend() != "cpu" else jax.devices("cpu")
    assert resolve_all(nothing) == tuple(best)


def test_device_objects_and_names_can_be_mixed():
    cpus = jax.devices("cpu")
    assert resolve_all([cpus[2], "CPU:1"]) == (cpus[2], cpus[1])
    assert resolve_all(iter(["CPU:1"])) == (cpus[1],)


def test_one_name_in_place_of_a_list():
    with pytest.raises(TypeError, match=r"Write devices=\['CPU:0'\]"):
        resolve_all("CPU:0")
