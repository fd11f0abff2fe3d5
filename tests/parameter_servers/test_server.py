"""A server, without Ray: arrays, changes, optimizers, and what it does not have."""

import json
import os
import threading
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.parameter_servers._messages import (
    Assignment,
    Gradient,
    LostError,
    OptimizerSpec,
    Part,
    Push,
    RowChange,
    Update,
)
from replicax._src.parameter_servers._server import ParameterServer
from replicax._src.parameter_servers._server_optimizer import ServerOptimizer
from replicax._src.training import UpdateRule
from replicax._src.variable import Change, Scatter

RECORDED = json.loads(
    (Path(__file__).parent / "recorded" / "facts.json").read_text(encoding="utf-8")
)
TABLE = np.arange(12.0, dtype=np.float32).reshape(6, 2) / 10


def value_of(server: ParameterServer, key: int) -> np.ndarray:
    return server.pull({key: -1}).values[key][1]


def push(server: ParameterServer, *changes, token=None, read_at=None, updates=()) -> int:
    return server.push(Push(token, read_at, list(changes), list(updates)))


def optimizer(server: ParameterServer, transformation, slots, shared=None) -> None:
    spec = OptimizerSpec(transformation, [None], None, [Part(0, 1, slots)], shared or {})
    server._optimizers["o"] = ServerOptimizer(spec)


def test_only_what_has_changed_is_sent_again():
    server = ParameterServer(0)
    server.create({1: np.ones(2), 2: np.zeros(3)})
    first = server.pull({1: -1, 2: -1})
    push(server, Assignment(1, Change.ADD, np.ones(2)))
    again = server.pull({key: version for key, (version, _) in first.values.items()})
    assert list(again.values) == [1]
    np.testing.assert_array_equal(again.values[1][1], [2, 2])


def test_an_update_that_comes_twice_is_carried_out_once():
    server = ParameterServer(0)
    server.create({1: np.zeros(())})
    one = Assignment(1, Change.ADD, np.ones(()))
    for _ in range(2):
        push(server, one, token=("f", 0))
    push(server, one, token=("f", 1))
    assert value_of(server, 1) == 2


def test_what_is_missing_is_named_and_nothing_is_changed():
    server = ParameterServer(3)
    server.create({1: np.zeros(())})
    with pytest.raises(LostError) as caught:
        push(
            server,
            Assignment(1, Change.ADD, np.ones(())),
            Assignment(7, Change.ADD, np.ones(())),
        )
    assert (caught.value.server, caught.value.keys) == (3, [7])
    assert value_of(server, 1) == 0
    push(server, Assignment(7, Change.ASSIGN, np.ones(2)))  # so it is restored
    np.testing.assert_array_equal(value_of(server, 7), [1, 1])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Scatter.ADD, [3, 1, 2]),
        (Scatter.SUB, [-3, 1, 2]),
        (Scatter.UPDATE, [2, 1, 2]),
        (Scatter.MAX, [2, 1, 2]),
        (Scatter.MIN, [0, 1, 2]),
        (Scatter.MUL, [0, 1, 2]),
        (Scatter.DIV, [0, 1, 2]),
    ],
)
def test_rows_that_come_twice(how: Scatter, expected: list[float]):
    server = ParameterServer(0)
    server.create({1: np.arange(3.0)})
    push(server, RowChange(1, how, np.array([0, 0]), np.array([1.0, 2.0])))
    np.testing.assert_array_equal(value_of(server, 1), expected)


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_gradients_of_rows_are_those_of_the_whole(name: str):
    """Where a gradient of zero changes nothing, rows alone give the same numbers."""
    transformation = getattr(optax, name)(0.1)
    server = ParameterServer(0)
    server.create({1: TABLE, 2: np.full_like(TABLE, 0.1)})
    optimizer(server, transformation, {"0/sum_of_squares": 2} if name == "adagrad" else {})
    values, state = TABLE, transformation.init([TABLE])
    for step in range(3):
        rows, found = np.array([step, 4]), np.array([[1, 2], [3, -1]], np.float32) * (step + 1)
        push(server, updates=[Update("o", [Gradient(0, 1, found, rows)])])
        whole = np.zeros_like(TABLE)
        whole[rows] = found
        updates, state = transformation.update([whole], state, [values])
        values = np.asarray(values + updates[0])
        np.testing.assert_allclose(value_of(server, 1), values, rtol=1e-6)


def test_adam_on_rows_changes_these_alone_and_counts_steps():
    server = ParameterServer(0)
    zeros = np.zeros_like(TABLE)
    server.create({1: TABLE, 2: zeros, 3: zeros, 4: np.zeros((), np.int32)})
    optimizer(server, optax.adam(0.1), {"0/mu": 2, "0/nu": 3}, {"0/count": 4})
    gradient = Gradient(0, 1, np.ones((1, 2), np.float32), np.array([2]))
    for _ in range(2):
        push(server, updates=[Update("o", [gradient])])
    changed = np.any(value_of(server, 1) != TABLE, axis=1)
    assert changed.tolist() == [False, False, True, False, False, False]
    np.testing.assert_allclose(value_of(server, 1)[2], TABLE[2] - 0.2, rtol=1e-5)
    assert value_of(server, 4) == 2


def test_a_step_without_gradients_for_a_server_is_counted():
    """Others have some: the next step here is that of the same number."""
    server = ParameterServer(0)
    zeros = np.zeros_like(TABLE)
    server.create({1: TABLE, 2: zeros, 3: zeros, 4: np.zeros((), np.int32)})
    rate = optax.piecewise_constant_schedule(1.0, {2: 0.1})
    optimizer(server, optax.sgd(rate), {}, {"1/count": 4})
    for _ in range(2):
        push(server, updates=[Update("o", [])])
    np.testing.assert_array_equal(value_of(server, 1), TABLE)
    assert value_of(server, 4) == 2
    push(server, updates=[Update("o", [Gradient(0, 1, np.ones_like(TABLE))])])
    np.testing.assert_allclose(value_of(server, 1), TABLE - 0.1, rtol=1e-6)


