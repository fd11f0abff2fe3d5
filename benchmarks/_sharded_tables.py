"""The tables of `sharded.py`, and the goals they are held to."""

from typing import Any

from _tables import Column, Goal, Table


def _in_parameters(field: str) -> Any:
    """Bytes in times of the bytes of all parameters (P)."""
    return lambda row: row[field] / (4 * row["parameters"])


STATE = Table(
    "state",
    "State on each device, and the most that a step needs.",
    (
        Column("cut over the replicas", "layout"),
        Column("held, MB", lambda row: row["held"] / 1e6, ".1f"),
        Column("in P", _in_parameters("held"), ".3f"),
        Column("should be", _in_parameters("expected"), ".3f"),
        Column("held / should be", lambda row: row["held"] / row["expected"], ".3f"),
        Column("peak, in P", _in_parameters("peak"), ".2f"),
        Column("peak, annotations", _in_parameters("annotated_peak"), ".2f"),
        Column("peak, shard_map", _in_parameters("mapped_peak"), ".2f"),
    ),
    goals=(
        Goal(
            "state on a device within 5% of what it should be (the share it is off)",
            lambda row: abs(row["held"] / row["expected"] - 1),
            0.05,
        ),
    ),
)
SHARDED_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("cut over the replicas", "layout"),
        Column("replicax", "replicax", ".2f"),
        Column("annotations", "annotated", ".2f"),
        Column("shard_map", "mapped", ".2f"),
        Column("replicax / annotations", "over_annotated", ".3f", "JAX, annotations"),
        Column("replicax / shard_map", "over_mapped", ".3f", "JAX, shard_map"),
    ),
    what="a step with sharded state",
    goals=(
        Goal(
            "at most 1.05 times the faster step by hand", lambda row: row.get("over_faster"), 1.05
        ),
    ),
)
LOGICAL = Table(
    "logical",
    "Median milliseconds of a step on images split over logical devices; the losses agree.",
    (
        Column("replicas of 2 x 2", "replicas"),
        Column("replicax", "replicax", ".2f"),
        Column("annotations", "annotated", ".2f"),
        Column("replicax / annotations", "ratio", ".3f", "JAX, annotations"),
        Column("peak, MB", lambda row: row["peak"] / 1e6, ".1f"),
        Column("peak, annotations", lambda row: row["annotated_peak"] / 1e6, ".1f"),
    ),
    what="a step on split images",
    goals=(Goal("at most 1.05 times the step with annotations", "replicax / annotations", 1.05),),
)
