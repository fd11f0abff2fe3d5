"""`Strategy.reduce` and `Strategy.gather`: every worker gets what all replicas have together."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array
from .._layout import LAYOUTS, Layout
from .._observation import Observation
from .._registry import ours, scenario
from .._worker import InJob

OPS = ("SUM", "MEAN")
UNEVEN = (3, 1, 2, 4)
WITH_EMPTY = (3, 0, 2, 0)


def _matrices(lib: InJob) -> Any:
    return lib.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]) * lib.replica_number()


def _rows(lib: InJob, sizes: tuple[int, ...]) -> Any:
    """Rows that tell their replica; as many on each as the sizes say."""
    return lib.by_replica(
        [
            np.full((rows, 2), index + 1.0) + np.arange(rows)[:, None]
            for index, rows in enumerate(sizes)
        ]
    )


@scenario(*LAYOUTS, op=OPS)
def reduce_matrices(lib: InJob, strategy: Any, op: str) -> Any:
    value = lib.run(strategy, lambda: _matrices(lib))
    return {f"axis {axis}": strategy.reduce(op, value, axis=axis) for axis in (None, 0, 1, -1)}


@scenario(*LAYOUTS, op=OPS)
def reduce_scalars(lib: InJob, strategy: Any, op: str) -> Any:
    return strategy.reduce(op, lib.run(strategy, lib.replica_number), axis=None)


@scenario(*LAYOUTS, op=OPS)
def reduce_integers(lib: InJob, strategy: Any, op: str) -> Any:
    value = lib.run(strategy, lambda: lib.constant([1, 2], "int32") + lib.replica_id())
    return {
        "all": strategy.reduce(op, value, axis=None),
        "axis": strategy.reduce(op, value, axis=0),
    }


@scenario(*LAYOUTS, op=OPS, sizes=("uneven", "empty"))
def reduce_uneven(lib: InJob, strategy: Any, op: str, sizes: str) -> Any:
    value = _rows(lib, UNEVEN if sizes == "uneven" else WITH_EMPTY)
    return strategy.reduce(op, value, axis=0)


@scenario(*LAYOUTS, op=OPS)
def reduce_when_all_are_empty(lib: InJob, strategy: Any, op: str) -> Any:
    return strategy.reduce(op, _rows(lib, (0, 0, 0, 0)), axis=0)


@scenario(*LAYOUTS, op=OPS)
def reduce_values_from_function(lib: InJob, strategy: Any, op: str) -> Any:
    value = lib.by_replica([[1.0, 2.0], [3.0, 6.0], [5.0, 7.0], [0.0, 1.0]])
    return {
        "all": strategy.reduce(op, value, axis=None),
        "axis": strategy.reduce(op, value, axis=0),
    }


@scenario(*LAYOUTS, op=OPS)
def reduce_a_mirrored_variable(lib: InJob, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variable = lib.variable(3.0)
    return lib.outcome(lambda: strategy.reduce(op, variable, axis=None) + 0.0)


def _reduced_structure(layout: Layout, **_: Any) -> Observation:
    total = layout.replicas * (layout.replicas + 1) / 2.0
    matrix = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
    summed = [[item * total for item in row] for row in matrix]
    return {"a": array(summed), "b": {"tuple": [array(total)]}}


@scenario(*LAYOUTS)
@ours("each item of a structure is reduced", _reduced_structure)
def reduce_a_structure(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: {"a": _matrices(lib), "b": (lib.replica_number(),)})
    return lib.outcome(lambda: strategy.reduce("SUM", value, axis=None))


@scenario(*LAYOUTS)
def reduce_inside_scope(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    with strategy.scope():
        return strategy.reduce("mean", value, axis=None)


@scenario(*LAYOUTS, eager_only="one call, two ways")
def reduce_in_a_function(lib: InJob, strategy: Any) -> Any:
    @lib.function
    def step() -> Any:
        value = strategy.run(lambda: _matrices(lib))
        return [strategy.reduce("SUM", value, axis=axis) for axis in (None, 0)]

    return step()


@scenario(*LAYOUTS)
def reduce_what_all_reduce_gave(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: lib.context().all_reduce("SUM", lib.replica_number()))
    return {op: lib.outcome(lambda o=op: strategy.reduce(o, value, axis=None)) for op in OPS}


@scenario(*LAYOUTS, axis=(0, 1))
def gather(lib: InJob, strategy: Any, axis: int) -> Any:
    return strategy.gather(lib.run(strategy, lambda: _matrices(lib)), axis=axis)


@scenario(*LAYOUTS, sizes=("uneven", "empty"))
def gather_uneven(lib: InJob, strategy: Any, sizes: str) -> Any:
    value = _rows(lib, UNEVEN if sizes == "uneven" else WITH_EMPTY)
    return strategy.gather(value, axis=0)


@scenario(*LAYOUTS)
def gather_uneven_along_the_other_axis(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([np.full((2, columns), columns) for columns in (2, 1, 3, 1)])
    return strategy.gather(value, axis=1)


@scenario(*LAYOUTS)
def gather_integers(lib: InJob, strategy: Any) -> Any:
    return strategy.gather(lib.by_replica([[1, 2], [3], [4, 5, 6], []], "int32"), axis=0)


@scenario(*LAYOUTS)
@ours(
    "each item of a structure is gathered",
    lambda layout, **_: {"a": array([float(n + 1) for n in range(layout.replicas)])},
)
def gather_a_structure(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: {"a": lib.constant([1.0]) * lib.replica_number()})
    return lib.outcome(lambda: strategy.gather(value, axis=0))


@scenario(*LAYOUTS)
def gather_a_scalar(lib: InJob, strategy: Any) -> Any:
    return lib.refuses(lambda: strategy.gather(lib.run(strategy, lib.replica_number), axis=0))
