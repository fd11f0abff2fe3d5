"""What `strategy.run` is given, and replicas that disagree."""

import functools

import jax
import jax.numpy as jnp

from tests.misuse.table import SUM, context, errors, misuse, per_replica, replica_id, rx, variable


@misuse(TypeError, r"got 6\.0", r"without calling it: strategy\.run\(step, args=\(x,\)\)")
def run_what_a_function_returned(strategy):
    strategy.run((lambda x: x * 2)(3.0))


@misuse(TypeError, r"`args` must be a tuple or list.*float32\[3\]", r"args=\(x,\), with the com")
def args_without_a_comma(strategy):
    strategy.run(lambda x: x, args=jnp.ones(3))


@misuse(TypeError, r"`args`.*PerReplica", r"args=\(x,\), with the comma")
def per_replica_as_args(strategy):
    strategy.run(lambda x: x, args=per_replica(strategy))


@misuse(TypeError, r"`kwargs`.*got \[", r"must be a dict of keyword arguments")
def kwargs_as_a_list(strategy):
    strategy.run(lambda x: x, kwargs=[("x", 1.0)])


@misuse(TypeError, r"`options`.*got \{", r"must be a rx\.distribute\.RunOptions")
def options_as_a_dict(strategy):
    strategy.run(lambda: 1.0, options={"experimental_xla_options": None})


@misuse(ValueError, r"replica 0: \(float32\[\],\).*replica 1: \(float32\[\], ", r"same nesting")
def results_of_different_lengths(strategy):
    strategy.run(lambda: (jnp.ones(()),) * (1 + replica_id()))


@misuse(errors.ReplicaMismatchError, r"replica 0: \{'loss'.*replica 1: \{'error'", r"same keys")
def results_with_different_keys(strategy):
    strategy.run(lambda: {("loss", "error")[replica_id()]: 1.0})


@misuse(errors.ReplicaMismatchError, r"replica 0 \(CPU:0\): called merge_call.*1.*returned", "if")
def merge_call_skipped_by_one(strategy):
    def step():
        if replica_id() == 0:
            context().merge_call(lambda s: None)

    strategy.run(step)


@misuse(errors.ReplicaMismatchError, r"returned.*replica 1.*called all_reduce", r"take part")
def all_reduce_skipped_by_one(strategy):
    strategy.run(lambda: context().all_reduce("SUM", 1.0) if replica_id() == 1 else 0.0)


@misuse(errors.ReplicaMismatchError, r"merge_call\(.*first\).*merge_call\(.*second\)", r"same")
def different_merge_functions(strategy):
    def first(s):
        return 1

    def second(s):
        return 2

    strategy.run(lambda: context().merge_call((first, second)[replica_id()]))


@misuse(errors.ReplicaMismatchError, r"replica 0.*returned.*all_reduce", r"an `if`, a loop")
def different_numbers_of_all_reduces(strategy):
    def step():
        for _ in range(1 + replica_id()):
            context().all_reduce("SUM", 1.0)

    strategy.run(step)


@misuse(errors.ReplicaMismatchError, r"all_reduce\(SUM\).*all_reduce\(MEAN\)", r"the same")
def different_reductions(strategy):
    strategy.run(lambda: context().all_reduce(("SUM", "MEAN")[replica_id()], 1.0))


@misuse(errors.ReplicaMismatchError, r"assign of variable 'a:0'.*variable 'b:0'", r"the same")
def updates_of_different_variables(strategy):
    a = variable(strategy, name="a", aggregation=SUM)
    b = variable(strategy, name="b", aggregation=SUM)
    strategy.run(lambda: (a, b)[replica_id()].assign(1.0))


@misuse(ValueError, r"replica 0: float32\[1\], replica 1: float32\[2\]", r"axis=0|same shape")
def all_reduce_of_different_shapes(strategy):
    strategy.run(lambda: context().all_reduce("SUM", jnp.ones(1 + replica_id())))


@misuse(ValueError, r"replica 0: float32\[1\], replica 1: int32\[1\]", r"same.*dtype")
def all_reduce_of_different_dtypes(strategy):
    dtypes = (jnp.float32, jnp.int32)
    strategy.run(lambda: context().all_reduce("SUM", jnp.ones(1, dtypes[replica_id()])))


@misuse(errors.ReplicaMismatchError, r"Replica 1 made a variable", r"Make it before strategy\.r")
def variable_made_by_the_second_replica(strategy):
    strategy.run(lambda: rx.Variable(1.0) if replica_id() == 1 else None)


