"""Python code that depends on the replica's number, compiled: the numbers of plain Python."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.functions.test_uneven_programs import flat, same, shares_of
from tests.replicas import context, mirrored

CONSTANTS = [2.0, 3.0, 5.0, 7.0]
BY_NAME = {0: 1.0, 1: -1.0, 2: 0.5, 3: 4.0}


def number() -> Any:
    return context().replica_id_in_sync_group


def looped(x: Any) -> Any:
    for _ in range(number()):
        x = x * 2
    return x


PROGRAMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a condition": (lambda x: x * 2 if number() == 0 else x, "as one program"),
    "a constant of each": (lambda x: x * CONSTANTS[number()], "as one program"),
    "from a dict": (lambda x: x + BY_NAME[number()], "as one program"),
    "from NumPy": (lambda x: x + np.asarray(CONSTANTS, np.float32)[number()], "as one program"),
    "a loop": (looped, "as one program"),
    "text": (lambda x: x * len("a" * int(number())), "as one program"),
    "another operation": (
        lambda x: [jnp.sin, jnp.cos, jnp.tanh, jnp.abs][number()](x),
        "as one program",
    ),
    "rows of each": (lambda x: x[: number() + 1].sum(), "as one program"),
    "a result of other shape": (lambda x: x[: number() + 1], "as one program"),
    "a sum of what differs": (
        lambda x: context().all_reduce("SUM", x.sum() * CONSTANTS[number()]),
        "as one program",
    ),
    "an array all the same": (lambda x: x * number(), "as one program"),
    "a number": (lambda x: CONSTANTS[number()], "eagerly, because"),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rows", [(4, 4, 4, 4), (3, 3, 2, 0)], ids=str)
def test_in_replicas(name: str, rows: tuple[int, ...]):
    fn, how = PROGRAMS[name]
    strategy = mirrored(4)

    def step(x: Any) -> Any:
        return strategy.run(fn, args=(x,))

    compiled = rx.function(step)
    for _ in range(2):
        same(flat(strategy, compiled(shares_of(rows))), flat(strategy, step(shares_of(rows))))
    if name != "a result of other shape":
        assert how in str(compiled.explain(shares_of(rows)))


def test_one_replica_has_a_number_too():
    strategy = mirrored(1)

    def replica_fn(x: Any) -> Any:
        return (x * 2 if number() == 0 else x), number()

    found = rx.function(lambda x: strategy.run(replica_fn, args=(x,)))(jnp.ones(2))
    same(list(found), [jnp.full(2, 2.0), jnp.asarray(0)])


def test_state_that_each_replica_changes_in_its_own_way():
    strategy = mirrored(2)
    kept: list[Any] = []
    for compiled in (False, True):
        with strategy.scope():
            v = rx.Variable(1.0, aggregation=rx.VariableAggregation.SUM)
            own = rx.Variable(
                1.0,
                synchronization=rx.VariableSynchronization.ON_READ,
                aggregation=rx.VariableAggregation.SUM,
            )

        def replica_fn(x: Any, v: Any = v, own: Any = own) -> Any:
            if number() == 1:
                x = x + 1
            v.assign_add(x.sum())
            own.assign_add(float(number()))
            return v + x.sum()

        def step(x: Any, replica_fn: Any = replica_fn) -> Any:
            return strategy.run(replica_fn, args=(x,))

        called: Any = rx.function(step) if compiled else step
        found = [flat(strategy, called(shares_of((2, 2)))) for _ in range(3)]
        kept.append([found, flat(strategy, v), flat(strategy, own)])
    same(*kept)


def test_a_collective_that_only_one_replica_reaches_is_told():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        return context().all_reduce("SUM", x) if number() == 0 else x

    with pytest.raises(rx.errors.ReplicaMismatchError):
        rx.function(lambda x: strategy.run(replica_fn, args=(x,)))(shares_of((2, 2)))


def test_two_runs_find_what_the_last_replica_left():
    strategy = mirrored(2)
    kept: dict[str, int] = {}

    def step(x: Any) -> Any:
        strategy.run(lambda: kept.update(number=int(number())))
        return strategy.run(lambda x: x * (kept["number"] + 1) + int(number()), args=(x,))

    x = shares_of((2, 2))
    same(flat(strategy, rx.function(step)(x)), flat(strategy, step(x)))


def test_a_condition_on_data_is_still_refused():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        return x * number() if x.sum() > 0 else x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        rx.function(lambda x: strategy.run(replica_fn, args=(x,)))(shares_of((2, 2)))


def test_one_trace_serves_all_where_numbers_are_only_computed_with():
    strategy = mirrored(4)
    traces: list[int] = []

    def replica_fn(x: Any) -> Any:
        traces.append(1)
        return jnp.where(number() == 0, x, -x)

    rx.function(lambda x: strategy.run(replica_fn, args=(x,)))(shares_of((2, 2, 2, 2)))
    assert len(traces) == 1


def test_many_replicas_are_traced_with_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("replicax._src.functions._programs._MANY_REPLICAS", 1)
    strategy = mirrored(2)
    step = rx.function(lambda x: strategy.run(lambda x: x * (2 if number() else 3), args=(x,)))
    with pytest.warns(UserWarning, match="each of its 2 replicas.*jnp.where"):
        step(shares_of((2, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(shares_of((2, 2)))
