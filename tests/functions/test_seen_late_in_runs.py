"""What compiled runs see of a change; equal constants; the order of dicts."""

import collections
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.functions.seen_late import CHANGES, Settings, losses_of
from tests.replicas import mirrored


@pytest.fixture
def v() -> Any:
    return rx.Variable(1.0)


# ------------------------------------------------------------------ functions given to `run`


def tpu() -> Any:
    return rx.distribute.TPUStrategy()


@pytest.mark.parametrize("what", CHANGES)
def test_changes_that_compiled_runs_see(what: str):
    make, read, change = CHANGES[what]
    held, strategy = make(), tpu()

    def once() -> float:
        result = strategy.run(lambda x: x * read(held), (jnp.float32(2),))
        return float(strategy.experimental_local_results(result)[0])

    before = once()
    change(held)
    assert (before, once()) == (2, 6)


@pytest.mark.parametrize("kind", ["in a loop over data", "by TPUStrategy"])
def test_keyword_only_defaults_of_compiled_runs(kind: str):
    strategy = tpu() if kind == "by TPUStrategy" else mirrored(2)

    def epoch(batches: Any) -> list[Any]:
        found = []
        for number, x in enumerate(batches):

            def helper(x: Any, *, k: Any = number) -> Any:
                return x * k

            found.append(strategy.run(lambda x, *, k=number: jnp.sum(x) * k, (x,)))
            found.append(strategy.run(lambda x, helper=helper: jnp.sum(helper(x)), (x,)))
        return found

    dataset = rx.data.Dataset.from_tensor_slices(np.ones(24, np.float32)).batch(8)
    function = epoch if kind == "by TPUStrategy" else rx.function(epoch)
    found = function(strategy.experimental_distribute_dataset(dataset))
    totals = [float(sum(strategy.experimental_local_results(each))) for each in found]
    assert totals == [0, 0, 8, 8, 16, 16]


def test_attributes_of_objects_that_compiled_runs_see():
    class Model:
        scale = 1.0

        def apply(self, x: Any) -> Any:
            return x * self.scale

    model, strategy = Model(), tpu()
    found = []
    for scale in (1.0, 2.0):
        model.scale = scale
        found.append(strategy.run(lambda x: model.apply(x), (jnp.float32(1),)))
        found.append(strategy.run(model.apply, (jnp.float32(1),)))
    assert [float(strategy.experimental_local_results(x)[0]) for x in found] == [1, 1, 2, 2]


def test_what_the_step_does_not_name_may_change_without_a_new_trace():
    traces = []

    class Trainer:
        def __init__(self) -> None:
            self.history: list[Any] = []
            self.count = 0
            self.scale = 2.0

        def step(self, x: Any) -> Any:
            traces.append(1)
            return x * self.scale

        def epoch(self) -> None:
            for _ in range(4):
                self.history.append(strategy.run(self.step, (jnp.float32(1),)))
                self.count += 1

    strategy, trainer = tpu(), Trainer()
    trainer.epoch()
    assert len(traces) == 1
    trainer.scale = 3.0
    trainer.epoch()
    assert len(traces) == 2
    assert float(strategy.experimental_local_results(trainer.history[-1])[0]) == 3


def test_attributes_that_are_read_by_a_computed_name(v: Any):
    class Model:
        def __init__(self) -> None:
            self.scale_a, self.scale_b = 1.0, 2.0

    model = Model()
    loss = lambda: v * getattr(model, "scale_" + "ab"[0])  # noqa: E731
    assert losses_of(loss, v, [lambda: setattr(model, "scale_a", 5.0)]) == [1, 5]
    loss = lambda: v * sum(vars(model).values())  # noqa: E731
    assert losses_of(loss, v, [lambda: setattr(model, "more", 5.0)]) == [7, 12]


