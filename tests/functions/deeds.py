"""What replicas do inside JAX's control flow, in a compiled function: the same as in plain Python.

Each deed is a function from an array to an array of the same shape. It is done in a compiled
function inside `lax.scan`, `lax.cond` and so on; the expected numbers are those of eager replicas
that do it in a Python loop, without any control flow of JAX.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import replicax as rx
from tests.replicas import by_replica, context, parts_of

ON_READ = rx.VariableSynchronization.ON_READ
TIMES = 3  # rounds of the loops
SIZE = 2

Deed = Callable[[Any, Any], Any]


# ------------------------------------------------------------------ what is done


def make_state(strategy: Any) -> SimpleNamespace:
    """The variables, optimizer and metric of a small model."""
    plain = rx.Variable(jnp.ones(SIZE))  # outside of any scope: one array, for all replicas
    with strategy.scope():
        w = rx.Variable(jnp.array([0.5, -0.25]), aggregation="MEAN", name="w")
        optimizer = rx.Optimizer(optax.adam(0.1))
        optimizer.build([w])
        return SimpleNamespace(
            w=w,
            summed=rx.Variable(jnp.zeros(SIZE), aggregation="SUM"),
            first=rx.Variable(jnp.zeros(SIZE), aggregation="ONLY_FIRST_REPLICA"),
            own=rx.Variable(jnp.zeros(SIZE), synchronization=ON_READ, aggregation="SUM"),
            own_mean=rx.Variable(jnp.ones(SIZE), synchronization=ON_READ, aggregation="MEAN"),
            plain=plain,
            optimizer=optimizer,
            metric=rx.metrics.Mean(),
        )


def reads(s: Any, x: Any) -> Any:
    return jnp.tanh(x * s.w + s.own_mean.read_value() + s.plain)


def all_reduces(s: Any, x: Any) -> Any:
    return jnp.tanh(context().all_reduce("SUM", x * s.w)) + x


def reduces_a_structure(s: Any, x: Any) -> Any:
    found = context().all_reduce("MEAN", {"a": x, "b": [jnp.sum(x), 2 * x]})
    return found["a"] + found["b"][0] - found["b"][1] * x


def all_gathers(s: Any, x: Any) -> Any:
    joined = context().all_gather(x[None], axis=0)
    return jnp.tanh(x + joined[0] * joined[-1])


def uses_the_replicas_number(s: Any, x: Any) -> Any:
    return x + context().replica_id_in_sync_group * s.w


def merges_and_reduces(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        return strategy.extended.reduce_to("SUM", x, x)

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_a_batch(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any, y: Any) -> Any:
        return strategy.extended.batch_reduce_to("MEAN", [(x, x), (y, s.w)])

    a, b = context().merge_call(merge, (x, 2 * x + 1))
    return x + a - 0.5 * b


def merges_and_updates(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        total = strategy.extended.reduce_to("SUM", x, s.w)
        return strategy.extended.update(s.w, lambda copy, y: copy.assign_sub(0.1 * y), (total,))

    context().merge_call(merge, (x,))
    return x + s.w


def merges_and_updates_ungrouped(s: Any, x: Any) -> Any:
    def change(copy: Any, y: Any) -> Any:
        copy.assign_sub(0.1 * y)
        return copy.read_value() + y

    def merge(strategy: Any, x: Any) -> Any:
        total = strategy.extended.reduce_to("SUM", x, s.w)
        results = strategy.extended.update(s.w, change, (total,), group=False)
        assert isinstance(results, tuple)
        return results[0] + results[-1]

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_local_results(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        parts = strategy.experimental_local_results(x)
        return sum(index * part for index, part in enumerate(parts))

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_and_broadcasts(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        first = strategy.experimental_local_results(x)[0]
        return strategy.extended.broadcast_to(first, None)

    return x + context().merge_call(merge, (x,))


def merges_and_assigns(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        s.summed.assign_add(strategy.reduce("MEAN", x, axis=None))
        return s.summed.read_value()

    return x + context().merge_call(merge, (x,))


def differentiates(s: Any, x: Any) -> Any:
    loss, (gradient,) = rx.value_and_grad(lambda: jnp.sum(jnp.tanh(s.w * x) ** 2), [s.w])
    return x - 0.1 * gradient + 0.01 * loss


def differentiates_a_collective(s: Any, x: Any) -> Any:
    def loss() -> Any:
        mean = context().all_reduce("MEAN", s.w * x)
        joined = context().all_gather((s.w * x)[None], axis=0)
        return jnp.sum(jnp.square(s.w * x - mean)) + jnp.sum(joined**2)

    _, (gradient,) = rx.value_and_grad(loss, [s.w])
    return x - 0.1 * gradient


def differentiates_twice(s: Any, x: Any) -> Any:
    def gradient_norm() -> Any:
        gradient = rx.grad(lambda: jnp.sum(jnp.sin(s.w * x)), [s.w])[0]
        return jnp.sum(gradient**2)

    return x - 0.1 * rx.grad(gradient_norm, [s.w])[0]


def optimizes(s: Any, x: Any) -> Any:
    loss, gradients = rx.value_and_grad(lambda: jnp.sum((s.w - x) ** 2), [s.w])
    s.optimizer.apply_gradients(zip(gradients, [s.w]))
    return x + 0.01 * loss


def measures(s: Any, x: Any) -> Any:
    s.metric.update_state(x)
    return 2 * x + s.metric.result()


def assigns_a_sum(s: Any, x: Any) -> Any:
    s.summed.assign_add(x)
    return x + s.summed


def assigns_a_mean(s: Any, x: Any) -> Any:
    s.w.assign(s.w + x)
    s.w.assign_sub(0.5 * x)
    return x * s.w


def assigns_the_firsts(s: Any, x: Any) -> Any:
    s.first.assign(x)
    s.first.assign_sub(0.25 * x)
    return 2 * x + s.first


def assigns_its_own(s: Any, x: Any) -> Any:
    s.own.assign_add(x)
    s.own_mean.assign(s.own + s.own_mean)
    return x + s.own - 0.1 * s.own_mean


def assigns_what_has_no_copies(s: Any, x: Any) -> Any:
    s.plain.assign_add(jnp.ones(SIZE))
    return x + 1


def assigns_in_a_loss(s: Any, x: Any) -> Any:
    def loss() -> Any:
        s.own.assign_add(s.w * x)
        s.summed.assign_add(x)
        return jnp.sum(s.w**2 * x + s.summed)

    _, (gradient,) = rx.value_and_grad(loss, [s.w])
    return x - 0.1 * gradient


DEEDS: list[Deed] = [
    reads,
    all_reduces,
    reduces_a_structure,
    all_gathers,
    uses_the_replicas_number,
    merges_and_reduces,
    merges_a_batch,
    merges_and_updates,
    merges_and_updates_ungrouped,
    merges_local_results,
    merges_and_broadcasts,
    merges_and_assigns,
    differentiates,
    differentiates_a_collective,
    differentiates_twice,
    optimizes,
    measures,
    assigns_a_sum,
    assigns_a_mean,
    assigns_the_firsts,
    assigns_its_own,
    assigns_what_has_no_copies,
    assigns_in_a_loss,
]


# ------------------------------------------------------------------ where it is done


def agreed(x: Any) -> Any:
    """True, the same on all replicas, and not known before the program runs."""
    return context().all_reduce("SUM", jnp.sum(x * 0)) == 0


def in_cond(f: Any) -> Any:
    return lambda x: lax.cond(agreed(x), f, lambda x: x * jnp.nan, x)


def in_the_other_branch(f: Any) -> Any:
    return lambda x: lax.cond(agreed(x), lambda x: x + 1, f, x)


def in_switch(f: Any) -> Any:
    return lambda x: lax.switch(jnp.int32(1), [jnp.zeros_like, f, jnp.ones_like], x)


def in_scan(f: Any) -> Any:
    return lambda x: lax.scan(lambda x, _: (f(x), None), x, None, length=TIMES)[0]


def in_fori_loop(f: Any) -> Any:
    return lambda x: lax.fori_loop(0, TIMES, lambda _, x: f(x), x)


def in_while_loop(f: Any) -> Any:
    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < TIMES, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]

    return loop


def in_checkpoint(f: Any) -> Any:
    return lambda x: jax.checkpoint(f)(x)


def in_jit(f: Any) -> Any:
    return lambda x: jax.jit(f)(x)


def in_one_jit_called_again(f: Any) -> Any:
    kept = jax.jit(f)  # the second call must not see what the first one was traced with
    return lambda x: kept(kept(kept(x)))


def in_scan_of_cond(f: Any) -> Any:
    return in_scan(in_cond(in_jit(f)))


PLACES: list[tuple[Any, int]] = [
    (in_cond, 1),
    (in_switch, 1),
    (in_scan, TIMES),
    (in_fori_loop, TIMES),
    (in_while_loop, TIMES),
    (in_checkpoint, 1),
    (in_jit, 1),
    (in_one_jit_called_again, 3),
    (in_scan_of_cond, TIMES),
]


OFTEN = [p for p in PLACES if p[0] in (in_cond, in_scan, in_one_jit_called_again)]
SELDOM = [p for p in PLACES if p not in OFTEN]


def starts(strategy: Any) -> Any:
    return by_replica(strategy, lambda index: jnp.array([0.3, -0.7]) * (index + 1))


def outcome(strategy: Any, state: Any, result: Any) -> list[Any]:
    """Everything that can be seen afterwards."""
    metric = state.metric.variables
    variables = [state.w, state.summed, state.first, state.plain, *state.optimizer.variables]
    copies = [parts_of(strategy, each) for each in (state.own, state.own_mean, *metric)]
    return [parts_of(strategy, result), copies, [v.numpy() for v in variables]]


@functools.cache
def eagerly(make_strategy: Any, deed: Deed, times: int) -> list[Any]:
    """What is to be seen after one and after two runs of eager replicas."""
    strategy = make_strategy()
    state = make_state(strategy)

    def replica_fn(x: Any) -> Any:
        for _ in range(times):
            x = deed(state, x)
        return x

    x = strategy.run(replica_fn, (starts(strategy),))
    first = outcome(strategy, state, x)
    x = strategy.run(replica_fn, (x,))
    return [first, outcome(strategy, state, x)]


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), one, other)
