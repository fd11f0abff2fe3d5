"""A step as plain Python: where it is stopped."""

import threading
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src.recording import Stopped, Watch

LIBRARY = "/nowhere/site-packages/models/step.py"


def stopped_in(file: str) -> Stopped:
    """Runs a function of a file in a thread of its own, as replicas do."""
    names: dict[str, Any] = {"lax": jax.lax}
    exec(compile("def step(x):\n    y = x - 1\n    return lax.log(y)\n", file, "exec"), names)
    found: list[Stopped] = []
    with Watch(found.append).watching():
        thread = threading.Thread(target=names["step"], args=(jnp.ones(()),))
        thread.start()
        thread.join()
    return found[0]


def test_a_step_that_a_library_makes_is_stopped_there():
    stopped = stopped_in(LIBRARY)
    assert stopped.line == "step.py:3 (step)"
    assert "y: float32[], 0 to 0" in str(stopped)
