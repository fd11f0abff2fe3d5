"""Loops of compiled steps over data sets and iterators."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import mirrored, on_devices, parts_of

# ------------------------------------------------------------------ data sets and iterators


class Batches:
    """An iterable of per-replica batches, as a distributed data set is."""

    def __init__(self, strategy: Any, sizes: list[list[int]]):
        self._strategy, self._sizes = strategy, sizes

    def __iter__(self) -> Iterator[Any]:
        for number, sizes in enumerate(self._sizes):
            yield on_devices(self._strategy, [np.full(n, number + 1, np.float32) for n in sizes])


def epoch_of(strategy: Any, defined_anew: bool) -> tuple[Any, Any, list[int]]:
    traces: list[int] = []
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")

    def replica_fn(x: Any) -> Any:
        traces.append(1)
        v.assign_add(jnp.sum(x))
        return jnp.sum(x) * 2

    @rx.function
    def epoch(batches: Any) -> Any:
        total, count = 0.0, 0

        def anew(x: Any) -> Any:
            return replica_fn(x)

        for x in batches:
            fn = (lambda x: replica_fn(x)) if defined_anew else anew
            total += strategy.reduce("SUM", strategy.run(fn, (x,)), axis=None)
            count += 1
        return total, count

    return epoch, v, traces


@pytest.mark.parametrize("defined_anew", [False, True])
@pytest.mark.parametrize("as_iterator", ["dataset", "iterator", "generator", "list"])
def test_an_epoch_is_a_loop_of_compiled_steps(as_iterator: str, defined_anew: bool):
    strategy = mirrored(2)
    epoch, v, traces = epoch_of(strategy, defined_anew)
    batches: Any = Batches(strategy, [[2, 2]] * 5)
    total = 2 * 2 * (1 + 2 + 3 + 4 + 5)
    for calls in (1, 2):
        argument = {
            "dataset": lambda: batches,
            "iterator": lambda: iter(batches),
            "generator": lambda: (x for x in batches),
            "list": lambda: list(batches),
        }[as_iterator]()
        found, count = epoch(argument)
        assert float(found) == 2 * total and count == 5
        assert v.numpy() == calls * total
    if as_iterator == "list":
        assert len(traces) == 5  # a list is a structure of arguments: it is unrolled, once
    else:
        assert len(traces) == 1


def test_an_epoch_with_a_partial_last_batch():
    strategy = mirrored(2)
    epoch, v, traces = epoch_of(strategy, False)
    found, _ = epoch(Batches(strategy, [[2, 2], [2, 2], [2, 1]]))
    assert float(found) == 2 * (4 + 8 + 9)
    assert v.numpy() == 21.0
    assert len(traces) == 1 + 2  # compiled once; eagerly by each replica for the last
    found, _ = epoch(Batches(strategy, [[1, 0], [2, 2]]))
    assert v.numpy() == 21.0 + 1 + 8


def test_a_captured_iterator_and_next():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[int] = []

    def replica_fn(x: Any) -> None:
        traces.append(1)
        v.assign_add(jnp.sum(x))

    @rx.function
    def step(iterator: Any) -> None:
        strategy.run(replica_fn, (next(iterator),))

    iterator = iter(Batches(strategy, [[2, 2]] * 4))
    for _ in range(4):
        step(iterator)
    assert v.numpy() == 4 * (1 + 2 + 3 + 4)
    assert len(traces) == 1
    for error in (StopIteration, rx.errors.OutOfRangeError):
        with pytest.raises(error, match="step: the data ended"):
            step(iterator)
    assert thread_state.world is None


def test_an_epoch_in_a_method_with_state():
    strategy = mirrored(2)
    traces: list[int] = []

    class Trainer:
        def __init__(self) -> None:
            with strategy.scope():
                self.w = rx.Variable(jnp.ones(()))
                self.optimizer = rx.Optimizer(optax.sgd(0.01))

        def step(self, x: Any) -> Any:
            traces.append(1)
            loss, gradients = rx.value_and_grad(lambda: jnp.sum(self.w * x), [self.w])
            self.optimizer.apply_gradients(zip(gradients, [self.w]))
            return loss

        @rx.function
        def epoch(self, batches: Any) -> Any:
            losses = [strategy.run(self.step, (x,)) for x in batches]
            return losses[-1]

    trainers = [Trainer(), Trainer()]
    for trainer in trainers:
        trainer.epoch(Batches(strategy, [[1, 1]] * 3))
        np.testing.assert_allclose(trainer.w.numpy(), 1 - 0.01 * 2 * (1 + 2 + 3), rtol=1e-5)
    assert len(traces) <= 4  # once to make the optimizer's state, once more; for each


def test_numbers_of_the_loop_in_a_step_are_right():
    strategy = mirrored(2)
    traces: list[int] = []

    @rx.function
    def epoch(batches: Any) -> Any:
        results = []
        for number, x in enumerate(batches):

            def replica_fn(x: Any) -> Any:
                traces.append(1)
                return x + number  # noqa: B023 (called before the next one)

            results.append(strategy.run(replica_fn, (x,)))
        return results

    results = epoch(Batches(strategy, [[1, 1]] * 4))
    assert [float(parts_of(strategy, r)[1][0]) for r in results] == [1.0, 3.0, 5.0, 7.0]
    assert len(traces) == 4  # a number is a constant


def test_arrays_captured_in_a_step_of_a_loop_are_right():
    strategy = mirrored(2)

    @rx.function
    def epoch(batches: Any) -> Any:
        total = jnp.float32(0.0)
        for x in batches:
            y = strategy.run(lambda x: jnp.sum(x) + total, (x,))  # noqa: B023
            total = strategy.reduce("SUM", y, axis=None)
        return total

    assert float(epoch(Batches(strategy, [[1, 1]] * 3))) == ((1 + 1) * 2 + 4) * 2 + 6


def test_attributes_of_objects_that_a_step_in_a_loop_sees():
    # As eagerly; tf.function traces the body of such a loop once, and does not see them.
    strategy = mirrored(2)

    class Model:
        scale = 1.0

        def apply(self, x: Any) -> Any:
            return x * self.scale

    model = Model()

    @rx.function
    def epoch(batches: Any) -> Any:
        results = []
        for x in batches:
            results.append(strategy.run(model.apply, (x,)))
            model.scale *= 2
        return results

    results = epoch(Batches(strategy, [[1, 1]] * 3))
    assert [float(parts_of(strategy, r)[0][0]) for r in results] == [1.0, 4.0, 12.0]


# ------------------------------------------------------------------ errors leave nothing behind


def clean() -> bool:
    state = thread_state
    return state.world is None and not state.frames and not state.creators


def test_an_exception_in_a_loop_of_compiled_steps():
    strategy = mirrored(2)

    @rx.function
    def epoch(batches: Any) -> Any:
        for _ in batches:
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        epoch(Batches(strategy, [[1, 1]]))
    assert clean()
