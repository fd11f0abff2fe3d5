"""Copies that are not equal are found and named: every bit, dtype, replica and worker."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.processes import result, run_workers
from tests.under_test import STRATEGIES, Executor, cpus

# One of each kind and size.
DTYPES = ["float32", "bfloat16", "int8", "bool", "complex64", "float8_e4m3fn", "int4"]


def mirrored(count: int) -> Any:
    return rx.distribute.MirroredStrategy(cpus(count))


def set_copies(variable: Any, copies: list[Any]) -> None:
    """Gives each copy of a mirrored variable a value of its own, which no program may do."""
    mesh = variable._stored.mesh
    parts = [jax.device_put(copy, device) for copy, device in zip(copies, mesh.devices)]
    variable._set_whole(mesh.assemble(parts))


def finding(*objects: Any, **options: Any) -> str:
    with pytest.raises(rx.errors.ReplicaMismatchError) as caught:
        rx.debug.check_replicas(*objects, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["default", "mirrored_1", "mirrored_3", "central_storage_2"])
def test_equal_copies_on_every_strategy(name: str, executor: Executor):
    strategy = STRATEGIES[name]()
    with strategy.scope():
        w = rx.Variable([1.0, 2.0], aggregation=rx.VariableAggregation.SUM)
    executor.run(strategy, lambda: w.assign_add([1.0, 2.0]))
    found = rx.debug.check_replicas(w)
    assert (found.variables, found.workers, found.skipped) == (1, 1, 0)
    copies = isinstance(w, rx.distribute.DistributedValues) and len(w.values)
    assert found.replicas == (copies or 1)


def test_variables_are_found_in_models_optimizers_and_structures():
    strategy = mirrored(3)
    with strategy.scope():
        layers = [{"kernel": rx.Variable(np.ones((2, 3), np.float32))}, rx.Variable(jnp.zeros(3))]
        model = SimpleNamespace(layers=layers, name="model")
        optimizer = rx.Optimizer(optax.adam(1e-3))
        mean = rx.metrics.Mean()  # sync-on-read: not compared
        generator = rx.random.Generator.from_seed(1)
    optimizer.build([layers[0]["kernel"], layers[1]])
    found = rx.debug.check_replicas(model, optimizer, {"mean": mean})
    assert found.variables == 2 + len(optimizer.variables)
    assert (found.replicas, found.skipped) == (3, 2)
    rx.debug.check_replicas(rx.train.Checkpoint(model=model), generator)
    moment = optimizer.variables[-1]
    set_copies(moment, [np.full(moment.shape, n, moment.dtype) for n in (0, 1, 0)])
    assert repr(moment.name) in finding(model, optimizer)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_of_one_element(dtype: str):
    with mirrored(2).scope():
        v = rx.Variable(jnp.zeros((2, 3), dtype), name="v")
    equal = np.asarray(v.read_value())
    other = equal.copy()
    other[1, 2] = 1
    set_copies(v, [equal, other])
    text = finding(v)
    assert "Variable 'v:0'" in text and "replica 1 (CPU:1): 1 of 6 elements differ" in text
    assert "first at [1, 2]" in text and f"{other[1, 2]!s} instead of {equal[1, 2]!s}" in text
    set_copies(v, [other, other])
    rx.debug.check_replicas(v)


def test_bits_count_and_not_numbers():
    with mirrored(2).scope():
        v = rx.Variable(np.zeros(4, np.float32))
    nans = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    set_copies(v, [nans, nans])
    rx.debug.check_replicas(v)
    others = nans.copy()
    others.view(np.uint32)[1] = 0x7FC00002
    set_copies(v, [nans, others])
    assert "nan (0x7fc00002) instead of nan (0x7fc00001)" in finding(v)
    # All signs at once: what cancels out in a sum without mixing.
    set_copies(v, [np.zeros(4, np.float32), np.full(4, -0.0, np.float32)])
    assert "4 of 4 elements differ, first at [0]: -0.0 instead of 0.0" in finding(v)


def test_scalars_random_keys_and_empty_arrays():
    with mirrored(2).scope():
        step, empty = rx.Variable(1, name="step"), rx.Variable(np.zeros((0, 3), np.float32))
        key = rx.Variable(jax.random.key(1), name="key")
    assert rx.debug.check_replicas([step, empty, key]).variables == 3
    assert rx.debug.check_replicas(empty).variables == 1
    set_copies(step, [np.int32(1), np.int32(2)])
    assert "1 of 1 elements differ: 2 instead of 1" in finding(empty, step)
    keys = jax.random.split(jax.random.key(0), 2)
    set_copies(key, list(keys))
    assert "Variable 'key:0'" in finding(key)


def test_the_first_variable_and_the_odd_replica_are_named():
    strategy = mirrored(8)
    with strategy.scope():
        a, b, c = (rx.Variable(np.zeros(5, np.float32), name=name) for name in "abc")
    odd, equal = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    set_copies(b, [odd, *[equal] * 7])
    set_copies(c, [equal, *[odd] * 2, *[equal] * 5])
    text = finding({"a": a}, (b, c))
    assert "Variable 'b:0', float32[5], is not the same on all replicas" in text
    assert "Compared with replica 1 (CPU:1):\n  replica 0 (CPU:0): 4 of 5 elements" in text
    assert "Also unequal: c:0." in text and "restore a checkpoint" in text
    assert "replica 1 (CPU:1): 4 of 5" in finding(c) and "replica 2 (CPU:2): 4 of 5" in finding(c)


def test_a_copy_that_was_assigned_alone():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable([1.0, 1.0])
    v.values[1].assign([1.0, 3.0])
    assert "replica 1 (CPU:1): 1 of 2 elements differ, first at [1]: 3.0" in finding(v.values[0])


@settings(max_examples=15)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9), st.data())
def test_any_other_bits_are_found(words: list[int], data: st.DataObject):
    others = data.draw(st.lists(st.sampled_from([*words, 0, 2**31]), min_size=9, max_size=9))
    first, second = (np.resize(np.array(each, np.uint32), 9) for each in (words, others))
    with mirrored(2).scope():
        v = rx.Variable(first)
    set_copies(v, [first, second])
    if (first == second).all():
        rx.debug.check_replicas(v)
    else:
        differing = np.flatnonzero(first != second)
        where = f"{len(differing)} of 9 elements differ, first at [{differing[0]}]"
        assert where in finding(v)


def test_training_goes_on_in_place_after_a_check():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(np.zeros(3, np.float32), aggregation=rx.VariableAggregation.MEAN)

    @rx.function
    def step() -> None:
        strategy.run(lambda: w.assign_add(np.ones(3, np.float32)))

    for _ in range(2):
        step()
    assert w._stored.exclusive
    rx.debug.check_replicas(w)
    assert w._stored.exclusive  # nothing to copy for the next step
    step()
    np.testing.assert_array_equal(w.numpy(), [3, 3, 3])


def test_every_n_calls():
    with mirrored(2).scope():
        v = rx.Variable(0.0)
    check = rx.debug.check_replicas_every(3, v)
    assert [check() is None for _ in range(6)] == [True, True, False] * 2
    set_copies(v, [np.float32(0), np.float32(1)])
    assert check() is None and check() is None
    with pytest.raises(rx.errors.ReplicaMismatchError):
        check()
    with pytest.raises(ValueError, match=r"check_replicas_every\(100, model\)"):
        rx.debug.check_replicas_every(0, v)


def test_only_variables_of_one_strategy():
    one, two = mirrored(2), mirrored(3)
    with one.scope():
        a = rx.Variable(0.0)
    with two.scope():
        b = rx.Variable(0.0)
    assert rx.debug.check_replicas(a, b) == rx.debug.ReplicaCheck(2, 3, 1)
    set_copies(b, [np.float32(n) for n in range(3)])
    assert rx.debug.check_replicas(a, b, strategy=one) == rx.debug.ReplicaCheck(1, 2, 1, skipped=1)


def test_misuse():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0)
    with pytest.raises(ValueError, match="found no variables in what it was given: int"):
        rx.debug.check_replicas(3)
    with pytest.raises(rx.errors.WrongContextError, match="inside a replica function"):
        strategy.run(lambda: rx.debug.check_replicas(v) and None)
    with pytest.raises(rx.errors.WrongContextError, match=r"inside an rx\.function"):
        rx.function(lambda: rx.debug.check_replicas(v) and None)()


def _two_workers() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        a = rx.Variable(np.zeros((2, 3), np.float32), name="a")
        b = rx.Variable(np.zeros(4, np.float32), name="b")
        seen = rx.metrics.Mean()
    plain = rx.Variable(7, name="plain")
    found = rx.debug.check_replicas([a, b], seen, plain)
    result("equal", [found.variables, found.replicas, found.workers, found.skipped])
    result("plain", rx.debug.check_replicas(a, plain, plain=True).variables)
    result("alone", rx.debug.check_replicas(plain, plain=True, strategy=strategy).replicas)
    b.assign(np.arange(4, dtype=np.float32) * worker)  # what a program must not do
    plain.assign(7 + worker)
    for name, objects, options in [
        ("finding", [a, b], {}),
        ("finding of plain", [a, plain], {"plain": True}),
        ("different variables", [[a, b][worker]], {}),
    ]:
        try:
            rx.debug.check_replicas(*objects, **options)
        except rx.errors.ReplicaMismatchError as error:
            result(name, str(error))


def test_workers_that_differ():
    workers = run_workers("tests.divergence.test_check:_two_workers", 2, devices=2)
    for each in workers:
        assert each.results["equal"] == [2, 4, 2, 3]
        assert (each.results["plain"], each.results["alone"]) == (2, 4)
        text = each.results["finding"]
        assert "Variable 'b:0'" in text and "Compared with replica 0 (worker 0, CPU:0)" in text
        for replica, device in ((2, "CPU:0"), (3, "CPU:1")):
            place = f"replica {replica} (worker 1, {device})"
            assert f"{place}: 3 of 4 elements differ, first at [1]: 1.0 instead of 0.0" in text
        assert "1 of 1 elements differ: 8 instead of 7" in each.results["finding of plain"]
        assert "The workers do not do the same thing" in each.results["different variables"]
