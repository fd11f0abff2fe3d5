"""The examples of the `tf.compat.v1.distribute.StrategyExtended` page, with `tf.` as `rx.`.

Where the page describes a program in words (how values are merged, the four steps of an update),
the program is written out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax
from tests.old_names import with_old_names
from tests.under_test import cpus

rx: Any = replicax  # the page's programs are not annotated


@pytest.fixture(params=["distribute", "compat.v1.distribute"])
def distribute(request: pytest.FixtureRequest) -> Any:
    return rx.compat.v1.distribute if "v1" in request.param else rx.distribute


@pytest.fixture(params=[1, 2], ids=["one_replica", "two_replicas"])
def strategy(distribute: Any, request: pytest.FixtureRequest) -> Any:
    return distribute.MirroredStrategy(cpus(request.param))


# "Lower-level concepts", "Unwrapping and merging": `fn()` returns `(x, a, v0)` on replica 0 and
# `(x, b, v1)` on replica 1. The copies of a variable are what `update` hands out.
def test_unwrapping_and_merging():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    x = rx.constant(1.0)
    w = rx.distribute.PerReplica(["w0", "w1"])
    with strategy.scope():
        v = rx.Variable(1.0)
    a, b = object(), object()
    members = strategy.experimental_local_results(v)

    def fn(wi):
        i = rx.distribute.get_replica_context().replica_id_in_sync_group
        assert wi == f"w{i}"
        return x, (a, b)[i], members[i]

    merged = strategy.run(fn, args=[w])
    assert merged[0] is x
    assert isinstance(merged[1], rx.types.experimental.PerReplica)
    assert merged[1].values == (a, b)
    assert merged[2] is v


# "Replica context vs. Cross-replica context".
def test_contexts(strategy):
    seen = []

    def look():
        seen.append(rx.distribute.in_cross_replica_context())

    look()  # "By default you start in a replica context"
    with strategy.scope():
        look()  # "enters cross-replica context"
        v = rx.Variable(1.0)

    def fn():
        if rx.distribute.get_replica_context().replica_id_in_sync_group == 0:
            look()  # "calls a function in replica context"
        rx.distribute.get_replica_context().merge_call(lambda strategy: look())

    strategy.run(fn)  # "transitions from replica context to cross-replica context"
    strategy.extended.update(v, lambda v: look(), group=False)
    assert seen[:4] == [False, True, False, True]
    assert all(seen[4:])


# "Sync on read variables": "we allow reads so you can write code like `v = 0.9*v + 0.1*update`".
def test_sync_on_read_variable(strategy):
    with strategy.scope():
        v = rx.Variable(
            0.0,
            synchronization=rx.VariableSynchronization.ON_READ,
            aggregation=rx.VariableAggregation.MEAN,
        )

    def fn(update):
        v.assign(0.9 * v + 0.1 * update)

    strategy.run(fn, args=(10.0,))
    strategy.run(fn, args=(10.0,))
    assert float(v) == pytest.approx(1.9)


# "How to update a variable", steps 1 to 4.
def test_how_to_update_a_variable(strategy):
    with strategy.scope():
        v = rx.Variable(10.0)

    def apply_updates(distribution, pairs):
        for update, variable in pairs:
            total = distribution.extended.reduce_to(rx.VariableAggregation.SUM, update, variable)
            distribution.extended.update(variable, lambda v, t: v.assign_sub(t), args=(total,))

    def fn():
        ctx = rx.distribute.get_replica_context()
        pairs = [(rx.constant(1.0) + ctx.replica_id_in_sync_group, v)]
        ctx.merge_call(apply_updates, args=(pairs,))

    strategy.run(fn)
    assert float(v) == {1: 9.0, 2: 7.0}[strategy.num_replicas_in_sync]


# The same with `batch_reduce_to` "(for a list of variables)".
def test_how_to_update_many_variables(strategy):
    with strategy.scope():
        variables = [rx.Variable(10.0), rx.Variable([20.0, 20.0])]

    def apply_updates(distribution, updates):
        pairs = list(zip(updates, variables, strict=True))
        totals = distribution.extended.batch_reduce_to(rx.distribute.ReduceOp.SUM, pairs)
        for total, variable in zip(totals, variables, strict=True):
            distribution.extended.update(variable, lambda v, t: v.assign_sub(t), args=(total,))

    def fn():
        updates = [rx.constant(1.0), rx.constant([1.0, 2.0])]
        rx.distribute.get_replica_context().merge_call(apply_updates, args=(updates,))

    strategy.run(fn)
    n = strategy.num_replicas_in_sync
    assert variables[0].numpy() == 10.0 - n
    assert variables[1].numpy().tolist() == [20.0 - n, 20.0 - 2 * n]


# Section "Attributes".
def test_attributes(strategy):
    extended = strategy.extended
    names = tuple(
        f"/job:localhost/replica:0/task:0/device:CPU:{i}"
        for i in range(strategy.num_replicas_in_sync)
    )
    assert extended.worker_devices == extended.parameter_devices == names
    assert extended.experimental_between_graph is False
    assert extended.experimental_require_static_shapes is False
    assert extended.experimental_should_init is True
    assert extended.should_checkpoint is True
    assert extended.should_save_summary is True


# Section "call_for_each_replica", the example. (`tf.get_replica_context` of the page is
# `tf.distribute.get_replica_context`.)
def test_merge_call_between_replicas(strategy, capsys):
    distribution = strategy

    # Called once in "cross-replica" context.
    def merge_fn(distribution, three_plus_replica_id):
        # sum the values across replicas
        return sum(distribution.experimental_local_results(three_plus_replica_id))

    # Called once per replica in `distribution`, in a "replica" context.
    def fn(three):
        replica_ctx = rx.distribute.get_replica_context()
        v = three + replica_ctx.replica_id_in_sync_group
        # Computes the sum of the `v` values across all replicas.
        s = replica_ctx.merge_call(merge_fn, args=(v,))
        return s + v

    with distribution.scope():
        # in "cross-replica" context
        merged_results = distribution.run(fn, args=[3])
        # merged_results has the values from every replica execution of `fn`.
        # This statement prints a list:
        print(distribution.experimental_local_results(merged_results))
        same = distribution.extended.call_for_each_replica(fn, args=[3])
        print(distribution.experimental_local_results(same))
    line = {1: "(6,)\n", 2: "(10, 11)\n"}[strategy.num_replicas_in_sync]
    assert capsys.readouterr().out == line * 2


# Section "broadcast_to".
def test_broadcast_to_mirrors_a_tensor(strategy):
    with strategy.scope():
        v = rx.Variable(1.0)
        value = strategy.extended.broadcast_to(rx.constant(2.0), v)
        on_one = strategy.extended.broadcast_to(rx.constant(2.0), "CPU:1")
    copies = strategy.experimental_local_results(value)
    assert [float(each) for each in copies] == [2.0] * strategy.num_replicas_in_sync
    assert [each.devices() for each in copies] == [
        {device} for device in jax.devices("cpu")[: strategy.num_replicas_in_sync]
    ]
    assert on_one.devices() == {jax.devices("cpu")[1]}


# Section "colocate_vars_with", the example.
def test_colocated_variables_are_updated_together(strategy):
    with strategy.scope():
        var1 = rx.Variable(1.0)
        with strategy.extended.colocate_vars_with(var1):
            # var2 and var3 will be created on the same device(s) as var1
            var2 = rx.Variable(2.0)
            var3 = rx.Variable(3.0)

        def fn(v1, v2, v3):
            # operates on v1 from var1, v2 from var2, and v3 from var3
            assert v1.device == v2.device == v3.device
            v1.assign_add(v2 * v3)

        # `fn` runs on every device `var1` is on, `var2` and `var3` will be there
        # too.
        strategy.extended.update(var1, fn, args=(var2, var3))
    copies = strategy.experimental_local_results(var1)
    assert [float(each) for each in copies] == [7.0] * strategy.num_replicas_in_sync


# Section "experimental_run_steps_on_iterator": "Run `fn` with input from `iterator` for
# `iterations` times"; `context` sets outputs "by calling `context.set_last_step_output`" and
# "`context.set_non_tensor_output`"; "Typically, `fn` will use `call_for_each_replica`".
@with_old_names
def test_run_steps_on_iterator(strategy):
    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)

    def replica_fn(x):
        total.assign_add(jnp.sum(x))
        return jnp.max(x)

    def fn(context, inputs):
        largest = strategy.extended.call_for_each_replica(replica_fn, args=(inputs,))
        context.set_last_step_output("largest", largest, reduce_op=rx.distribute.ReduceOp.SUM)
        context.set_last_step_output("each", largest)
        context.set_non_tensor_output("note", "made by fn")

    dataset = rx.data.Dataset.range(24, output_type=np.float32).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    context = strategy.extended.experimental_run_steps_on_iterator(
        fn, iterator, iterations=5, initial_loop_values={"largest": 0.0, "each": 0.0}
    )
    each = strategy.experimental_local_results(context.last_step_outputs["each"])
    assert [float(value) for value in each] == {1: [19.0], 2: [17.0, 19.0]}[len(each)]
    assert float(context.last_step_outputs["largest"]) == sum(map(float, each))
    assert context.non_tensor_outputs == {"note": "made by fn"}
    assert float(total) == sum(range(20))
    # Without a step there is no last one; the initial values stand for it.
    context = strategy.extended.experimental_run_steps_on_iterator(
        fn, iterator, iterations=0, initial_loop_values={"largest": 0.5}
    )
    assert context.last_step_outputs == {"largest": 0.5}
    # One batch is left; it is used.
    with pytest.raises(rx.errors.OutOfRangeError, match="after 1 of 2"):
        strategy.extended.experimental_run_steps_on_iterator(fn, iterator, iterations=2)
    assert float(total) == sum(range(24))


# Section "non_slot_devices": "Create variables on these devices in a `with
# colocate_vars_with(non_slot_devices(...)):` block. Update those using `update_non_slot()`."
def test_non_slot_variables(strategy):
    with strategy.scope():
        v = rx.Variable(1.0)
        devices = strategy.extended.non_slot_devices([v])
        with strategy.extended.colocate_vars_with(devices):
            step = rx.Variable(0)
        strategy.extended.update_non_slot(devices, lambda s: s.assign_add(1), args=(step,))
    copies = strategy.experimental_local_results(step)
    assert [int(each) for each in copies] == [1] * strategy.num_replicas_in_sync


# Section "read_var": "the aggregate value of a replica-local variable".
def test_read_var_aggregates(strategy):
    with strategy.scope():
        v = rx.Variable(
            0.0,
            synchronization=rx.VariableSynchronization.ON_READ,
            aggregation=rx.VariableAggregation.SUM,
        )
    strategy.run(lambda: v.assign_add(2.0))
    with strategy.scope():
        assert float(strategy.extended.read_var(v)) == 2.0 * strategy.num_replicas_in_sync


# Section "reduce_to": "To perform an all-reduction, pass `value` to `destinations`."
def test_reduce_to_where_the_value_is():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    value = strategy.run(lambda: rx.constant(1.0) * 3.0)
    with strategy.scope():
        everywhere = strategy.extended.reduce_to(rx.distribute.ReduceOp.SUM, value, value)
    assert isinstance(everywhere, rx.types.experimental.Mirrored)
    assert repr(everywhere).startswith("Mirrored:{\n  0: Array(6., ")
    assert [float(each) for each in everywhere.values] == [6.0, 6.0]


# Section "update": the logic in the page, and `group=False`.
def test_update_calls_fn_on_every_device(strategy):
    with strategy.scope():
        var = rx.Variable(1.0)
        delta = strategy.extended.broadcast_to(rx.constant(2.0), var)

        def fn(v, delta, factor):
            v.assign_add(delta * factor)
            return v.device

        results = strategy.extended.update(var, fn, args=(delta,), kwargs={"factor": 2.0})
        ungrouped = strategy.extended.update(
            var, fn, args=(delta,), kwargs={"factor": 2.0}, group=False
        )
    devices = strategy.extended.worker_devices
    assert strategy.experimental_local_results(results) == devices
    assert tuple(ungrouped) == devices
    assert float(var) == 9.0


# Section "value_container": "`value in experimental_local_results(value_container(value))` will
# always be true."
def test_value_container(strategy):
    with strategy.scope():
        v = rx.Variable(1.0)
    for value in strategy.experimental_local_results(v):
        assert strategy.extended.value_container(value) is v
        assert value in strategy.experimental_local_results(
            strategy.extended.value_container(value)
        )
    plain = rx.constant(1.0)
    assert strategy.extended.value_container(plain) is plain


# Section "variable_created_in_scope", both examples.
def test_variable_created_in_scope(strategy):
    with strategy.scope():
        v = rx.Variable(1.0)
    assert strategy.extended.variable_created_in_scope(v) is True
    v = rx.Variable(1.0)
    assert strategy.extended.variable_created_in_scope(v) is False