def test_staleness_is_the_number_of_updates_in_between():
    server = ParameterServer(0)
    server.create({1: TABLE})
    optimizer(server, optax.sgd(0.1), {})
    read_at = server.pull({1: -1}).updates
    update = Update("o", [Gradient(0, 1, np.ones_like(TABLE))])
    assert [push(server, read_at=read_at, updates=[update]) for _ in range(3)] == [0, 1, 2]


def outcome_of(server: ParameterServer, token: str):
    server._tasks._running[token].thread.join()
    return server.task_outcome(token)


def test_a_task_has_the_values_of_when_it_was_started():
    server = ParameterServer(0)
    server.create({1: TABLE.copy()})
    rows, values = np.array([0]), np.ones((1, 2), np.float32)
    push(server, RowChange(1, Scatter.ADD, rows, values))
    go_on, found = threading.Event(), {}
    before = np.array(value_of(server, 1))

    def work(arrays):
        go_on.wait()
        found.update(arrays)
        return {"a file": (1, 2)}

    server.start_task("t", work, {"table": 1})
    assert server.task_outcome("t") is None
    push(server, RowChange(1, Scatter.ADD, rows, values))
    go_on.set()
    assert outcome_of(server, "t") == ({"a file": (1, 2)}, None)
    np.testing.assert_array_equal(found["table"], before)
    assert value_of(server, 1)[0, 0] == before[0, 0] + 1


def test_what_a_task_has_read_is_adopted_and_not_sent():
    server = ParameterServer(2)
    server.create({1: np.zeros(2)})
    server.start_task("t", lambda: {1: np.ones(2), 7: np.ones(3)})
    assert outcome_of(server, "t") == (None, None)
    server.adopt_task("t")
    np.testing.assert_array_equal(value_of(server, 1), [1, 1])
    np.testing.assert_array_equal(value_of(server, 7), [1, 1, 1])
    server.end_task("t")
    with pytest.raises(LostError):
        server.task_outcome("t")


def test_the_error_of_a_task_is_told():
    server = ParameterServer(0)

    def work():
        raise OSError(28, "no space left")

    server.start_task("t", work)
    outcome = outcome_of(server, "t")
    assert outcome is not None
    _, error = outcome
    assert isinstance(error, OSError) and error.errno == 28


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_the_numbers_of_tensorflow(name: str, form: str):
    """Three updates of three rows, as rows and as a whole."""
    transformation, slots, shared = {
        "sgd": (optax.sgd(0.5), [], []),
        "adagrad": (optax.adagrad(0.5, initial_accumulator_value=0.1, eps=1e-7), ["sums"], []),
        "adam": (rx.train.adam(0.5), ["mu", "nu"], ["count"]),
    }[name]
    server = ParameterServer(0)
    table = np.linspace(0, 1.1, 12, dtype=np.float32).reshape(6, 2)
    initial = transformation.init([table])
    rule = UpdateRule(transformation, [None], None, initial)
    server.create({1: table})
    keys: dict[str, int] = {}
    for label, leaf in zip(rule.labels, jax.tree_util.tree_leaves(initial), strict=True):
        keys[label] = len(keys) + 2
        server.create({keys[label]: np.asarray(leaf)})
    owners = dict(zip(rule.labels, rule.owners, strict=True))
    own = {label: key for label, key in keys.items() if owners[label] is not None}
    assert (len(own), len(keys) - len(own)) == (len(slots), len(shared))
    everywhere = {label: key for label, key in keys.items() if owners[label] is None}
    optimizer(server, transformation, own, everywhere)
    rows = np.array([0, 4, 5])
    for _ in range(3):
        whole = np.zeros((6, 2), np.float32)
        whole[rows] = 1
        dense = Gradient(0, 1, whole)
        given = Gradient(0, 1, whole[rows], rows) if form == "sparse" else dense
        push(server, updates=[Update("o", [given])])
    expected = RECORDED["sparse"][f"{form} {name}"]
    np.testing.assert_allclose(value_of(server, 1), expected, rtol=2e-6, atol=1e-6)


def test_a_keras_optimizer_updates_rows_and_counts():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    from replicax._src.integrations.keras._server_rule import KerasRule, OfVariable

    config = keras.optimizers.Adam(0.5).get_config()
    rule = KerasRule(keras.optimizers.Adam, config, [OfVariable(None, False)])
    server = ParameterServer(0)
    table = np.linspace(0, 1.1, 12, dtype=np.float32).reshape(6, 2)
    zeros = np.zeros_like(table)
    server.create(
        {1: table, 2: zeros, 3: zeros, 4: np.asarray(0, np.int32), 5: np.asarray(0.5, np.float32)}
    )
    optimizer(server, rule, {"momentum": 2, "velocity": 3}, {"0": 4, "1": 5})
    rows = np.array([0, 4, 5])
    for _ in range(3):
        one = Assignment(4, Change.ADD, np.ones((), np.int32))
        gradient = Gradient(0, 1, np.ones((3, 2), np.float32), rows)
        push(server, one, updates=[Update("o", [gradient])])
    assert value_of(server, 4) == 3
    expected = RECORDED["sparse"]["sparse adam"]
    np.testing.assert_allclose(value_of(server, 1), expected, rtol=2e-6, atol=1e-6)
