"""Where the recorded checkpoints are, and what TensorFlow read from them."""

from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "recorded"
NAMES = RECORDED / "names" / "model.ckpt-1"
OBJECTS = RECORDED / "objects" / "ckpt-1"


def expected(prefix: Path) -> dict[str, np.ndarray]:
    """Returns the tensors by name; texts as hexadecimal numbers, bfloat16 as float32."""
    with np.load(f"{prefix}.expected.npz") as found:
        return {name.replace("|", "/"): found[name] for name in found.files}


def as_recorded(value: Any) -> np.ndarray:
    """Returns a value as it was recorded."""
    value = np.asarray(value)
    if value.dtype == object:
        return np.array([each.hex() for each in value.reshape(-1)]).reshape(value.shape)
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
