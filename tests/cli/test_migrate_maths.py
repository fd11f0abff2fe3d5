"""What `replicax migrate` writes for maths computes what TensorFlow has computed.

`scripts/record_maths.py` has recorded that, for the calls of `maths_inputs.py`.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.cli.migrate import port
from tests.cli.maths_inputs import arrays, calls

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "maths.json").read_text()
)["results"]

# In a file without Keras, in one with Keras models, and in functions of a data set.
PLACES = {
    "jax": ("", "z = ", ""),
    "keras": ("layer = tf.keras.layers.Dense(1)\n", "z = ", ""),
    "numpy": ("ds = tf.data.Dataset.range(1)\n", "z = ds.map(lambda _: ", ")"),
}


def expressions(place: str) -> dict[str, str | None]:
    """What the calls become, each in a line; None if it is left, and marked."""
    head, before, after = PLACES[place]
    lines = [f"{before}{call}{after}" for call in RECORDED]
    result = port(("import tensorflow as tf\n" + head + "\n".join(lines)).encode())
    new = [each for each in result.new.splitlines() if each.startswith(before)][-len(lines) :]
    first = 2 + head.count("\n")
    left = {each.line - first for each in result.findings if each.verdict.by_hand}
    return {
        call: None if number in left else line.removeprefix(before).removesuffix(after)
        for number, (call, line) in enumerate(zip(RECORDED, new, strict=True))
    }


def leaves(value: Any) -> list[np.ndarray]:
    parts = value if isinstance(value, list | tuple) else [value]
    return [np.asarray(each) for each in parts]


@pytest.mark.parametrize("place", PLACES)
def test_ported_calls_compute_what_tensorflow_does(place: str):
    assert list(RECORDED) == calls()
    inputs: dict[str, Any] = arrays()
    if place != "numpy":
        inputs = {name: jnp.asarray(value) for name, value in inputs.items()}
    modules = {"jax": jax, "jnp": jnp, "np": np, "keras": keras, "optax": optax, "rx": rx}
    wrong, left = [], []
    for call, new in expressions(place).items():
        recorded = RECORDED[call]
        if new is None:
            left.append(call)
            continue
        found = eval(new, {**modules, **inputs})
        is_split = isinstance(found, list | tuple)
        expected = [np.asarray(each) for each in recorded] if is_split else [np.asarray(recorded)]
        for one, other in zip(leaves(found), expected, strict=True):
            close = one.shape == other.shape and np.allclose(
                one.astype(np.float64), other.astype(np.float64), rtol=2e-5, atol=2e-5
            )
            if not close:
                wrong.append(f"{call} -> {new}: {one.shape} {other.shape}")
    assert not wrong, "\n".join(wrong)
    if place != "numpy":  # of which many functions are JAX's alone
        assert not left
