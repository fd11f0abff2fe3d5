"""Cross-device ops: the built-in ones agree, and a user's own is really used, everywhere."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, context, mirrored, on_devices, parts_of

ON_READ = rx.VariableSynchronization.ON_READ

BUILT_IN = [
    rx.distribute.NcclAllReduce(),
    rx.distribute.NcclAllReduce(num_packs=0),
    rx.distribute.HierarchicalCopyAllReduce(num_packs=2),
    rx.distribute.ReductionToOneDevice(),
    rx.distribute.ReductionToOneDevice(reduce_to_device="CPU:5"),
    rx.distribute.ReductionToOneDevice(accumulation_fn=lambda parts: sum(parts)),
]


@pytest.mark.parametrize("ops", BUILT_IN, ids=repr)
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_all_of_them_agree(ops: Any, op: str):
    strategy = mirrored(3, cross_device_ops=ops)
    values = [on_devices(strategy, [jnp.full(n, float(i + n)) for i in range(3)]) for n in (1, 4)]
    with strategy.scope():
        for targets in ("CPU:6", ["CPU:0", "CPU:4"], values[0]):
            results = strategy.extended.batch_reduce_to(op, [(v, targets) for v in values])
            for size, result in zip((1, 4), results, strict=True):
                expected = np.full(size, (3 + 3 * size) / (3 if op == "MEAN" else 1))
                for part in strategy.experimental_local_results(result):
                    np.testing.assert_allclose(part, expected)


@pytest.mark.parametrize("ops", BUILT_IN, ids=repr)
def test_results_are_where_they_were_wanted(ops: Any):
    value = rx.distribute.PerReplica(
        [jax.device_put(jnp.ones(2), device) for device in jax.devices()[:2]]
    )
    one = ops.reduce("SUM", value, "CPU:3")
    assert one.devices() == {jax.devices()[3]}
    several = ops.reduce("SUM", value, ["CPU:2", "CPU:4"])
    assert isinstance(several, rx.distribute.Mirrored)
    assert [p.devices() for p in several.values] == [{jax.devices()[2]}, {jax.devices()[4]}]
    same = ops.reduce("MEAN", value, value)
    assert [p.devices() for p in same.values] == [{jax.devices()[0]}, {jax.devices()[1]}]


class Largest(rx.distribute.CrossDeviceOps):
    """Takes the largest component instead of the sum, and keeps a record."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        self.calls.append(reduce_op.name)
        parts = [np.asarray(part) for part in per_replica_value.values]
        return self.broadcast(np.max(parts, axis=0), destinations)


@pytest.fixture
def ops() -> Largest:
    return Largest()


@pytest.fixture
def strategy(ops: Largest) -> Any:
    return mirrored(3, cross_device_ops=ops)


def numbers(strategy: Any) -> Any:
    return by_replica(strategy, lambda index: jnp.array([float(index), -float(index)]))


def test_own_ops_in_reduce(strategy: Any, ops: Largest):
    np.testing.assert_array_equal(strategy.reduce("SUM", numbers(strategy), axis=None), [2, 0])
    np.testing.assert_array_equal(strategy.reduce("SUM", numbers(strategy), axis=0), 0)
    assert ops.calls == ["SUM", "SUM"]


def test_own_ops_in_reduce_to(strategy: Any, ops: Largest):
    with strategy.scope():
        one = strategy.extended.reduce_to("MEAN", numbers(strategy), "CPU:1")
        many = strategy.extended.batch_reduce_to("SUM", [(numbers(strategy), "CPU:1")] * 2)
    np.testing.assert_array_equal(one, [2, 0])
    np.testing.assert_array_equal(many[1], [2, 0])
    assert ops.calls == ["MEAN", "SUM", "SUM"]


def test_own_ops_in_all_reduce(strategy: Any, ops: Largest):
    result = strategy.run(lambda x: context().all_reduce("SUM", {"x": x}), (numbers(strategy),))
    for part in parts_of(strategy, result["x"]):
        np.testing.assert_array_equal(part, [2, 0])
    assert ops.calls == ["SUM"]


