"""Variables made, read and changed in ways that cannot be."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np

from tests.misuse.table import (
    MEAN,
    NONE,
    ON_READ,
    SUM,
    errors,
    misuse,
    per_replica,
    rx,
    two_replicas,
    variable,
)


@misuse(ValueError, r"needs an `initial_value`", r"an array, a number, a nested list")
def no_initial_value(strategy):
    variable(strategy, None)


@misuse(TypeError, r"cannot start from 'zeros'", r"Pass an array, a number or a regular")
def initial_value_by_name(strategy):
    variable(strategy, "zeros")


@misuse(ValueError, r"cannot start from \[\[1\], \[2, 3\]\]", r"a regular nested list")
def ragged_initial_value(strategy):
    variable(strategy, [[1], [2, 3]])


@misuse(ValueError, r"cannot start from a PerReplica", r"strategy\.reduce\(")
def initial_value_per_replica(strategy):
    variable(strategy, per_replica(strategy))


@misuse(RuntimeError, r"cannot start from a value that JAX is tracing", r"outside of the")
def initial_value_traced(strategy):
    jax.jit(lambda x: variable(strategy, x) * 1.0)(1.0)


@misuse(ValueError, r"shape \(2,\).*declared shape \(3,\)", r"Change one of the two")
def initial_value_of_another_shape(strategy):
    variable(strategy, [1.0, 2.0], shape=(3,))


@misuse(ValueError, r"`aggregation`.*got 'TOTAL'", r"rx\.VariableAggregation\.SUM")
def unknown_aggregation(strategy):
    variable(strategy, aggregation="TOTAL")


@misuse(ValueError, r"`synchronization`.*got 7", r"VariableSynchronization\.ON_READ")
def unknown_synchronization(strategy):
    variable(strategy, synchronization=7)


@misuse(ValueError, r"synchronization NONE", r"Use ON_WRITE or ON_READ")
def synchronization_none_under_a_strategy(strategy):
    variable(strategy, synchronization=NONE)


@misuse(ValueError, r"`caching_device` has no meaning", r"leave it out.*rx\.device")
def caching_device(strategy):
    variable(strategy, caching_device="CPU:0")


@misuse(TypeError, r"`constraint`.*got 'positive'", r"must be a function of the new val")
def constraint_by_name(strategy):
    variable(strategy, constraint="positive")


@misuse(TypeError, r"`variable_creator`.*got 3", r"function variable_creator\(next_crea")
def creator_that_is_no_function(strategy):
    with rx.variable_creator_scope(3):
        pass


@misuse(ValueError, r"shape \(\).*shape \(3,\)", r"jnp\.broadcast_to")
def assign_another_shape(strategy):
    variable(strategy).assign([1.0, 2.0, 3.0])


@misuse(ValueError, r"int32.*float32", r"x\.astype\('int32'\)")
def assign_floats_to_integers(strategy):
    variable(strategy, 1).assign_add(0.5)


@misuse(ValueError, r"float32.*bool", r"x\.astype\('float32'\)")
def assign_booleans_to_floats(strategy):
    variable(strategy).assign(True)


@misuse(TypeError, r"got 'one'", r"takes an array or number")
def assign_a_string(strategy):
    variable(strategy).assign("one")


@misuse(TypeError, r"got None", r"takes an array or number")
def assign_none(strategy):
    variable(strategy).assign(None)


@misuse(ValueError, r"was given a PerReplica", r"strategy\.reduce\('SUM', value, axis=No")
def assign_per_replica(strategy):
    variable(strategy, jnp.zeros(3)).assign(per_replica(strategy))


@misuse(errors.AggregationError, r"no aggregation", r"aggregation=rx\.VariableAggregation")
def assign_in_a_replica_without_aggregation(strategy):
    v = variable(strategy)
    strategy.run(lambda: v.assign(2.0))


@misuse(errors.AggregationError, r"(?i)mean of integers", r"float dtype.*SUM or ONLY_FIR")
def mean_of_integers(strategy):
    v = variable(strategy, 1, aggregation=MEAN)
    strategy.run(lambda: v.assign_add(1))


@misuse(errors.AggregationError, r"once per replica", r"inside strategy\.run.*assign")
def add_to_a_sum_in_cross_replica_context(strategy):
    variable(strategy, synchronization=ON_READ, aggregation=SUM).assign_add(1.0)


@misuse(errors.AggregationError, r"has no aggregation", r"experimental_local_results\(va")
def read_what_is_not_aggregated(strategy):
    variable(strategy, synchronization=ON_READ).read_value()


@misuse(TypeError, r"unhashable", r"Use variable\.ref\(\)")
def variable_as_a_key(strategy):
    return {variable(strategy): "slot"}


@misuse(TypeError, r"cannot be pickled", r"Pickle its value, np\.asarray\(variable\)")
def pickle_a_variable(strategy):
    pickle.dumps(variable(strategy))


@misuse(RuntimeError, r"a function that JAX traces", r"assign it outside")
def assign_in_jit(strategy):
    v = variable(strategy)

    def traced(x):
        v.assign(x)
        return x

    jax.jit(traced)(1.0)


@misuse(TypeError, r"item assignment", r"v\.assign\(v\.value\(\)\.at\[index\]")
def set_an_item_of_a_variable(strategy):
    variable(strategy, [1.0, 2.0])[0] = 3.0


@misuse(errors.WrongContextError, r"belongs to|mixing", r"(?i)leave|make it in")
def assign_a_variable_of_another_strategy(strategy):
    v = variable(two_replicas(), aggregation=SUM)
    strategy.run(lambda: v.assign_add(1.0))


@misuse(errors.WrongContextError, r"belongs to|mixing", r"(?i)leave|make it in")
def assign_in_the_scope_of_another_strategy(strategy):
    v = variable(two_replicas())
    with strategy.scope():
        v.assign(1.0)


@misuse(RuntimeError, r"a function that JAX traces", r"assign it outside")
def assign_a_captured_array_in_jit(strategy):
    v, y = variable(strategy), jnp.ones(())

    def traced(x):
        v.assign_add(y)
        return x

    jax.jit(traced)(1.0)


@misuse(ValueError, r"1180591620717411303424 does not fit int32", r"floating-point.*enable_x64")
def integer_beyond_64_bits(strategy):
    variable(strategy, 2**70)


@misuse(ValueError, r"300 does not fit int8", r"127\. Give a wider dtype\.$")
def integer_beyond_the_dtype(strategy):
    variable(strategy, 300, dtype="int8")


@misuse(ValueError, r"1099511627776 does not fit int32", r"floating-point.*enable_x64")
def integers_beyond_32_bits(strategy):
    variable(strategy, np.array([1, 2**40]))


@misuse(ValueError, r"assign of variable.*1099511627776 does not fit int32", r"floating-point")
def assign_integers_beyond_32_bits(strategy):
    variable(strategy, [1, 2]).assign(np.array([1, 2**40]))


@misuse(ValueError, r"assign_add of variable.*300 does not fit int8", r"a wider dtype")
def assign_integers_beyond_the_dtype(strategy):
    variable(strategy, 1, dtype="int8").assign_add(300)


@misuse(ValueError, r"`dtype`.*got 'floaty'", r"such as 'float32'")
def unknown_dtype(strategy):
    variable(strategy, 1.0, dtype="floaty")


@misuse(TypeError, r"`dtype`.*got 5", r"such as 'float32'")
def dtype_as_a_number(strategy):
    variable(strategy, 1.0, dtype=5)


@misuse(RuntimeError, r"is made inside a function that JAX traces", r"outside.*rx\.function")
def make_a_variable_in_jit(strategy):
    jax.jit(lambda x: (variable(strategy, 1.0), x)[1])(1.0)


@misuse(errors.WrongContextError, r"numpy of variable.*belongs to", r"outside of the other")
def read_in_the_scope_of_another_strategy(strategy):
    v = variable(two_replicas())
    with strategy.scope():
        v.numpy()


@misuse(errors.WrongContextError, r"read_value of variable.*belongs to", r"outside of the other")
def read_in_a_run_of_another_strategy(strategy):
    v = variable(two_replicas())
    strategy.run(v.read_value)


@misuse(errors.WrongContextError, r"A read of variable.*belongs to", r"outside of the other")
def use_copies_in_the_scope_of_another_strategy(strategy):
    v = variable(two_replicas(), synchronization=ON_READ, aggregation=SUM)
    with strategy.scope():
        return v + 1.0


@misuse(ValueError, r"10000000000 out of bounds for int32", r"Give a dtype that it fits")
def float_beyond_an_integer_dtype(strategy):
    variable(strategy, 1e10, dtype="int32")


@misuse(TypeError, r"`shape`.*got 2\.5", r"a tuple of sizes, such as \(2, None\)")
def shape_as_a_float(strategy):
    variable(strategy, [1.0, 2.0], shape=2.5)


@misuse(TypeError, r"`name`.*got 5", r"a text, such as 'kernel'")
def name_as_a_number(strategy):
    variable(strategy, 1.0, name=5)


@misuse(TypeError, r"does not support item deletion", r"jnp\.delete\(v, index\)")
def delete_an_item_of_a_variable(strategy):
    del variable(strategy, [1.0, 2.0])[0]