def test_a_function_that_changes_what_it_reads_is_traced_each_time(v: Any):
    counts = [0]

    def loss() -> Any:
        counts[0] += 1
        return v * counts[0]

    assert [float(rx.value_and_grad(loss, [v], compile=True)[0]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "read", "change"),
    [
        (Settings, lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
        (lambda x: types.SimpleNamespace(k=x), lambda d: d.k, lambda d: setattr(d, "k", 3.0)),
        (lambda x: {x}, max, lambda d: d.add(3.0)),
    ],
)
def test_objects_among_the_arguments_of_compiled_runs(given: Any, read: Any, change: Any):
    strategy, value = tpu(), given(1.0)

    def once() -> float:
        result = strategy.run(lambda x, held: x * read(held), (jnp.float32(2), value))
        return float(strategy.experimental_local_results(result)[0])

    before = once()
    change(value)
    assert (before, once()) == (2, 6)


# ------------------------------------------------------------------ arguments that are constants


def test_constants_that_are_equal_and_not_the_same():
    @rx.function
    def kinds(x: Any, chosen: frozenset[Any]) -> Any:
        (one,) = chosen
        return x * (2 if one is True else 3)

    x = jnp.float32(1)
    assert float(kinds(x, frozenset({1}))) == 3
    assert float(kinds(x, frozenset({True}))) == 2
    assert float(kinds(x, frozenset({1.0}))) == 3


def test_sets_and_keys_of_dicts_by_their_exact_values():
    @rx.function
    def kinds(chosen: Any) -> Any:
        return [type(each).__name__ for each in chosen]

    x: Any = jnp.ones(2)
    chosen: set[Any] = {1}
    assert [kinds({key: x}) for key in (1, True, 1.0)] == [["int"], ["bool"], ["float"]]
    assert [kinds({key: x, 0: x}) for key in (1, True)] == [["int", "int"], ["bool", "int"]]
    assert [kinds(frozenset({(key,)})) for key in (1, 2)] == [["tuple"], ["tuple"]]
    assert kinds(chosen) == ["int"]
    chosen.add("text")
    assert sorted(kinds(chosen)) == ["int", "str"]


# ------------------------------------------------------------------ dicts keep their order


@pytest.mark.parametrize("compile", [False, True])
def test_what_a_loss_returns_beside_itself_keeps_its_order(compile: bool, v: Any):
    def loss() -> Any:
        return v * 2, {"z": v * 3, "a": Settings({"y": v * 4, "x": None})}

    (_, aux), _ = rx.value_and_grad(loss, [v], has_aux=True, compile=compile)
    assert list(aux) == ["z", "a"] and list(aux["a"].scale) == ["y", "x"]
    assert float(aux["z"]) == 3 and float(aux["a"].scale["y"]) == 4


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, lambda x: collections.defaultdict(int, x)]
)
def test_dicts_keep_their_order_in_and_out(kind: Any, strategy: Any, executor: Any):
    def step(batch: Any, **more: Any) -> Any:
        total = jnp.concatenate(list(batch.values()), -1) @ jnp.float32([100, 10, 1])
        return {
            "z": total,
            "order": list(batch),
            "a": kind({"y": total, "x": total * 2}),
            "m": list(more),
        }

    given = kind({"height": jnp.float32([1]), "age": jnp.float32([1]), "b": jnp.float32([0])})
    result = executor.run(strategy, step, (given,), {"size": jnp.float32(1), "area": 2})
    assert list(result) == ["z", "order", "a", "m"]
    assert list(result["a"]) == ["y", "x"]
    assert result["order"] == ["height", "age", "b"]
    assert result["m"] == ["size", "area"]
    assert float(strategy.experimental_local_results(result["z"])[0]) == 110
    assert type(result["a"]) is type(kind({}))


def test_uneven_batches_see_dicts_as_even_ones_do():
    strategy = mirrored(2)
    w = jnp.float32([[100.0], [1.0]])

    @rx.function
    def step(batch: Any) -> Any:
        def replica(batch: Any) -> Any:
            return jnp.sum(jnp.concatenate(list(batch.values()), -1) @ w)

        return strategy.reduce("SUM", strategy.run(replica, (batch,)), axis=None)

    rows = {"height": np.ones((3, 1), np.float32), "age": np.zeros((3, 1), np.float32)}
    dataset = rx.data.Dataset.from_tensor_slices(rows).batch(2)
    found = [float(step(x)) for x in strategy.experimental_distribute_dataset(dataset)]
    assert found == [200, 100]


def test_elements_mapped_on_devices_keep_their_order():
    strategy = mirrored(2)
    rows = {"b": np.arange(4), "a": np.arange(4) * 10}
    rows = {name: each.astype(np.float32) for name, each in rows.items()}

    def mapped(row: Any) -> Any:
        assert list(row) == ["b", "a"]
        return {"z": row["a"], **row}

    dataset = rx.data.Dataset.from_tensor_slices(rows).batch(2).map(mapped, on_device=True)
    for batch in strategy.experimental_distribute_dataset(dataset):
        assert list(batch) == ["z", "b", "a"]