@misuse(TypeError, r"`merge_fn`.*got 3", r"merge_fn\(strategy, \*args\)")
def merge_call_of_a_number(strategy):
    strategy.run(lambda: context().merge_call(3))


@misuse(TypeError, r"`args` must be a tuple or list.*got", r"a tuple or list of arguments")
def merge_call_args_without_a_comma(strategy):
    strategy.run(lambda: context().merge_call(lambda s, x: x, args=1.0))


@misuse(TypeError, r"`kwargs`.*got", r"a dict")
def merge_call_kwargs_as_a_number(strategy):
    strategy.run(lambda: context().merge_call(lambda s, x: x, kwargs=1.0))


@misuse(TypeError, r"merge_call was given a value that JAX is tracing", r"Use .*all_reduce")
def merge_call_of_a_traced_value(strategy):
    w = variable(strategy)

    def loss():
        return context().merge_call(lambda s, x: s.reduce("SUM", x, axis=None), args=(w * w,))

    strategy.run(lambda: rx.value_and_grad(loss, [w]))


@misuse(RuntimeError, r"strategy\.run.*while JAX traces", r"call strategy\.run outside")
def run_in_jit(strategy):
    jax.jit(lambda x: strategy.run(lambda y: y, args=(x,)))(1.0)


@misuse(
    errors.WrongContextError, r"all_reduce was called while JAX traces", r"Move the collective out"
)
def all_reduce_in_jit(strategy):
    strategy.run(lambda: jax.jit(lambda x: context().all_reduce("SUM", x))(1.0))


@misuse(
    errors.WrongContextError,
    r"all_reduce was called.*differentiated forwards",
    r"jax\.grad|rx\.function around",
)
def all_reduce_differentiated_forwards(strategy):
    strategy.run(lambda: jax.jacfwd(lambda x: context().all_reduce("SUM", x))(1.0))


@misuse(
    errors.WrongContextError,
    r"merge_call.*was called.*JAX|JAX.*merge_call",
    r"rx\.function around strategy\.run",
)
def merge_call_in_jit(strategy):
    strategy.run(lambda: jax.jit(lambda x: x * context().merge_call(lambda s: 2.0))(1.0))


@misuse(errors.WrongContextError, r"all_reduce.*was called", r"rx\.function around strategy\.run")
def all_reduce_of_a_captured_array_in_jit(strategy):
    y = jnp.ones(())
    strategy.run(lambda: jax.jit(lambda x: x * context().all_reduce("SUM", y))(1.0))


@misuse(TypeError, r"was given an async function", r"Pass a plain `def` function")
def run_an_async_function(strategy):
    async def step():
        return 1.0

    strategy.run(step)


@misuse(TypeError, r"was given a generator function", r"Pass a plain `def` function")
def run_a_generator_function(strategy):
    def step():
        yield 1.0

    strategy.run(functools.partial(step))


@misuse(TypeError, r"was given an async generator function", r"Pass a plain `def` function")
def run_an_async_generator(strategy):
    class Step:
        async def __call__(self):
            yield 1.0

    strategy.run(Step())


@misuse(TypeError, r"merge_call was given an async function", r"Pass a plain `def` function")
def merge_call_of_an_async_function(strategy):
    async def merge(strategy):
        return 1.0

    strategy.run(lambda: context().merge_call(merge))


@misuse(TypeError, r"keys of `kwargs`.*got 1", r"args=\(x,\)")
def kwargs_by_number(strategy):
    strategy.run(lambda **kwargs: 1, kwargs={1: 2})


@misuse(TypeError, r"keys of `kwargs`.*got 1", r"args=\(x,\)")
def merge_call_kwargs_by_number(strategy):
    strategy.run(lambda: context().merge_call(lambda s, **kwargs: 1, kwargs={1: 2}))


@misuse(RuntimeError, r"several replicas.*while JAX traces", r"rx\.function in place of jax\.jit")
def run_in_a_loop_of_jax(strategy):
    v = variable(strategy, aggregation=SUM)
    jax.lax.fori_loop(0, 3, lambda i, x: (strategy.run(lambda: v.assign_add(x)), x)[1], 1.0)


@misuse(TypeError, r"values_from_function was given an async", r"Pass a plain `def` function")
def distribute_values_of_an_async_function(strategy):
    async def value(value_context):
        return 1.0

    strategy.experimental_distribute_values_from_function(value)
