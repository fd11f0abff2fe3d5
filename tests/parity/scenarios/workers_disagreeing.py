"""Workers that do not do the same: all get an error that names what each does, and can go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import raises
from .._layout import LAYOUTS
from .._registry import ours, scenario
from .._worker import InJob

HOST = "nothing runs on replicas"
BROKEN = "TensorFlow hangs, or collectives no longer work after the error"
TOLD = "all workers are told"


@scenario(*LAYOUTS, eager_only=HOST, not_in_tensorflow=BROKEN, what=("shape", "dtype"))
@ours(TOLD, raises("RuntimeError"))
def variables(lib: InJob, strategy: Any, what: str) -> Any:
    value = np.zeros(
        2 + (lib.worker if what == "shape" else 0),
        "int32" if what == "dtype" and lib.worker else "float32",
    )

    def make() -> None:
        with strategy.scope():  # its end is where workers compare what they have made
            lib.variable(value)

    return lib.outcome(make)


@scenario(*LAYOUTS, eager_only=HOST, not_in_tensorflow=BROKEN, what=("columns", "rank"))
@ours(TOLD, raises("ValueError"))
def gathered(lib: InJob, strategy: Any, what: str) -> Any:
    shape = (1, 2 + lib.worker) if what == "columns" else (1,) * (1 + lib.worker)
    value = strategy.experimental_distribute_values_from_function(
        lambda _: lib.constant(np.ones(shape))
    )
    return lib.outcome(lambda: strategy.gather(value, axis=0))
