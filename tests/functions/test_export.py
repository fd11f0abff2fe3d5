"""`fn.export`: files that load with JAX and NumPy alone, and run with any size of the batch."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.exported import LOADER, loaded
from tests.scripts import run_python


def test_it_loads_without_replicax_and_takes_any_batch(tmp_path: Path):
    w = rx.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
    b = rx.Variable(jnp.ones(3, jnp.bfloat16))

    @rx.function
    def predict(x: Any) -> Any:
        return {"y": jax.nn.relu(x @ w + b), "rows": jnp.sum(x, axis=1)}

    predict.export(tmp_path / "out", rx.TensorSpec([None, 2]))
    program = LOADER + (
        "import sys\n"
        f"predict = load({str(tmp_path / 'out')!r})\n"
        "for rows in (1, 5):\n"
        "    found = predict(np.ones((rows, 2), np.float32))\n"
        "    print(found['y'].shape, found['y'].sum(), found['rows'].shape)\n"
        "print('replicax' in sys.modules)\n"
    )
    printed = run_python(["-c", program], tmp_path).splitlines()
    assert printed == ["(1, 3) 18.0 (1,)", "(5, 3) 90.0 (5,)", "False"]
    (tmp_path / "out" / "program.jax").stat()
    with pytest.raises(FileExistsError, match="is not overwritten"):
        predict.export(tmp_path / "out", rx.TensorSpec([None, 2]))
    (tmp_path / "next.replicax.partial").mkdir()
    with pytest.raises(FileExistsError, match="or one was killed. In that case remove it"):
        predict.export(tmp_path / "next", rx.TensorSpec([None, 2]))


def test_variables_of_a_strategy_and_several_arguments(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = rx.Variable([2.0, 3.0])

    class Model:
        @rx.function(input_signature=[rx.TensorSpec([None, 2]), {"b": rx.TensorSpec([None, None])}])
        def predict(self, x: Any, more: Any) -> Any:
            return (x * w).sum(1, keepdims=True) + more["b"]

    Model().predict.export(tmp_path / "out")
    predict = loaded(tmp_path / "out")
    for rows, columns in ((1, 3), (4, 2)):
        found = predict(np.ones((rows, 2), np.float32), {"b": np.ones((rows, columns), np.float32)})
        np.testing.assert_array_equal(found, np.full((rows, columns), 6.0))


def test_a_variable_with_a_copy_on_each_replica_is_exported_as_it_is_read(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        total = rx.Variable(
            0.0,
            synchronization=rx.VariableSynchronization.ON_READ,
            aggregation=rx.VariableAggregation.SUM,
        )
    strategy.run(lambda: total.assign_add(2.0))
    rx.function(lambda x: x * total).export(tmp_path / "out", rx.TensorSpec([None]))
    np.testing.assert_array_equal(loaded(tmp_path / "out")(np.ones(3, np.float32)), np.full(3, 4.0))


def test_loops_and_constants(tmp_path: Path):
    w, table = rx.Variable(2.0), jnp.arange(3.0)

    @rx.function
    def power(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, y: y * w, x) + table

    power.export(tmp_path / "out", rx.TensorSpec([None, 3]))
    np.testing.assert_array_equal(
        loaded(tmp_path / "out")(np.ones((2, 3), np.float32))[1], [8, 9, 10]
    )


def test_what_cannot_be_exported_is_said(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    total = rx.Variable(0.0)

    @rx.function
    def counts(x: Any) -> Any:
        total.assign_add(jnp.sum(x))
        return total.read_value()

    @rx.function
    def runs(x: Any) -> Any:
        return strategy.run(lambda: x * 2)

    spec = rx.TensorSpec([None])
    with pytest.raises(RuntimeError, match="only reads them. Export a function that predicts"):
        counts.export(tmp_path / "out", spec)
    with pytest.raises(RuntimeError, match="no program for one device"):
        runs.export(tmp_path / "out", spec)
    with pytest.raises(TypeError, match="takes an rx.TensorSpec for each argument"):
        counts.export(tmp_path / "out", 3)
    with pytest.raises(ValueError, match="has no number of dimensions"):
        counts.export(tmp_path / "out", rx.TensorSpec(None))
    assert not list(tmp_path.iterdir()) and total.numpy() == 0
