"""The lines that load what `fn.export` wrote, as docs/serving.md has them."""

from pathlib import Path
from typing import Any

LOADER = """
import json
from pathlib import Path

import jax
import jax.export
import numpy as np


def load(folder):
    folder = Path(folder)
    program = jax.export.deserialize(bytearray((folder / "program.jax").read_bytes()))
    signature = json.loads((folder / "signature.json").read_text())
    with np.load(folder / "variables.npz") as stored:
        variables = [
            stored[each["key"]].view(jax.numpy.dtype(each["dtype"]))
            for each in signature["variables"]
        ]
    return jax.jit(lambda *args: program.call(variables, *args))
"""


def loaded(folder: Path) -> Any:
    names: dict[str, Any] = {}
    exec(LOADER, names)
    return names["load"](folder)
