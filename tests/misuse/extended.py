"""The methods of `strategy.extended`."""

import jax.numpy as jnp

from tests.misuse.table import errors, misuse, per_replica, rx, two_replicas, variable


@misuse(ValueError, r"given a PerReplica argument", r"extended\.reduce_to\('SUM', value")
def update_with_per_replica(strategy):
    v = variable(strategy, jnp.zeros(3))
    strategy.extended.update(v, lambda each, x: each.assign(x), args=(per_replica(strategy),))


@misuse(TypeError, r"update.*variable.*got 3\.0", r"rx\.Variable|needs a variable")
def update_a_number(strategy):
    strategy.extended.update(3.0, lambda each: each)


@misuse(TypeError, r"got 2\.0", r"a function update_fn\(variable, \*args\)")
def update_by_a_number(strategy):
    strategy.extended.update(variable(strategy), 2.0)


@misuse(TypeError, r"extended\.update: `args`", r"args=\(x,\), with the comma")
def update_args_without_a_comma(strategy):
    strategy.extended.update(variable(strategy), lambda each, x: each.assign(x), args=2.0)


@misuse(ValueError, r"given a PerReplica argument", r"extended\.reduce_to\('SUM', value")
def update_non_slot_with_per_replica(strategy):
    strategy.extended.update_non_slot("CPU:0", lambda x: x, args=(per_replica(strategy),))


@misuse(TypeError, r"update_non_slot.*got 2\.0", r"needs a function")
def update_non_slot_by_a_number(strategy):
    strategy.extended.update_non_slot("CPU:0", 2.0)


@misuse(TypeError, r"`destinations`.*got None", r"a device name such as 'GPU:0'")
def reduce_to_nowhere(strategy):
    strategy.extended.reduce_to("SUM", per_replica(strategy), None)


@misuse(TypeError, r"`destinations`.*got \[\]", r"non-empty list of device names")
def reduce_to_an_empty_list(strategy):
    strategy.extended.reduce_to("SUM", per_replica(strategy), [])


@misuse(errors.DeviceError, r"no device 'CPU:99'", r"Devices here: CPU:0")
def reduce_to_an_unknown_device(strategy):
    strategy.extended.reduce_to("SUM", per_replica(strategy), "CPU:99")


@misuse(TypeError, r"batch_reduce_to takes.*pairs", r"\[\(gradient, variable\), \.\.\.\]")
def batch_reduce_values_without_destinations(strategy):
    strategy.extended.batch_reduce_to("SUM", [per_replica(strategy)])


@misuse(TypeError, r"`options`.*got 1024", r"CommunicationOptions")
def reduce_with_a_number_as_options(strategy):
    strategy.extended.reduce_to("SUM", per_replica(strategy), "CPU:0", options=1024)


@misuse(ValueError, r"got a PerReplica", r"Combine them with reduce_to")
def broadcast_per_replica(strategy):
    strategy.extended.broadcast_to(per_replica(strategy), "CPU:1")


@misuse(ValueError, r"'Variable:0' was made elsewhere", r"with strategy\.scope\(\)")
def colocate_with_a_foreign_variable(strategy):
    foreign = variable(two_replicas())
    with strategy.scope(), strategy.extended.colocate_vars_with(foreign):
        rx.Variable(1.0)


@misuse(errors.WrongContextError, r"needs the strategy to be in scope", r"with strategy\.s")
def colocate_outside_of_the_scope(strategy):
    v = variable(strategy)
    with strategy.extended.colocate_vars_with(v):
        rx.Variable(1.0)


@misuse((TypeError, ValueError), r"got None", r"variable.*device")
def colocate_with_nothing(strategy):
    with strategy.scope(), strategy.extended.colocate_vars_with(None):
        rx.Variable(1.0)


@misuse(TypeError, r"read_var needs a variable; got", r"needs a variable")
def read_var_of_an_array(strategy):
    strategy.extended.read_var(jnp.ones(3))


@misuse(errors.WrongContextError, r"read_var of a sync-on-read.*replica context", r"read_value\(\)")
def read_var_in_a_replica_function(strategy):
    with strategy.scope():
        v = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
    strategy.run(lambda: strategy.extended.read_var(v))


@misuse(TypeError, r"call_for_each_replica.*got 3", r"[Pp]ass the function itself")
def call_a_number_for_each_replica(strategy):
    strategy.extended.call_for_each_replica(3)


@misuse(TypeError, r"`args` must be a tuple or list", r"args=\(x,\), with the comma")
def call_for_each_replica_args_without_a_comma(strategy):
    strategy.extended.call_for_each_replica(lambda x: x, args=3.0)


@misuse(TypeError, r"batch_reduce_to.*got 5", r"\(value, destinations\) pairs")
def batch_reduce_a_number(strategy):
    strategy.extended.batch_reduce_to("SUM", 5)
