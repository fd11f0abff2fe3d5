"""Shares on devices: where they are, whose memory it is, and what 64 bits become."""

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import replicax as rx
from replicax._src.data.distributed import _placing
from tests.pipelines import POLICY, Calls, Dataset, elements, flat, shares, with_policy
from tests.replicas import mirrored, parts_of, several_replicas

ON_HOST = rx.distribute.InputOptions(experimental_fetch_to_device=False)


@pytest.fixture(autouse=True)
def nothing_was_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_placing, "_warned", set())


def one_value(strategy: Any, dataset: Any, options: Any = None) -> Any:
    return next(iter(strategy.experimental_distribute_dataset(dataset, options)))


@several_replicas
def test_every_replica_has_its_share_on_its_device(strategy: Any):
    replicas = strategy.num_replicas_in_sync
    for count in (2 * replicas, 2 * replicas - 1, 1):
        value = one_value(strategy, Dataset.range(count).batch(100))
        parts = strategy.experimental_local_results(value)
        devices = [next(iter(part.devices())) for part in parts]
        assert devices == list(strategy.extended._replica_devices)
        assert flat(shares(value)) == list(range(count))


def test_one_replica_gets_bare_arrays():
    for strategy in (rx.distribute.OneDeviceStrategy("CPU:3"), mirrored(1)):
        value = one_value(strategy, Dataset.range(4).batch(4))
        assert isinstance(value, jax.Array) and value.tolist() == [0, 1, 2, 3]
    there = one_value(rx.distribute.OneDeviceStrategy("CPU:3"), Dataset.range(4).batch(4))
    assert there.devices() == {jax.devices("cpu")[3]}
    assert one_value(mirrored(1), Dataset.range(3).batch(3), ON_HOST).tolist() == [0, 1, 2]


# ------------------------------------------------------------------ whose memory


def aligned_rows(count: int) -> np.ndarray:
    """Memory that a CPU device would take over as it is: 64 floats are 256 bytes."""
    raw = np.zeros(count * 64 * 4 + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + count * 256].view(np.float32).reshape(count, 64)


