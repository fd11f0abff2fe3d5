"""Variables that several workers make: many in one exchange, from the first worker's values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.cluster import Membership

from ..processes import result, run_workers

MANY = 100


class Topics:
    """What the workers exchange, by counting it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        exchange = Membership.exchange

        def counted(membership: Membership, topic: str, *args: Any, **kwargs: Any) -> Any:
            self.seen.append(topic)
            return exchange(membership, topic, *args, **kwargs)

        Membership.exchange = counted  # type: ignore[method-assign]  # in this process alone


def _make_many() -> None:
    topics = Topics()
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        made = [rx.Variable(np.full(3, 10.0 * worker + i), name=f"v{i}") for i in range(MANY)]
    result("exchanges", topics.seen.count("variables"))
    result("values", [float(each.numpy()[1]) for each in made])


def test_many_variables_are_one_exchange():
    for worker in run_workers(_make_many, 2):
        assert worker.results["exchanges"] == 1
        assert worker.results["values"] == [float(i) for i in range(MANY)]


def _kinds(worker: int) -> dict[str, Any]:
    return {
        "float": np.full((2, 3), 1.5 + worker, np.float32),
        "half": jnp.full(5, 2 + worker, jnp.bfloat16),
        "flag": worker == 0,
        "byte": np.arange(3, dtype=np.int8) + np.int8(worker),
        "key": jax.random.key(7 + worker),
        "empty": np.zeros((0, 4), np.float32),
        "same": np.ones(2, np.float32),
    }


def _make_kinds() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        made = {name: rx.Variable(value) for name, value in _kinds(worker).items()}
    key = made.pop("key")
    result("key", jax.random.key_data(key.value()).tolist())
    result("dtypes", {name: str(each.dtype) for name, each in made.items()})
    result("values", {name: np.asarray(each, np.float32).tolist() for name, each in made.items()})


def test_every_dtype_comes_from_the_first_worker():
    expected = _kinds(0)
    key = expected.pop("key")
    for worker in run_workers(_make_kinds, 2, devices=2):
        assert worker.results["key"] == jax.random.key_data(key).tolist()
        for name, value in expected.items():
            assert worker.results["values"][name] == np.asarray(value, np.float32).tolist()
            assert worker.results["dtypes"][name] == str(jnp.asarray(value).dtype)


def _read_in_between() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    seen = []
    with strategy.scope():
        made = []
        for i in range(12):
            made.append(rx.Variable(float(i + 100 * worker)))
            if i % 3 == worker:  # each worker looks where the other one does not
                seen.append(float(made[i]))
            if i % 4 == worker:
                made[i].assign_add(0.5)
    changed = rx.Variable(0.0)  # not in the scope: nobody else has to know
    result("seen", seen)
    result("own", float(changed))
    total = strategy.reduce("SUM", strategy.run(lambda: sum(each.value() for each in made)), None)
    result("total", float(total))


def test_a_worker_may_read_and_change_what_others_have_not_compared_yet():
    zero, one = run_workers(_read_in_between, 2)
    assert zero.results["seen"] == [0.0, 3.0, 6.0, 9.0]
    assert one.results["seen"] == [1.0, 4.0, 7.0, 10.0]
    assert zero.results["total"] == one.results["total"] == 2 * 66.0 + 6 * 0.5


def _make_in_program() -> None:
    topics = Topics()
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            made.extend(rx.Variable(jnp.full(2, i + 10.0 * worker)) for i in range(20))
        return x + sum(each.value()[0] for each in made)

    def run() -> float:
        return float(strategy.reduce("MEAN", strategy.run(step, args=(1.0,)), axis=None))

    result("results", [run(), run()])
    result("exchanges", topics.seen.count("variables"))


def test_a_compiled_function_makes_its_variables_in_one_exchange():
    for worker in run_workers(_make_in_program, 2):
        assert worker.results["results"] == [191.0, 191.0]
        assert worker.results["exchanges"] == 1


def _large() -> None:
    topics = Topics()
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        made = [
            rx.Variable(np.full(1 << 23, i + 10.0 * worker, np.float32), name=f"v{i}")
            for i in range(3)
        ]
        result("exchanges", topics.seen.count("variables"))
    result("values", [float(each.numpy()[-1]) for each in made])


def test_large_values_do_not_wait_for_the_end_of_the_scope():
    for worker in run_workers(_large, 2):
        assert worker.results["exchanges"] == 1
        assert worker.results["values"] == [0.0, 1.0, 2.0]


def _disagree(kind: str) -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    kernel = None
    try:
        with strategy.scope():
            rx.Variable(1.0, name="first")
            if kind == "shape":
                kernel = rx.Variable(np.ones(3 + worker), name="kernel")
            elif kind == "dtype":
                kernel = rx.Variable(np.ones(3, ("int32", "float32")[worker]), name="kernel")
            elif not worker:
                kernel = rx.Variable(np.ones(3), name="kernel")
    except rx.errors.ReplicaMismatchError as error:
        result("error", str(error))
        if kernel is not None:
            with pytest.raises(rx.errors.ReplicaMismatchError, match="kernel"):
                kernel.numpy()


def _other_shape() -> None:
    _disagree("shape")


def _other_dtype() -> None:
    _disagree("dtype")


def _one_more() -> None:
    _disagree("number")


@pytest.mark.parametrize(
    ("program", "one"),
    [
        (_other_shape, "variable 'kernel:0' (AUTO, NONE): float32[4]"),
        (_other_dtype, "variable 'kernel:0' (AUTO, NONE): float32[3]"),
        (_one_more, "nothing more"),
    ],
)
def test_workers_that_make_different_variables_are_told_which(program: Any, one: str):
    for worker in run_workers(program, 2):
        assert "worker 0: variable 'kernel:0' (AUTO, NONE):" in worker.results["error"]
        assert f"worker 1: {one}" in worker.results["error"]
