"""Replicas whose arrays differ in shape, in one program: the numbers of plain Python.

Each program is run as Python and compiled, on shares of different sizes. Most are one program; the
others say why they are left to Python.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import mirrored

SHARES = [(3, 3, 2, 1), (4, 4, 0, 0)]
ONE_PROGRAM = "as one program"


def context() -> Any:
    return rx.get_replica_context()


def total(value: Any) -> Any:
    return context().all_reduce("SUM", value)


def scan(x: Any) -> Any:
    return jax.lax.scan(lambda carry, row: (carry + row, carry), jnp.zeros(2), x)


def reduced_in_merge(number: Any) -> Any:
    def merge(strategy: Any, number: Any) -> Any:
        return strategy.reduce("SUM", number, axis=None)

    return context().merge_call(merge, args=(number,))


def of_all_rows(x: Any) -> Any:
    weights = jnp.arange(9.0)[:, None]  # one for each row, of which there are nine at most

    def loss(x: Any) -> Any:
        rows = context().all_gather(jnp.sin(x), axis=0)
        return jnp.sum(rows * weights[: len(rows)])

    return jax.grad(loss)(x)


IN_REPLICAS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "rows": (lambda x: x, ONE_PROGRAM),
    "a nested result": (lambda x: {"b": x[:, 0], "a": (x.sum(), None, "text")}, ONE_PROGRAM),
    "the number of rows, summed": (lambda x: total(x.shape[0]), ONE_PROGRAM),
    "as a float": (lambda x: total(float(len(x))), ONE_PROGRAM),
    "as a NumPy array": (lambda x: total(np.ones(2, np.float32) * len(x)), ONE_PROGRAM),
    "as an array": (lambda x: total(jnp.ones(2) * len(x)), ONE_PROGRAM),
    "as a mean": (lambda x: context().all_reduce("MEAN", jnp.float32(len(x))), ONE_PROGRAM),
    "as an array of each": (lambda x: jnp.float32(len(x)), ONE_PROGRAM),
    "as a number of each": (lambda x: len(x), "may be their number of rows"),
    "weak in some": (lambda x: jnp.asarray(2.0) if len(x) > 2 else x.sum(), "eagerly, because"),
    "in a merge_call": (lambda x: reduced_in_merge(len(x)), "may be their number of rows"),
    "as an array in a merge_call": (lambda x: reduced_in_merge(jnp.float32(len(x))), ONE_PROGRAM),
    "what is the same everywhere": (lambda x: jnp.zeros(2), ONE_PROGRAM),
    "a number that is the same": (lambda x: (3, x), "may be their number of rows"),
    "centered": (lambda x: x - total(x.sum(0)) / total(jnp.float32(len(x))), ONE_PROGRAM),
    "the replica's number": (lambda x: x * context().replica_id_in_sync_group, ONE_PROGRAM),
    "a condition": (lambda x: jax.lax.cond(x.sum() > 10, jnp.sin, jnp.cos, x.sum()), ONE_PROGRAM),
    "a loop": (scan, ONE_PROGRAM),
    "random numbers": (lambda x: jax.random.normal(jax.random.key(0), x.shape), ONE_PROGRAM),
    "an inner jit": (lambda x: jax.jit(lambda x: jnp.tanh(x) * x)(x), ONE_PROGRAM),
    "the mean of a batch": (
        lambda x: rx.nn.compute_average_loss(x[:, 0], global_batch_size=9),
        ONE_PROGRAM,
    ),
    "gathered": (lambda x: context().all_gather(x, axis=0), "eagerly, because"),
    "as many as there are": (of_all_rows, "may have other shapes"),
    "without items": (lambda x: x[:0], "no items"),
}


@pytest.mark.parametrize("name", IN_REPLICAS)
@pytest.mark.parametrize("rows", SHARES, ids=str)
def test_in_replicas(name: str, rows: tuple[int, ...]):
    fn, how = IN_REPLICAS[name]
    strategy = mirrored(4)
    agree(strategy, lambda x: strategy.run(fn, args=(x,)), shares_of(rows), how)


def left_by_a_run(strategy: Any, x: Any) -> Any:
    kept: dict[str, int] = {}
    strategy.run(lambda x: kept.update(rows=len(x)), args=(x,))
    return strategy.run(lambda x: x * kept["rows"], args=(x,))


def handed_on(strategy: Any, x: Any) -> Any:
    kept: dict[str, int] = {}
    strategy.run(lambda x: kept.update(rows=len(x)), args=(x,))
    return strategy.run(lambda x, rows: x * rows, args=(x, kept["rows"]))


def left_array(strategy: Any, x: Any) -> Any:
    kept: dict[str, Any] = {}
    strategy.run(lambda x: kept.update(total=x.sum()), args=(x,))
    return strategy.run(lambda x: x * kept["total"], args=(x,))


ACROSS_REPLICAS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a mean over rows": (lambda s, x: s.reduce("MEAN", x, axis=0), ONE_PROGRAM),
    "a mean over everything": (lambda s, x: s.reduce("MEAN", x, axis=[0, 1]), ONE_PROGRAM),
    "a sum over rows": (lambda s, x: s.reduce("SUM", x, axis=0), ONE_PROGRAM),
    "two runs": (
        lambda s, x: s.run(jnp.add, args=(x, s.run(lambda x: x * 2, args=(x,)))),
        ONE_PROGRAM,
    ),
    "numbers of rows, summed": (
        lambda s, x: s.reduce("SUM", s.run(lambda x: x.shape[0], args=(x,)), axis=None),
        "may be their number of rows",
    ),
    "a number of rows in a later run": (lambda s, x: left_by_a_run(s, x), ONE_PROGRAM),
    "as its argument": (lambda s, x: handed_on(s, x), ONE_PROGRAM),
    "an array in a later run": (lambda s, x: left_array(s, x), "eagerly, because"),
    "gathered": (lambda s, x: s.gather(x, axis=0), "eagerly, because"),
    "all rows, counted": (
        lambda s, x: jnp.float32(sum(len(part) for part in s.experimental_local_results(x))),
        "eagerly, because",
    ),
    "one component": (lambda s, x: s.experimental_local_results(x)[1] * 2, "eagerly, because"),
    "components of one shape": (
        lambda s, x: s.experimental_local_results(s.run(jnp.sum, args=(x,)))[1] * 2,
        ONE_PROGRAM,
    ),
}


@pytest.mark.parametrize("name", ACROSS_REPLICAS)
@pytest.mark.parametrize("rows", SHARES, ids=str)
def test_across_replicas(name: str, rows: tuple[int, ...]):
    fn, how = ACROSS_REPLICAS[name]
    strategy = mirrored(4)
    agree(strategy, lambda x: fn(strategy, x), shares_of(rows), how)


ASSIGNMENTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "SUM": (lambda v, x: v["SUM"].assign(x.sum()), ONE_PROGRAM),
    "the number of rows": (lambda v, x: v["SUM"].assign_add(float(len(x))), ONE_PROGRAM),
    "MEAN": (lambda v, x: v["MEAN"].assign_sub(x.sum()), ONE_PROGRAM),
    "ONLY_FIRST_REPLICA": (lambda v, x: v["ONLY_FIRST_REPLICA"].assign(x.sum()), ONE_PROGRAM),
    "ON_READ": (lambda v, x: v["ON_READ"].assign_add(x.sum()), ONE_PROGRAM),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
@pytest.mark.parametrize("rows", SHARES, ids=str)
def test_assignments(name: str, rows: tuple[int, ...]):
    fn, how = ASSIGNMENTS[name]
    strategy = mirrored(4)
    kept: list[Any] = []
    for compiled in (False, True):
        with strategy.scope():
            variables = {
                name: rx.Variable(1.0, aggregation=rx.VariableAggregation[name])
                for name in ("SUM", "MEAN", "ONLY_FIRST_REPLICA")
            }
            variables["ON_READ"] = rx.Variable(
                1.0,
                synchronization=rx.VariableSynchronization.ON_READ,
                aggregation=rx.VariableAggregation.SUM,
            )

        def replica_step(x: Any, variables: Any = variables) -> None:
            fn(variables, x)

        def step(x: Any, replica_step: Any = replica_step) -> None:
            strategy.run(replica_step, args=(x,))

        called: Any = rx.function(step) if compiled else step
        for _ in range(3):
            called(shares_of(rows))
        if compiled:
            assert how in str(called.explain(shares_of(rows)))
        kept.append([flat(strategy, each) for each in variables.values()])
    same(*kept)


LAYOUTS: dict[str, Callable[[], Any]] = {
    "4 replicas": lambda: mirrored(4),
    "2 replicas of 2 devices": lambda: mirrored(
        4,
        logical_devices_per_replica=2,
        state_layout=rx.distribute.StateLayout(rules={"w": [1, 2]}, min_size=2),
    ),
    "optimizer in parts": lambda: mirrored(
        4, state_layout=rx.distribute.StateLayout("optimizer", min_size=2)
    ),
    "everything in parts": lambda: mirrored(
        4, state_layout=rx.distribute.StateLayout("everything", min_size=2)
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_training_with_a_last_batch_and_metrics(layout: str):
    """Two epochs of 37 rows in batches of 10 on 4 replicas: four shapes, and one of 7 rows."""
    rows = np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32)

    def train(strategy: Any, compiled: bool) -> Any:
        with strategy.scope():
            w = rx.Variable(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), name="w")
            optimizer = rx.Optimizer(optax.adam(0.1))
            mean = rx.metrics.Mean()

        def replica_step(x: Any, y: Any) -> Any:
            def loss_fn() -> Any:
                errors = (jnp.tanh(x @ w).sum(-1) - y) ** 2
                mean.update_state(errors)
                return rx.nn.compute_average_loss(errors, global_batch_size=10)

            loss, gradients = rx.value_and_grad(loss_fn, [w])
            optimizer.apply_gradients(zip(gradients, [w], strict=True))
            return loss

        def step(x: Any, y: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)

        called: Any = rx.function(step) if compiled else step
        dataset = rx.data.Dataset.from_tensor_slices((rows, rows.sum(1))).batch(10)
        losses = [
            float(called(x, y))
            for _ in range(2)
            for x, y in strategy.experimental_distribute_dataset(dataset)
        ]
        if compiled:
            *_, (x, y) = strategy.experimental_distribute_dataset(dataset)
            assert ONE_PROGRAM in str(called.explain(x, y))
        return losses, w.numpy(), float(mean.result())

    expected = train(mirrored(1), False)
    same(train(LAYOUTS[layout](), True), expected)
    if layout == "4 replicas":
        same(train(mirrored(4), False), expected)


def test_one_program_serves_shares_in_any_order():
    strategy = mirrored(4)
    traces: list[Any] = []

    @rx.function
    def doubled(x: Any) -> Any:
        traces.append(1)
        return strategy.run(lambda x: x * 2, args=(x,))

    doubled(shares_of((1, 1, 1, 1)))
    traces.clear()
    for rows in [(3, 3, 2, 2), (2, 3, 3, 2), (3, 2, 2, 2)]:
        found = strategy.experimental_local_results(doubled(shares_of(rows)))
        assert [part.shape[0] for part in found] == list(rows)
        same(list(found), [part * 2 for part in shares_of(rows).values])
    assert len(traces) == 2  # one for each size


def test_several_arguments_have_their_own_shapes():
    strategy = mirrored(2)
    a, b = shares_of((3, 2)), shares_of((1, 4))
    agree(strategy, lambda x: strategy.run(lambda a, b: a.sum() * b, args=x), (a, b), ONE_PROGRAM)


def test_replicas_that_meet_in_different_ways_are_told():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        return context().all_reduce("SUM" if len(x) > 2 else "MEAN", x.sum())

    step = rx.function(lambda x: strategy.run(replica_fn, args=(x,)))
    step(shares_of((3, 3)))
    with pytest.raises(rx.errors.ReplicaMismatchError):
        step(shares_of((3, 2)))


def test_a_mean_of_rows_with_strict_promotion():
    strategy = mirrored(2)
    with jax.numpy_dtype_promotion("strict"):
        agree(strategy, lambda x: strategy.reduce("MEAN", x, axis=0), shares_of((3, 2)), "as one")


def test_too_many_shapes_are_left_to_python():
    strategy = mirrored(8)
    x = shares_of(tuple(range(1, 9)))
    agree(strategy, lambda x: strategy.run(jnp.sum, args=(x,)), x, "4 of them at most")


def test_a_function_that_makes_variables_on_an_uneven_call():
    strategy = mirrored(2)
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            with strategy.scope():
                made.append(rx.Variable(2.0))
        return strategy.run(lambda x: x.sum() * made[0], args=(x,))

    for _ in range(3):
        same(step(shares_of((3, 1))), [part.sum() * 2 for part in shares_of((3, 1)).values])
    assert len(made) == 1
    assert ONE_PROGRAM in str(step.explain(shares_of((3, 1))))
    made.clear()
    with pytest.raises(ValueError, match="on a call after the first"):
        step(shares_of((2, 1)))


def test_a_variable_made_from_what_the_first_replica_has():
    strategy = mirrored(2)
    kept: list[list[Any]] = []
    for compiled in (False, True):
        made: list[Any] = []

        def replica_fn(x: Any, made: list[Any] = made) -> Any:
            if not made:
                made.append(rx.Variable(x.sum(0), aggregation=rx.VariableAggregation.SUM))
            made[0].assign_add(x.sum(0))
            return made[0] * 2

        def step(x: Any, replica_fn: Any = replica_fn) -> Any:
            return strategy.run(replica_fn, args=(x,))

        called: Any = rx.function(step) if compiled else step
        kept.append([flat(strategy, called(shares_of(rows))) for rows in [(3, 1), (3, 1), (2, 2)]])
    same(*kept)


@pytest.mark.parametrize("rows", [(3, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("then", ["sum", "gather", "number", "no items"])
def test_more_done_in_the_call_that_makes_variables_is_told(then: str, rows: tuple[int, ...]):
    """The function is traced again, or left to Python, and would not do it a second time."""
    strategy = mirrored(2)
    made: list[Any] = []
    in_replicas: dict[str, Callable[[Any], Any]] = {
        "number": lambda x: x.sum() * (made[0] if context().replica_id_in_sync_group else 1.0),
        "no items": lambda x: x[:0] * made[0],
    }

    def step(x: Any) -> Any:
        if not made:
            with strategy.scope():
                made.append(rx.Variable(2.0))
            made[0].assign(5.0)
        result = strategy.run(in_replicas.get(then, lambda x: x.sum() * made[0]), args=(x,))
        return (result, strategy.gather(x, axis=0)) if then == "gather" else result

    try:
        rx.function(step)(shares_of(rows))
    except ValueError as error:
        assert "Make the variables before, in strategy.scope()" in str(error)
    else:
        np.testing.assert_array_equal(made[0], 5.0)


def left_to_code(strategy: Any, x: Any) -> Any:
    kept: dict[str, Any] = {}
    strategy.run(lambda x: kept.update(total=x.sum()), args=(x,))
    return kept["total"] * 2, kept["total"]


def left_by_all(strategy: Any, x: Any) -> Any:
    """What replicas do together is done once, and there is no last one."""
    kept: dict[str, Any] = {}

    def merge(strategy: Any, total: Any) -> None:
        kept["total"] = strategy.reduce("SUM", total, axis=None)

    strategy.run(lambda x: context().merge_call(merge, args=(x.sum(),)), args=(x,))
    return strategy.run(lambda x: x * kept["total"], args=(x,))


@pytest.mark.parametrize(
    "fn, how",
    [
        (left_array, "the last replica has left"),
        (left_to_code, "the last replica has left"),
        (left_by_all, ONE_PROGRAM),
    ],
)
def test_arrays_that_replicas_leave_in_python(fn: Callable[[Any, Any], Any], how: str):
    strategy = mirrored(2)
    agree(strategy, lambda x: fn(strategy, x), shares_of((2, 2)), how)


def test_more_done_before_the_devices_are_known_is_told():
    made: list[Any] = []

    def step() -> Any:
        if not made:
            made.append(rx.Variable(2.0))
            made[0].assign(5.0)
        value = made[0] * 2
        return mirrored(2).run(lambda: value + 1)

    with pytest.raises(ValueError, match="'Variable:0' assigns it, and a later one does not"):
        rx.function(step)()


def test_each_call_has_its_own_reason_to_be_left_to_python():
    strategy = mirrored(4)
    step = rx.function(lambda x: strategy.run(lambda x: x if len(x) < 5 else len(x), args=(x,)))
    many, few = shares_of((6, 5, 5, 5)), shares_of((4, 3, 2, 1))
    gathered = rx.function(lambda x, how: strategy.gather(x, axis=0) if how else step(x))
    for x, how in [(many, False), (few, True)]:
        gathered(x, how)
    assert "number of rows" in str(gathered.explain(many, False))
    assert "exchange" in str(gathered.explain(few, True))


def test_steps_of_uneven_items_are_one_program():
    strategy = mirrored(2)
    traces: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)

    items = [shares_of(rows) for rows in [(2, 2), (2, 2), (2, 1), (1, 2), (2, 1)]]
    expected = [sum(float(part.sum()) for part in item.values) for item in items]
    np.testing.assert_allclose(step.steps(items), expected, rtol=1e-6)
    assert len(traces) == 3
    rows = rx.function(lambda x: strategy.run(lambda x: x * 2, args=(x,)))
    same(rows.steps(items[2:3] * 2), [jnp.stack([part * 2] * 2) for part in items[2].values])


def test_a_signature_that_leaves_the_number_of_rows_open():
    strategy = mirrored(2)

    @rx.function(input_signature=[rx.TensorSpec([None, 2], jnp.float32)])
    def step(x: Any) -> Any:
        return strategy.run(lambda x: x - x.mean(0), args=(x,))

    for rows in [(3, 1), (2, 2), (2, 3)]:
        same(step(shares_of(rows)), [part - part.mean(0) for part in shares_of(rows).values])
    assert ONE_PROGRAM in str(step.explain(shares_of((3, 1))))


def test_random_keys_that_only_some_replicas_need():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        keys = jax.random.split(jax.random.key(3), len(x))
        if len(x) > 1:
            keys = jax.vmap(jax.random.fold_in)(keys, jnp.arange(len(x)))
        return jax.vmap(jax.random.uniform)(keys) + total(x.sum())

    agree(strategy, lambda x: strategy.run(replica_fn, args=(x,)), shares_of((3, 1)), ONE_PROGRAM)


def test_constants_that_each_trace_makes_anew_are_the_same():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(np.zeros(2, np.float32), aggregation=rx.VariableAggregation.SUM)

    def step(x: Any) -> None:
        strategy.run(lambda x: v.assign_add(x.sum(0)), args=(x,))
        v.assign(v * np.asarray([2.0, 3.0], np.float32))

    step = rx.function(step)
    step(shares_of((3, 1)))
    assert ONE_PROGRAM in str(step.explain(shares_of((3, 1))))


def shares_of(rows: tuple[int, ...]) -> Any:
    whole = np.linspace(-1, 2, sum(rows) * 2, dtype=np.float32).reshape(-1, 2)
    return rx.distribute.PerReplica(
        [jnp.asarray(part) for part in np.split(whole, np.cumsum(rows)[:-1])]
    )


def agree(strategy: Any, fn: Callable[[Any], Any], x: Any, how: str) -> None:
    """Python and the compiled function give the same; the function runs as expected."""
    compiled = rx.function(fn)
    for _ in range(2):
        same(flat(strategy, compiled(x)), flat(strategy, fn(x)))
    assert how in " ".join(str(compiled.explain(x)).split())


def flat(strategy: Any, structure: Any) -> list[Any]:
    """All components of all leaves."""
    leaves = jax.tree.leaves(
        structure, is_leaf=lambda leaf: isinstance(leaf, rx.distribute.DistributedValues)
    )
    return [list(strategy.experimental_local_results(leaf)) for leaf in leaves]


def same(found: Any, expected: Any) -> None:
    if isinstance(found, rx.distribute.DistributedValues):
        found = list(found.values)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if isinstance(one, str):
            assert one == other
        else:
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