MADE = {
    "slices": lambda x: Dataset.from_tensor_slices(x).batch(8),
    "the whole": lambda x: Dataset.from_tensors(x).repeat(2),
    "a share": lambda x: Dataset.from_tensor_slices(x).batch(8).map(lambda b: b),
    "unbatched": lambda x: Dataset.from_tensors(x).unbatch().batch(8),
    "anew": lambda x: with_policy(Dataset.from_tensors(x).repeat(2), POLICY.OFF),
    "cached": lambda x: Dataset.from_tensors(x).cache().repeat(2),
    "an iterable": lambda x: Dataset.from_generator(lambda: iter([x, x])),
    "a function": lambda x: Dataset.from_tensors(x).repeat(2).map(lambda _: x),
    "vectorized": lambda x: Dataset.from_tensor_slices(x).map(abs, vectorized=True).batch(8),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("options", [None, ON_HOST], ids=["placed", "on host"])
def test_placed_arrays_are_never_the_users_memory(made: str, replicas: int, options: Any):
    x = aligned_rows(8)
    strategy = mirrored(replicas)
    values = list(strategy.experimental_distribute_dataset(MADE[made](x), options))
    x += 7  # after next()
    for value in values:
        for part in parts_of(strategy, value):
            assert not part.any()
    assert x.flags.writeable


@pytest.mark.parametrize("replicas", [1, 2])
def test_elements_from_functions_are_never_the_users_memory(replicas: int):
    x = aligned_rows(8)
    strategy = mirrored(replicas)
    generated = Dataset.from_generator(lambda: iter([x] * 4))
    for source in (Dataset.from_tensors(x).repeat(4), generated):
        values = list(strategy.distribute_datasets_from_function(lambda c, source=source: source))
        x[:] = 7
        assert not any(part.any() for value in values for part in parts_of(strategy, value))
        x[:] = 0


@pytest.mark.parametrize("policy", [POLICY.DATA, POLICY.OFF])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_generator_may_use_its_buffer_again(policy: Any, replicas: int):
    def generate() -> Iterator[Any]:
        buffer = aligned_rows(6)
        for number in range(5):
            buffer[:] = number
            yield buffer

    signature = rx.TensorSpec([6, 64], "float32")
    source = Dataset.from_generator(generate, output_signature=signature)
    strategy = mirrored(replicas)
    distributed = strategy.experimental_distribute_dataset(with_policy(source, policy))
    found = [np.concatenate(parts_of(strategy, value))[:, 0].tolist() for value in distributed]
    assert flat(found) == [number for number in range(5) for _ in range(6)]


def test_values_that_were_kept_do_not_change():
    strategy = mirrored(2)
    rows = Dataset.from_tensor_slices(np.arange(4096, dtype=np.float32).reshape(64, 64)).batch(8)
    values = list(strategy.experimental_distribute_dataset(rows.repeat(3)))
    wanted = np.arange(4096, dtype=np.float32).reshape(8, 8, 64)
    for step, value in enumerate(values):
        assert np.array_equal(np.concatenate(parts_of(strategy, value)), wanted[step % 8])


def test_what_stays_on_the_host_is_numpy():
    strategy = mirrored(2)
    x = np.arange(8)
    value = one_value(strategy, Dataset.from_tensor_slices((x, x * 1.0)).batch(4), ON_HOST)
    for part in value:
        assert isinstance(part, rx.distribute.PerReplica)
        assert all(isinstance(each, np.ndarray) for each in part.values)
    assert value[0].values[0].dtype == np.int64 and value[1].values[0].dtype == np.float64
    sums = strategy.run(lambda a, b: jnp.sum(jnp.asarray(a)), args=value)
    assert int(strategy.reduce("SUM", sums, axis=None)) == 6


def test_text_goes_through_run_beside_numbers():
    strategy = mirrored(2)
    rows = Dataset.from_tensor_slices((["a", "bb", "ccc", "d"], np.arange(4, dtype=np.int32)))
    seen: list[Any] = []

    def replica_fn(text: Any, number: Any) -> Any:
        seen.append((text.tolist(), [int(n) for n in number]))
        return jnp.sum(number)

    for value in strategy.experimental_distribute_dataset(rows.batch(4)):
        strategy.run(replica_fn, args=value)
    assert sorted(seen) == [([b"a", b"bb"], [0, 1]), ([b"ccc", b"d"], [2, 3])]


# ------------------------------------------------------------------ 64 bits


def test_narrowing_is_said_once():
    strategy = mirrored(2)
    rows = Dataset.from_tensor_slices({"x": np.arange(8), "y": np.arange(8.0)}).batch(4)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            values = list(strategy.experimental_distribute_dataset(rows))
    assert values[0]["x"].values[0].dtype == jnp.int32
    assert values[0]["y"].values[0].dtype == jnp.float32
    texts = sorted(str(each.message) for each in said)
    assert len(texts) == 2
    assert "element['x']" in texts[0] and "int64" in texts[0] and "jax_enable_x64" in texts[0]
    assert "element['y']" in texts[1] and "float64" in texts[1]


def test_numbers_of_range_and_32_bits_go_without_a_word():
    strategy = mirrored(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(strategy.experimental_distribute_dataset(Dataset.range(8).batch(4)))
        for dtype in (np.int32, np.float32, np.uint8, np.float16, bool, np.complex64, np.int8):
            rows = Dataset.from_tensor_slices(np.ones(8, dtype)).batch(4)
            value = one_value(strategy, rows)
            assert value.values[0].dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "number"), [(np.int64, 2**40), (np.int64, -(2**31) - 1), (np.uint64, 2**33)]
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_numbers_that_do_not_fit_are_refused(dtype: Any, number: int, replicas: int):
    rows = Dataset.from_tensor_slices({"id": np.array([1, number], dtype)}).batch(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(OverflowError, match=r"element\['id'\].*do not fit.*jax_enable_x64"):
            list(mirrored(replicas).experimental_distribute_dataset(rows))


def test_numbers_of_range_that_do_not_fit_are_refused_too():
    with pytest.raises(OverflowError, match="do not fit"):
        list(mirrored(2).experimental_distribute_dataset(Dataset.range(2**31, 2**31 + 4).batch(2)))


def test_the_largest_numbers_fit():
    numbers = np.array([2**31 - 1, -(2**31)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = one_value(mirrored(2), Dataset.from_tensor_slices(numbers).batch(2))
    assert flat(shares(value)) == numbers.tolist()


def test_64_bits_stay_where_jax_has_them():
    strategy = mirrored(2)
    rows = Dataset.from_tensor_slices((np.array([2**40, 1]), np.array([0.1, 0.2]))).batch(2)
    with jax.enable_x64(True):
        ints, floats = one_value(strategy, rows)
    assert flat(shares(ints)) == [2**40, 1] and flat(shares(floats)) == [0.1, 0.2]
    assert ints.values[0].dtype == jnp.int64 and floats.values[0].dtype == jnp.float64


@pytest.mark.parametrize("dtype", [">i4", ">f4", ">u2", ">i8"])
def test_arrays_of_the_other_byte_order(dtype: str):
    numbers = np.arange(8, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in (
            Dataset.from_tensor_slices(numbers).batch(4),
            Dataset.from_generator(lambda: iter([numbers[:4], numbers[4:]])),
            Dataset.from_tensor_slices(numbers).map(lambda x: x).batch(4),
        ):
            for strategy in (mirrored(1), mirrored(2)):
                values = [shares(v) for v in strategy.experimental_distribute_dataset(source)]
                assert flat(values) == list(range(8))
    assert elements(Dataset.from_tensor_slices(numbers).batch(8)) == [list(range(8))]


# ------------------------------------------------------------------ functions on the device


def scale(x: Any, y: Any) -> Any:
    return {"x": x * 2.0 + 1.0, "y": y + 10}


ROWS = (np.arange(46, dtype=np.float32).reshape(23, 2), np.arange(23, dtype=np.int32))


@pytest.mark.parametrize(
    "make",
    [
        lambda rows, **o: rows.map(scale, **o).batch(5),
        lambda rows, **o: rows.batch(5).map(scale, **o),
        lambda rows, **o: rows.shuffle(23, seed=1).batch(8, drop_remainder=True).map(scale, **o),
        lambda rows, **o: rows.map(scale, **o).batch(5).prefetch(2),
        lambda rows, **o: rows.batch(5).map(scale, **o).repeat(2),
        lambda rows, **o: rows.map(scale, **o).shuffle(9, seed=1).batch(5),
        lambda rows, **o: rows.map(scale, **o).map(lambda e: e["x"] * 3, **o).batch(4),
        lambda rows, **o: rows.map(scale, **o).batch(4).map(lambda e: (e["y"], e["x"]), **o),
        lambda rows, **o: with_policy(rows.map(scale, **o).batch(5).repeat(2), POLICY.OFF),
    ],
)
@pytest.mark.parametrize("strategy", ["one_device", "mirrored_2", "mirrored_3"], indirect=True)
def test_functions_on_the_device_give_what_functions_on_the_host_give(make: Any, strategy: Any):
    rows = Dataset.from_tensor_slices(ROWS)
    on_host = strategy.experimental_distribute_dataset(make(rows))
    on_device = strategy.experimental_distribute_dataset(make(rows, on_device=True))
    count = 0
    for one, other in zip(on_host, on_device, strict=True):
        count += 1
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert shares(a) == shares(b)
            assert isinstance(strategy.experimental_local_results(b)[0], jax.Array)
    assert count > 1
    assert on_device.element_spec == on_host.element_spec


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return list(value) if isinstance(value, tuple) else [value]


def test_functions_on_the_device_are_traced_and_not_called_for_each_batch():
    calls = Calls()

    def traced(x: Any) -> Any:
        calls.append(isinstance(x, Tracer))
        return x + 1

    strategy = mirrored(2)
    rows = Dataset.range(64).batch(8).map(traced, on_device=True)
    distributed = strategy.experimental_distribute_dataset(rows)
    assert flat([shares(value) for value in distributed]) == list(range(1, 65))
    assert all(calls) and len(calls) <= 6


def test_functions_on_the_device_work_from_functions_and_on_the_host_too():
    strategy = mirrored(2)
    made = strategy.distribute_datasets_from_function(
        lambda context: Dataset.range(8).batch(2).map(lambda x: x * 2, on_device=True)
    )
    assert [shares(value) for value in made] == [[[0, 2], [4, 6]], [[8, 10], [12, 14]]]
    assert elements(Dataset.range(3).map(lambda x: jnp.sin(x) * 0, on_device=True)) == [0, 0, 0]


def test_functions_on_the_device_without_fetching():
    rows = Dataset.range(8).batch(4).map(lambda x: x * 2, on_device=True)
    for strategy in (mirrored(1), mirrored(2)):
        values = strategy.experimental_distribute_dataset(rows, ON_HOST)
        assert flat([shares(value) for value in values]) == list(range(0, 16, 2))


def test_text_before_a_function_on_the_device_is_refused():
    strategy = mirrored(2)
    rows = Dataset.from_tensor_slices((["a", "b"], np.arange(2, dtype=np.float32))).batch(2)
    with pytest.raises(TypeError, match=r"on_device.*text|text.*on_device"):
        list(strategy.experimental_distribute_dataset(rows.map(lambda s, x: x, on_device=True)))


def test_errors_of_functions_on_the_device_have_the_users_frame():
    def broken(x: Any) -> Any:
        raise KeyError("in the function")

    strategy = mirrored(2)
    source = Dataset.range(4).batch(2).map(broken, on_device=True)
    with pytest.raises(KeyError, match="in the function") as caught:
        list(strategy.experimental_distribute_dataset(source))
    assert any(entry.name == "broken" for entry in caught.traceback)
