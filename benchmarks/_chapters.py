"""The chapters of the page, in their order: each benchmark with its tables."""

from dataclasses import dataclass

from _all_reduce_tables import SUMS
from _eager_tables import EAGER
from _input_tables import INPUT
from _keras_tables import KERAS_CPU, KERAS_GPU, KERAS_WALL
from _multi_worker_tables import FAULTS, SAVES, STARTS, WORKER_STEPS, WORKER_WORK
from _sharded_tables import LOGICAL, SHARDED_STEPS, STATE
from _step_tables import CALLS, FIRST_CALL, GPU_STEPS, MANY_STEPS, MEMORY, STEPS
from _tables import Table


@dataclass(frozen=True)
class Chapter:
    """What the page has of one benchmark."""

    title: str
    tables: tuple[Table, ...]


CHAPTERS = {
    "step": Chapter("Compiled steps", (STEPS, CALLS, MEMORY, MANY_STEPS)),
    "step_gpu": Chapter("Compiled steps on a GPU", (GPU_STEPS, CALLS, MEMORY, MANY_STEPS)),
    "first_call": Chapter("The first call of a step", (FIRST_CALL,)),
    "eager": Chapter("Eager steps", (EAGER,)),
    "input": Chapter("Input", (INPUT,)),
    "multi_worker": Chapter("Many workers", (WORKER_STEPS, WORKER_WORK, SAVES, STARTS)),
    "soak": Chapter("Faults of many workers", (FAULTS,)),
    "all_reduce": Chapter("Sums over the replicas", (SUMS,)),
    "sharded": Chapter("Sharded state and logical devices", (STATE, SHARDED_STEPS, LOGICAL)),
    "keras_fit": Chapter("Keras `fit`", (KERAS_WALL, KERAS_CPU)),
    "keras_fit_gpu": Chapter("Keras `fit` on a GPU", (KERAS_GPU, KERAS_CPU)),
    "accelerator": Chapter("Every strategy on a GPU", ()),
}
