"""Compiled functions: what cannot be traced, and what they are called with."""

import copy

import jax
import jax.numpy as jnp
import numpy as np

from tests.misuse.table import SUM, context, errors, misuse, per_replica, rx, variable


def compiled(strategy, replica_fn):
    x = rx.distribute.PerReplica([1.0, 2.0])
    return rx.function(lambda x: strategy.run(replica_fn, args=(x,)))(x)


@misuse(TypeError, r"takes a function; got 3", r"Write @rx\.function")
def function_of_a_number(strategy):
    rx.function(3)


@misuse(TypeError, r"generator or a coroutine", r"Compile the function that does one step")
def function_of_a_generator(strategy):
    def steps():
        yield 1

    rx.function(steps)


@misuse(
    jax.errors.TracerBoolConversionError, r"boolean conversion", r"jnp\.where or jax\.lax\.cond"
)
def if_on_an_array(strategy):
    compiled(strategy, lambda x: x if x > 0 else -x)


@misuse(jax.errors.TracerArrayConversionError, r"__array__", r"Use jax\.numpy, or return the array")
def numpy_of_an_array(strategy):
    compiled(strategy, lambda x: np.sin(x))


@misuse(jax.errors.TracerArrayConversionError, r"__array__", r"Use jax\.numpy")
def numpy_of_a_variable(strategy):
    v = variable(strategy)
    compiled(strategy, lambda x: x + v.numpy())


@misuse(AttributeError, r"numpy", r"Use jax\.numpy, or return the array")
def the_method_numpy_of_an_array(strategy):
    compiled(strategy, lambda x: x.numpy())


@misuse(jax.errors.TracerIntegerConversionError, r"__index__", r"Pass it as a Python number")
def an_array_as_an_index(strategy):
    compiled(strategy, lambda x: [1, 2, 3][x.astype(int)])


@misuse(jax.errors.ConcretizationTypeError, r"concrete value is expected", r"as a Python number")
def an_array_as_a_number(strategy):
    compiled(strategy, lambda x: float(x))


@misuse(ValueError, r"made on a call after the first", r"make it only `if self\.v is None:`")
def a_variable_made_at_every_call(strategy):
    step = rx.function(lambda: rx.Variable(1.0) + 1.0)
    step()
    step()


@misuse(errors.AggregationError, r"has no aggregation", r"aggregation=rx\.VariableAggregation\.SUM")
def assigning_without_an_aggregation(strategy):
    v = variable(strategy)
    compiled(strategy, lambda x: v.assign(x))


@misuse(errors.WrongContextError, r"inside jax\.vmap", r"assign the result outside")
def assigning_in_vmap(strategy):
    v = variable(strategy, aggregation=SUM)
    compiled(strategy, lambda x: jax.vmap(lambda y: v.assign(y).read_value())(jnp.ones(2) * x))


@misuse(errors.WrongContextError, r"made inside a function that JAX traces", r"Make it before")
def making_a_variable_in_a_loop(strategy):
    compiled(strategy, lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y + rx.Variable(1.0), x))


@misuse(errors.PerReplicaValueError, r"operator 'add'.*2 values", r"strategy\.run\(fn")
def arithmetic_with_a_per_replica_value(strategy):
    rx.function(lambda x: strategy.run(lambda x: x, args=(x,)) + 1)(per_replica(strategy))


@misuse(errors.WrongContextError, r"in replica context \(each replica of 2\)", r"all_reduce")
def reduce_in_a_compiled_replica(strategy):
    compiled(strategy, lambda x: strategy.reduce("SUM", x, axis=None))


@misuse(errors.ReplicaMismatchError, r"depends on the replica's number", r"Take the collective out")
def all_reduce_on_some_replicas(strategy):
    def replica_fn(x):
        first = context().replica_id_in_sync_group == 0
        return jax.lax.cond(first, lambda: context().all_reduce("SUM", x), lambda: x)

    compiled(strategy, replica_fn)


@misuse(RuntimeError, r"traced before and has ended", r"Return such values from the function")
def a_value_kept_from_a_trace(strategy):
    kept = []
    rx.function(lambda x: kept.append(x * 2))(jnp.float32(1.0))
    rx.function(lambda x: x)(kept[0])


@misuse(TypeError, r"`input_signature`.*got TensorSpec", r"a list with one rx\.TensorSpec")
def a_signature_that_is_no_list(strategy):
    rx.function(lambda x: x, input_signature=rx.TensorSpec([]))


@misuse(TypeError, r"`input_signature` holds", r"Use rx\.TensorSpec\(shape, dtype\)")
def a_signature_without_specs(strategy):
    rx.function(lambda x: x, input_signature=[jnp.float32])


@misuse(TypeError, r"says TensorSpec\(shape=\(2,\).*float32\[3\]", r"None stands for any size")
def another_shape_than_the_signature(strategy):
    rx.function(lambda x: x, input_signature=[rx.TensorSpec([2])])(jnp.ones(3))


@misuse(TypeError, r"1 argument\(s\), but was called with 2", r"input_signature of 1 argument")
def more_arguments_than_the_signature(strategy):
    rx.function(lambda x: x, input_signature=[rx.TensorSpec([])])(1.0, 2.0)


@misuse(TypeError, r"shape of a TensorSpec.*got 3", r"For a scalar write \[\]")
def a_spec_with_a_number_for_its_shape(strategy):
    rx.TensorSpec(3)


@misuse(TypeError, r"must be iterable; got 3", r"Pass a list of batches")
def steps_over_a_number(strategy):
    rx.function(lambda x: x).steps(3)


@misuse(ValueError, r"got 0", r"whole number of at least 1")
def no_steps(strategy):
    rx.function(lambda x: x).steps([1.0], 0)


@misuse(errors.OutOfRangeError, r"ended after 1 of 2 steps", r"Ask for fewer, or repeat the data")
def more_steps_than_data(strategy):
    rx.function(lambda x: x).steps([jnp.ones(1)], 2)


@misuse(TypeError, r"got 3", r"takes a function fn\(context, inputs\)")
def run_steps_of_a_number(strategy):
    strategy.extended.experimental_run_steps_on_iterator(3, iter([1.0]))


@misuse(TypeError, r"`initial_loop_values`.*got \[", r"must be a dict from names")
def initial_values_in_a_list(strategy):
    strategy.extended.experimental_run_steps_on_iterator(lambda c, x: None, iter([1.0]), 1, [0.0])


@misuse(TypeError, r"was given an array", r"Use set_last_step_output for arrays")
def an_array_as_a_non_tensor_output(strategy):
    def step(context, x):
        context.set_non_tensor_output("x", x + 1)

    strategy.extended.experimental_run_steps_on_iterator(step, iter([jnp.ones(1)]))


@misuse(RuntimeError, r"copied inside an rx\.function", r"Copy it outside")
def copying_a_variable(strategy):
    v = variable(strategy)
    compiled(strategy, lambda x: copy.copy(v) + x)


@misuse(TypeError, r"dtype of a TensorSpec.*got 'x'", r"such as 'float32', or rx\.string")
def a_spec_of_no_dtype(strategy):
    rx.TensorSpec([2], "x")
