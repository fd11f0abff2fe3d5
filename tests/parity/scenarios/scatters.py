"""Changes of single rows: `scatter_add` and its companions, over every aggregation."""

from __future__ import annotations

from typing import Any

from .._expected import mirrored_variable, raises
from .._library import AGGREGATIONS, Library
from .._registry import ours, scenario

METHODS = tuple(f"scatter_{how}" for how in ("add", "sub", "update", "min", "max", "mul", "div"))


def _scatter(lib: Library, variable: Any, method: str, rows: Any, values: Any) -> Any:
    slices = lib.IndexedSlices(values=lib.constant(values), indices=rows)
    return getattr(variable, method)(slices)


SETS = ("scatter_update", "scatter_min", "scatter_max")
MIRRORED = {"mirrored1": 1, "mirrored2": 2}


@scenario("mirrored2", "mirrored1", "default", aggregation=AGGREGATIONS[1:], method=METHODS)
@ours(
    "an error of ours says which aggregation to use",
    lambda strategy, **_: {
        "outcome": raises("ValueError"),
        "variable": mirrored_variable([8.0, 8.0, 8.0], MIRRORED[strategy]),
    },
    strategy=tuple(MIRRORED),
    aggregation=("SUM", "MEAN"),
    method=SETS,
)
def in_replicas(lib: Library, strategy: Any, aggregation: str, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable([8.0, 8.0, 8.0], "AUTO", aggregation)

    def replica_fn() -> None:
        _scatter(
            lib, variable, method, lib.constant([2, 1], "int32") * lib.replica_id(), [2.0, 4.0]
        )

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": lib.observe(variable)}


_AFTER = {"scatter_update": [2.0, 4.0], "scatter_min": [2.0, 4.0], "scatter_max": [6.0, 5.0]}


@scenario("mirrored2", "default", aggregation=AGGREGATIONS, method=METHODS)
@ours(
    "what is done once for all replicas needs no aggregation",
    lambda method, **_: {
        "outcome": True,
        "variable": mirrored_variable([[8.0, 7.0], _AFTER[method]]),
    },
    strategy="mirrored2",
    aggregation=("SUM", "MEAN"),
    method=SETS,
)
def for_all_replicas(lib: Library, strategy: Any, aggregation: str, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable([[8.0, 7.0], [6.0, 5.0]], "AUTO", aggregation)
        row = lib.constant([1], "int32")
        outcome = lib.outcome(
            lambda: _scatter(lib, variable, method, row, [[2.0, 4.0]]) is not None
        )
    return {"outcome": outcome, "variable": lib.observe(variable)}


ITEMS = (
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_nd_min",
    "scatter_nd_max",
)


@scenario("default", method=ITEMS)
def items(lib: Library, strategy: Any, method: str) -> Any:
    variable = lib.variable([[8.0, 7.0], [6.0, 5.0]])
    getattr(variable, method)([[0, 1], [1, 0]], [2.0, 40.0])
    getattr(variable, method)([[1]], [[3.0, 4.0]])
    return variable


@scenario("default")
def rows_of_batches_and_reads(lib: Library, strategy: Any) -> Any:
    variable = lib.variable([[8.0, 7.0], [6.0, 5.0]])
    _scatter(
        lib, variable, "batch_scatter_update", lib.constant([[0], [1]], "int32"), [[1.0], [2.0]]
    )
    return {
        "variable": variable,
        "sparse_read": variable.sparse_read([1, 0, 1]),
        "gather_nd": variable.gather_nd([[1, 0], [0, 0]]),
        "gather_rows": variable.gather_nd([[[1]]]),
    }
