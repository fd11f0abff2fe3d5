"""Per-replica values used as if they were one array."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.misuse.table import USE_RUN_OR_REDUCE, context, errors, misuse, per_replica, rx, variable


@misuse(errors.PerReplicaValueError, r"numpy\.asarray\(\).*2 values", USE_RUN_OR_REDUCE)
def asarray_of_per_replica(strategy):
    np.asarray(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"numpy\.\w+.*2 values", USE_RUN_OR_REDUCE)
def numpy_sum_of_per_replica(strategy):
    np.sum(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"numpy\.add.*2 values", USE_RUN_OR_REDUCE)
def numpy_array_plus_per_replica(strategy):
    return np.ones(3) + per_replica(strategy)


@misuse(errors.PerReplicaValueError, r"float\(\).*2 values", USE_RUN_OR_REDUCE)
def float_of_per_replica(strategy):
    float(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"int\(\).*2 values", USE_RUN_OR_REDUCE)
def int_of_per_replica(strategy):
    int(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"bool\(\).*2 values", USE_RUN_OR_REDUCE)
def condition_on_per_replica(strategy):
    if per_replica(strategy):
        pass


@misuse(errors.PerReplicaValueError, r"'add'.*2 values", USE_RUN_OR_REDUCE)
def per_replica_plus_one(strategy):
    return per_replica(strategy) + 1


@misuse(errors.PerReplicaValueError, r"'add'.*2 values", USE_RUN_OR_REDUCE)
def total_of_losses(strategy):
    sum([per_replica(strategy), per_replica(strategy)])


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def array_times_per_replica(strategy):
    return jnp.ones(3) * per_replica(strategy)


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def variable_minus_per_replica(strategy):
    return variable(strategy) - per_replica(strategy)


@misuse(errors.PerReplicaValueError, r"'lt'.*2 values", USE_RUN_OR_REDUCE)
def best_of_per_replica(strategy):
    return per_replica(strategy) < 3.0


@misuse(errors.PerReplicaValueError, r"'eq'.*2 values", USE_RUN_OR_REDUCE)
def per_replica_equals(strategy):
    return per_replica(strategy) == per_replica(strategy)


@misuse(errors.PerReplicaValueError, r"Iteration.*2 values", USE_RUN_OR_REDUCE)
def loop_over_per_replica(strategy):
    for _ in per_replica(strategy):
        pass


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def search_in_per_replica(strategy):
    return 3.0 in per_replica(strategy)


@misuse(errors.PerReplicaValueError, r"\[0\].*2 values", USE_RUN_OR_REDUCE)
def index_per_replica(strategy):
    per_replica(strategy)[0]


@misuse(errors.PerReplicaValueError, r"len\(\).*2 values", USE_RUN_OR_REDUCE)
def length_of_per_replica(strategy):
    len(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def print_per_replica_with_a_format(strategy):
    return f"loss {per_replica(strategy):.3f}"


@misuse(errors.PerReplicaValueError, r"JAX function.*2 values", USE_RUN_OR_REDUCE)
def jnp_sum_of_per_replica(strategy):
    jnp.sum(per_replica(strategy))


@misuse(errors.PerReplicaValueError, r"JAX function.*2 values", USE_RUN_OR_REDUCE)
def jnp_stack_of_per_replica(strategy):
    jnp.stack([per_replica(strategy)])


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def jit_of_per_replica(strategy):
    jax.jit(lambda x: x * 2)(per_replica(strategy))


@misuse(AttributeError, r"\.mean was used on.*2 values", USE_RUN_OR_REDUCE)
def method_of_per_replica(strategy):
    per_replica(strategy).mean()


@misuse(AttributeError, r"\.shape was used on.*2 values", USE_RUN_OR_REDUCE)
def shape_of_per_replica(strategy):
    per_replica(strategy).shape  # noqa: B018 (the read is the misuse)


@misuse(TypeError, r"DistributedValues is a base class", r"Make a rx\.distribute\.PerRepl")
def distributed_values_made_directly(strategy):
    rx.distribute.DistributedValues([1.0, 2.0])


@misuse(TypeError, r"got 3\.0", r"a list or tuple with one value per replica")
def per_replica_of_a_number(strategy):
    rx.distribute.PerReplica(3.0)


@misuse(ValueError, r"PerReplica needs at least one value", r"at least one value, for one")
def per_replica_of_nothing(strategy):
    rx.distribute.PerReplica([])


@misuse(ValueError, r"3 components.*2 replica", r"experimental_distribute_values_from_fun")
def run_with_too_many_components(strategy):
    strategy.run(lambda x: x, args=(rx.distribute.PerReplica([1.0, 2.0, 3.0]),))


@misuse(ValueError, r"1 component.*2 replica", r"experimental_distribute_values_from_funct")
def merge_function_that_returns_too_few(strategy):
    strategy.run(lambda: context().merge_call(lambda s: rx.distribute.PerReplica([1.0])))


@misuse(TypeError, r"got array|got \[1", r"lambda ctx: data\[ctx\.replica_id_in_sync_group")
def values_from_an_array(strategy):
    strategy.experimental_distribute_values_from_function([1.0, 2.0])


@misuse(ValueError, r"replica 0: \[1\].*replica 1: \[1, 1\]", r"same nesting")
def values_of_different_structures(strategy):
    strategy.experimental_distribute_values_from_function(
        lambda ctx: [1] * (1 + ctx.replica_id_in_sync_group)
    )
