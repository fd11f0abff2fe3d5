"""The arrays of a checkpoint are an Orbax checkpoint."""

import logging
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


def test_orbax_reads_it(tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ocp = pytest.importorskip("orbax.checkpoint")
        values = {
            "float": jnp.arange(6.0).reshape(2, 3),
            "bfloat16": jnp.ones(3, jnp.bfloat16) * 1.5,
            "scalar": jnp.int32(4),
            "bool": jnp.array([True, False]),
        }
        model = {name: rx.Variable(value) for name, value in values.items()}
        path = rx.train.Checkpoint(model=model).write(tmp_path / "ckpt")
        logging.getLogger("absl").setLevel(logging.ERROR)
        with ocp.PyTreeCheckpointer() as orbax:
            found = orbax.restore(Path(path) / "arrays")
    assert set(found) == {f"model/{name}" for name in values}
    for name, value in values.items():
        mine = found[f"model/{name}"]
        assert mine.dtype == value.dtype
        assert np.asarray(mine).tobytes() == np.asarray(value).tobytes()
