"""What the things of a program are called in TensorFlow's checkpoints.

TensorFlow names attributes, as we do. What differs: optimizers, whose state is named after the
variables, and Keras, which has had several ways of naming layers. `integrations/keras` says those
of its objects, by the method `_tensorflow_children`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.checkpoints._graph import Spelling
from replicax._src.checkpoints.foreign._bundle import NO_ARRAY
from replicax._src.training import Optimizer
from replicax._src.variable import Variable

# Parts of the state of optimizers: what Optax calls them, or the attribute of a Keras 3 optimizer,
# and their names in checkpoints: of TensorFlow's slots, of Keras, of TensorFlow 1. Where the
# numbers mean something else, there is no entry: Optax's `trace` is not Keras's momentum, which has
# the learning rate in it.
_LABELS: dict[str, tuple[str, ...]] = {
    "mu": ("m", "_momentums", "Adam", "LAMB", "mg", "_average_gradients"),
    "nu": ("v", "_velocities", "Adam_1", "rms", "RMSProp", "vhat"),
    "count": ("_iterations",),
    "learning_rate": ("learning_rate",),
    "sum_of_squares": ("accumulator", "_accumulators", "Adagrad"),
    "_momentums": ("_momentums", "m", "momentum", "Adam", "RMSProp_1"),
    "_velocities": ("_velocities", "v", "rms", "Adam_1", "RMSProp"),
    "_velocity_hats": ("_velocity_hats", "vhat"),
    "_average_gradients": ("_average_gradients", "mg"),
    "momentums": ("momentums", "momentum", "Momentum"),
    "_accumulators": ("_accumulators", "accumulator", "Adagrad", "Ftrl"),
    "_linears": ("_linears", "linear", "Ftrl_1"),
    "_accumulated_grads": ("_accumulated_grads", "accum_grad", "Adadelta"),
    "_accumulated_delta_vars": ("_accumulated_delta_vars", "accum_var", "Adadelta_1"),
    "_m": ("_m", "_momentums", "m"),
    "_u": ("_u", "v"),
}
STATE_LISTS = tuple(label for label in _LABELS if label.startswith("_")) + ("momentums",)
ITERATIONS = ("_iterations", "iter", "iterations", "step")


class ConvertedSpelling(Spelling):
    """Our names, with values of another library: those count in 64 bits, and JAX in 32 or 64."""

    @override
    def is_same_dtype(self, mine: str, theirs: str) -> bool:
        return mine == theirs or (_is_integer(mine) and _is_integer(theirs))


@final
class TensorFlowSpelling(ConvertedSpelling):
    """Names as TensorFlow and Keras write them."""

    @override
    def children_of(self, value: object) -> Iterator[tuple[str, Any, Callable[[Any], None] | None]]:
        own = getattr(type(value), "_tensorflow_children", None)
        if own is not None:
            for name, child in own(value).items():
                yield name, child, None
        elif isinstance(value, Optimizer):
            for name in ITERATIONS:
                yield name, value.iterations, None
        elif getattr(type(value), "_is_checkpoint", False):
            checkpoint: Any = value
            for name, child in checkpoint._checkpoint_children(self).items():
                yield (
                    name,
                    child,
                    lambda new, name=name: checkpoint._checkpoint_put(name, new),
                )
        else:
            yield from super().children_of(value)

    @override
    def slots_of(
        self, value: object
    ) -> list[tuple[Variable | None, int | None, str, Variable]] | None:
        own = getattr(type(value), "_tensorflow_slots", None)
        return super().slots_of(value) if own is None else own(value)

    @override
    def labels_of(self, label: str) -> tuple[str, ...]:
        return (label, *_LABELS.get(label.rpartition("/")[2], ()))

    @override
    def may_lack(self, label: str) -> bool:
        return "hyperparams" in label.split("/")  # TensorFlow has the learning rate, at most


def _is_integer(dtype: str) -> bool:
    return dtype not in ("string", NO_ARRAY) and np.dtype(dtype).kind in "iu"


TENSORFLOW = TensorFlowSpelling()
# What a converted checkpoint says of its names: those of TensorFlow's objects, or of rules.
SPELLINGS: dict[str, Spelling] = {"tensorflow": TENSORFLOW, "names": ConvertedSpelling()}