def test_own_ops_in_the_gradient_of_all_reduce(strategy: Any, ops: Largest):
    with strategy.scope():
        w = rx.Variable(1.0)

    def step(x: Any) -> Any:
        return rx.grad(lambda: jnp.sum(context().all_reduce("SUM", w * x)) * x[0], [w])[0]

    # The cotangents are 0, 1 and 2; the largest is what each replica gets back.
    x = by_replica(strategy, lambda index: jnp.array([float(index)]))
    assert parts_of(strategy, strategy.run(step, (x,))) == [0.0, 2.0, 4.0]
    assert ops.calls == ["SUM", "SUM"]


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN"])
def test_own_ops_in_updates_of_variables(strategy: Any, ops: Largest, aggregation: str):
    with strategy.scope():
        v = rx.Variable([0.0, 0.0], aggregation=aggregation)
    strategy.run(lambda x: v.assign_add(x), (numbers(strategy),))
    np.testing.assert_array_equal(v.numpy(), [2, 0])
    assert ops.calls == [aggregation]


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN"])
def test_own_ops_in_reads_of_sync_on_read_variables(strategy: Any, ops: Largest, aggregation: str):
    with strategy.scope():
        v = rx.Variable([0.0, 0.0], synchronization=ON_READ, aggregation=aggregation)
    strategy.run(lambda x: v.assign(x), (numbers(strategy),))
    np.testing.assert_array_equal(v.numpy(), [2, 0])
    assert ops.calls == [aggregation]


def test_own_ops_in_an_optimizer(strategy: Any, ops: Largest):
    with strategy.scope():
        v, w = rx.Variable([0.0, 0.0]), rx.Variable([0.0, 0.0])
        optimizer = rx.Optimizer(optax.sgd(1.0))
    strategy.run(lambda x: optimizer.apply_gradients([(x, v), (2 * x, w)]), (numbers(strategy),))
    np.testing.assert_array_equal(v.numpy(), [-2, 0])
    np.testing.assert_array_equal(w.numpy(), [-4, 0])
    assert ops.calls == ["SUM", "SUM"]


def test_own_ops_in_metrics(strategy: Any, ops: Largest):
    with strategy.scope():
        metric = rx.metrics.Sum()
    strategy.run(metric.update_state, (numbers(strategy),))
    metric.result()
    assert ops.calls == ["SUM"]


def test_own_batch_reduce_broadcast_and_gather_are_used():
    class Recording(rx.distribute.ReductionToOneDevice):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def batch_reduce_implementation(self, reduce_op: Any, pairs: Any, options: Any) -> Any:
            self.seen.append(("batch", len(pairs), options.bytes_per_pack))
            return super().batch_reduce_implementation(reduce_op, pairs, options)

        def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
            self.seen.append(("broadcast",))
            return super().broadcast_implementation(tensor, destinations)

        def gather(self, value: Any, destinations: Any, axis: int, options: Any = None) -> Any:
            self.seen.append(("gather", axis))
            return super().gather(value, destinations, axis, options)

    ops = Recording()
    strategy = mirrored(2, cross_device_ops=ops)
    options = rx.distribute.experimental.CommunicationOptions(bytes_per_pack=77)

    def step(x: Any) -> Any:
        total = context().all_reduce("SUM", [x, x + 1], options)
        return total, context().all_gather(x, axis=0)

    strategy.run(step, (numbers(strategy),))
    assert ops.seen[0] == ("batch", 2, 77)
    assert ("gather", 0) in ops.seen
    ops.seen.clear()
    with strategy.scope():
        strategy.extended.broadcast_to(jnp.ones(2), None)
    strategy.gather(numbers(strategy), axis=0)
    assert ops.seen == [("broadcast",), ("gather", 0)]


def test_an_abstract_one_cannot_be_made():
    with pytest.raises(TypeError, match="reduce_implementation"):
        rx.distribute.CrossDeviceOps()  # type: ignore


def test_an_overridden_reduce_is_called():
    """Subclasses write `reduce_implementation`; those that override the methods around it work."""
    calls: list[str] = []

    class Counting(rx.distribute.ReductionToOneDevice):
        def reduce(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("reduce")
            return super().reduce(*args, **kwargs)

        def batch_reduce(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("batch_reduce")
            return super().batch_reduce(*args, **kwargs)

    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Counting())
    value = rx.distribute.PerReplica([jnp.float32(1), jnp.float32(2)])
    assert float(strategy.reduce("SUM", value, axis=None)) == 3
    strategy.extended.reduce_to("SUM", value, "CPU:0")
    assert calls == ["batch_reduce", "reduce"]
