"""Values that cannot be combined, or not in that way."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.misuse.table import ONLY_FIRST, context, misuse, per_replica, rx


@misuse(ValueError, r"'MAX' is not a reduction", r"ReduceOp\.SUM or rx\.distribute\.ReduceOp")
def unknown_reduction(strategy):
    strategy.reduce("MAX", per_replica(strategy), axis=None)


@misuse(TypeError, r"<function sum|is not a reduction", r"ReduceOp\.SUM")
def function_as_reduction(strategy):
    strategy.reduce(jnp.sum, per_replica(strategy), axis=None)


@misuse(ValueError, r"is not a reduction", r"ReduceOp\.SUM")
def aggregation_that_is_no_reduction(strategy):
    strategy.extended.reduce_to(ONLY_FIRST, per_replica(strategy), "CPU:0")


@misuse(ValueError, r"axis 1 is out of range.*\(3,\)", r"axis=None to combine over replicas")
def reduce_over_an_axis_that_is_not_there(strategy):
    strategy.reduce("SUM", per_replica(strategy), axis=1)


@misuse(ValueError, r"axis 0 is out of range.*\(\)", r"axis=None to combine over replicas")
def reduce_scalars_over_the_batch(strategy):
    strategy.reduce("MEAN", rx.distribute.PerReplica([1.0, 2.0]), axis=0)


@misuse(TypeError, r"`axis`.*got 'batch'", r"integer.*(None|tuple)|(None|tuple).*integer")
def reduce_over_a_named_axis(strategy):
    strategy.reduce("SUM", per_replica(strategy), axis="batch")


@misuse(ValueError, r"float32\[3\].*float32\[2\]", r"strategy\.reduce\(op, value, axis=0\)")
def reduce_a_partial_batch_without_an_axis(strategy):
    value = rx.distribute.PerReplica([jnp.ones(3), jnp.ones(2)])
    strategy.reduce("SUM", value, axis=None)


@misuse(ValueError, r"not per replica: float32\[3\]", r"use ReduceOp\.MEAN, or multiply")
def sum_of_one_array(strategy):
    strategy.reduce("SUM", jnp.ones(3), axis=None)


@misuse(ValueError, r"Mirrored value is the same on all", r"Use ReduceOp\.MEAN, or multiply")
def sum_of_a_mirrored_value(strategy):
    strategy.reduce("SUM", rx.distribute.Mirrored([jnp.ones(3)] * 2), axis=None)


@misuse(TypeError, r"booleans", r"x\.astype\(jnp\.int32\)")
def sum_of_booleans(strategy):
    strategy.reduce("SUM", rx.distribute.PerReplica([True, False]), axis=None)


@misuse(TypeError, r"'cat' of type str", r"experimental_local_results")
def sum_of_strings(strategy):
    strategy.reduce("SUM", rx.distribute.PerReplica(["cat", "dog"]), axis=None)


@misuse(ValueError, r"3 components.*2 replica", r"Make it with this strategy")
def reduce_too_many_components(strategy):
    strategy.reduce("SUM", rx.distribute.PerReplica([1.0, 2.0, 3.0]), axis=None)


@misuse(ValueError, r"float32\[\].*float32\[\]", r"x\[None\], or use a reduction")
def gather_scalars(strategy):
    strategy.gather(rx.distribute.PerReplica([1.0, 2.0]), axis=0)


@misuse(ValueError, r"axis 1 is out of range for 1 dimension", r"from -1 to 0|axis=0|between")
def gather_along_an_axis_that_is_not_there(strategy):
    strategy.gather(per_replica(strategy), axis=1)


@misuse(TypeError, r"`axis`.*got None", r"must be an integer")
def gather_without_an_axis(strategy):
    strategy.gather(per_replica(strategy), axis=None)


@misuse(ValueError, r"float32\[2, 3\].*float32\[2, 4\]", r"same sizes except along axis 0")
def gather_sizes_that_do_not_fit(strategy):
    value = rx.distribute.PerReplica([jnp.ones((2, 3)), jnp.ones((2, 4))])
    strategy.gather(value, axis=0)


@misuse(TypeError, r"gather.*'cat' of type str", r"experimental_local_results")
def gather_strings(strategy):
    strategy.gather(rx.distribute.PerReplica(["cat", "dog"]), axis=0)


@misuse(ValueError, r"\(\)", r"x\[None\]|all_reduce")
def all_gather_scalars(strategy):
    strategy.run(lambda: context().all_gather(jnp.ones(()), axis=0))


@misuse(TypeError, r"takes this replica's own arrays; got.*PerReplica", r"args=\(value,\)")
def all_reduce_a_captured_per_replica(strategy):
    value = per_replica(strategy)
    strategy.run(lambda: context().all_reduce("SUM", value))


@misuse(TypeError, r"all_reduce.*'cat' of type str", r"arrays and numbers")
def all_reduce_strings(strategy):
    strategy.run(lambda: context().all_reduce("SUM", "cat"))


@misuse(ValueError, r"ONLY_FIRST_REPLICA.*no reduction", r"rx\.VariableAggregation\.SUM")
def reduction_from_only_first_replica(strategy):
    rx.distribute.ReduceOp.from_variable_aggregation(rx.VariableAggregation.ONLY_FIRST_REPLICA)


@misuse(ValueError, r"1099511627776 does not fit int32", r"floating-point.*enable_x64")
def reduce_integers_beyond_32_bits(strategy):
    large = [np.int64(2**40), np.int64(1)]
    strategy.reduce("SUM", rx.distribute.PerReplica(large), axis=None)


@misuse(TypeError, r"cannot add random keys", r"strategy\.gather\(keys, axis=0\)")
def reduce_random_keys(strategy):
    keys = rx.distribute.PerReplica([jax.random.key(0), jax.random.key(1)])
    strategy.reduce("SUM", keys, axis=None)
