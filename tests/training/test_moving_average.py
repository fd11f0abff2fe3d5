"""`rx.train.ExponentialMovingAverage`: what TensorFlow 2.21 computes, under every strategy."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import context, mirrored, two_replicas

# After each of four calls of apply, with [1, 10] added to the variable in between.
RECORDED = {
    "decay": [[1.0, 2.0], [1.1, 3.0], [1.29, 4.9], [1.561, 7.61]],
    "num_updates": [
        [1.0, 2.0],
        [1.8181817531585693, 10.181818008422852],
        [2.704545497894287, 19.045454025268555],
        [3.6013987064361572, 28.01398468017578],
    ],
}


@pytest.mark.parametrize("kind", RECORDED)
def test_averages_are_tensorflows(strategy: Any, executor: Any, kind: str):
    with strategy.scope():
        w = rx.Variable([1.0, 2.0], name="w")
        steps = rx.Variable(0)
    updates = steps if kind == "num_updates" else None
    ema = rx.train.ExponentialMovingAverage(0.9, num_updates=updates)
    assert ema.average(w) is None
    seen = []
    for _ in range(4):
        executor.run(strategy, lambda: ema.apply([w]))
        average = ema.average(w)
        assert average is not None
        seen.append(average.numpy())
        w.assign_add([1.0, 10.0])
        steps.assign_add(1)
    np.testing.assert_allclose(seen, RECORDED[kind], rtol=1e-6)
    assert (average.name, average.trainable) == ("w/ExponentialMovingAverage:0", False)
    assert type(average) is type(w)


def test_averages_in_one_function_with_the_update():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable([1.0, 2.0])
        ema = rx.train.ExponentialMovingAverage(0.9)

    @rx.function
    def step() -> None:
        strategy.run(lambda: ema.apply([w]))
        w.assign_add([1.0, 10.0])

    for expected in RECORDED["decay"]:
        step()
        average = ema.average(w)
        assert average is not None
        np.testing.assert_allclose(average.numpy(), expected, rtol=1e-6)
    with strategy.scope():
        ema.apply()  # in cross-replica context, of those that it knows
    np.testing.assert_allclose(average.numpy(), [1.9049, 11.049], rtol=1e-5)


@two_replicas
def test_copies_that_differ_count_as_their_mean(strategy: Any, executor: Any):
    with strategy.scope():
        r = rx.Variable(1.0, synchronization="ON_READ", aggregation="SUM")
        ema = rx.train.ExponentialMovingAverage(0.9)

    def replica_fn() -> None:
        r.assign_add(20.0 * jnp.float32(context().replica_id_in_sync_group))
        ema.apply([r])

    executor.run(strategy, replica_fn)  # 1 and 21
    average = ema.average(r)
    assert average is not None
    np.testing.assert_allclose(average.numpy(), 2.0, rtol=1e-6)


@pytest.mark.parametrize("made_before", [True, False])
def test_averages_are_in_checkpoints(tmp_path: Path, made_before: bool):
    def program() -> tuple[Any, Any, Any]:
        with mirrored(2).scope():
            w = rx.Variable([1.0, 2.0])
            ema = rx.train.ExponentialMovingAverage(0.5)
        return w, ema, rx.train.Checkpoint(w=w, ema=ema)

    w, ema, checkpoint = program()
    for _ in range(2):
        ema.apply([w])
        w.assign([5.0, 6.0])
    path = checkpoint.save(tmp_path / "ckpt")
    w, ema, checkpoint = program()
    if made_before:
        ema.apply([w])
    checkpoint.restore(path)
    ema.apply([w])
    average = ema.average(w)
    assert average is not None
    np.testing.assert_allclose(average.numpy(), [4.0, 5.0])  # was [3, 4], and w [5, 6]


def test_what_has_no_average():
    ema = rx.train.ExponentialMovingAverage(0.9)
    ema.apply([])
    with pytest.raises(TypeError, match="floating-point"):
        ema.apply([rx.Variable(1)])
    with pytest.raises(TypeError, match=r"optax\.ema"):
        ema.apply([jnp.ones(2)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="from 0 to 1"):
        rx.train.ExponentialMovingAverage(1.5)
