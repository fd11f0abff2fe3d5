"""One side of `first_call.py`: the seconds of a step's first call, in a process of its own.

Its arguments are the way ("replicax", "by_hand" or "tensorflow"), the model and the number of
devices.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from _child import answers_only, tensorflow_on
from _step_models import MODELS


def of_jax(way: str, model: str, devices: int) -> tuple[str, Callable[[], Any]]:
    import jax
    from _step_variants import ByHand, Replicax

    kind = Replicax if way == "replicax" else ByHand
    return jax.__version__, kind(MODELS[model], jax.devices()[:devices]).step


def of_tensorflow(model: str, devices: int) -> tuple[str, Callable[[], Any]]:
    from _step_tensorflow import make_step

    tf, strategy = tensorflow_on(devices)
    return tf.__version__, make_step(tf, strategy, MODELS[model])


def main() -> None:
    answer = answers_only()
    way, model, devices = sys.argv[1], sys.argv[2], int(sys.argv[3])
    made = of_tensorflow(model, devices) if way == "tensorflow" else of_jax(way, model, devices)
    version, step = made
    begin = time.perf_counter()
    loss = float(step())
    answer(seconds=time.perf_counter() - begin, loss=loss, version=version)


if __name__ == "__main__":
    main()
