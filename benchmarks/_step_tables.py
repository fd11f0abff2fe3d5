"""The tables of `step.py`, and the goals they are held to."""

from _tables import Column, Goal, Row, Table

FEW, MANY = 10, 500  # variables of a call


def _several(row: Row) -> bool:
    return row["devices"] > 1


def _narrow(row: Row) -> bool:
    return row.get("model") == "deep_narrow" and row["devices"] > 1


def _narrow_8(row: Row) -> bool:
    return row.get("model") == "deep_narrow" and row["devices"] == 8


BY_HAND, SHARDED, TENSORFLOW = "replicax / by hand", "replicax / sharded", "TensorFlow / replicax"

STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("model", "title"),
        Column("devices", "devices"),
        Column("replicax", "replicax", ".2f"),
        Column("by hand", "by_hand", ".2f"),
        Column("sharded", "sharded", ".2f"),
        Column("TensorFlow", "tensorflow", ".2f"),
        Column(BY_HAND, "over_by_hand", ".3f", "JAX by hand"),
        Column(SHARDED, "over_sharded", ".3f", "JAX, sharded batch"),
        Column(TENSORFLOW, "speedup", ".3f", "TensorFlow", faster=True),
    ),
    what="a compiled step",
    labels=2,
    mean=True,
    goals=(
        Goal("at most 1.03 times the step by hand", BY_HAND, 1.03),
        Goal("at most 1 on fifty layers of 16 with 2 or more devices", BY_HAND, 1.0, only=_narrow),
        Goal("and at most 0.4 with 8", BY_HAND, 0.4, only=_narrow_8),
        Goal(
            "at least 1.25 times faster than TensorFlow with 2 or more devices",
            TENSORFLOW,
            1.25,
            at_least=True,
            only=_several,
        ),
        Goal(
            "and 1.6 times in the geometric mean",
            TENSORFLOW,
            1.6,
            at_least=True,
            mean=True,
            only=_several,
        ),
    ),
)
GPU_STEPS = Table(
    STEPS.key,
    STEPS.title,
    STEPS.columns,
    "a compiled step, on a GPU",
    (Goal("at most 1.01 times the step by hand", BY_HAND, 1.01),),
    STEPS.labels,
)
CALLS = Table(
    "calls",
    "Median microseconds of a call that adds one to each variable.",
    (
        Column("variables", "variables"),
        Column("devices", "devices"),
        Column("replicax", "replicax", ".0f"),
        Column("jax.jit", "jit", ".0f"),
        Column("above", "above", ".0f"),
        Column("replicax / jax.jit", "ratio", ".2f", "jax.jit"),
    ),
    what="a call of a compiled function",
    labels=2,
    goals=(
        Goal(
            f"with {FEW} variables at most 60 microseconds above jax.jit",
            "above",
            60,
            only=lambda row: row["variables"] == FEW,
        ),
        Goal(
            f"with {MANY} variables at most 1.3 times jax.jit",
            "replicax / jax.jit",
            1.3,
            only=lambda row: row["variables"] == MANY,
        ),
    ),
)
MEMORY = Table(
    "memory",
    "Bytes: of live arrays on all devices, and the most that a step needs on one.",
    (
        Column("model", "title"),
        Column("devices", "devices"),
        Column("live after 2 steps", "early", ","),
        Column("after all", "late", ","),
        Column("peak", "peak", ","),
        Column("peak by hand", "by_hand_peak", ","),
        Column(BY_HAND, lambda row: row["peak"] / row["by_hand_peak"], ".3f", "JAX by hand"),
    ),
    what="memory of a compiled step",
    labels=2,
    goals=(
        Goal(
            "live bytes after all steps as after 2, times",
            lambda row: row["late"] / row["early"],
            1.0,
        ),
        Goal("a peak of at most 1.05 times the step by hand", BY_HAND, 1.05),
    ),
)
STEPS_IN_ONE = 10
MANY_STEPS = Table(
    "many",
    f"Median microseconds of {STEPS_IN_ONE} steps of a tiny model.",
    (
        Column("devices", "devices"),
        Column(f"{STEPS_IN_ONE} calls", "calls", ".0f"),
        Column("one call", "one_call", ".0f"),
        Column("times faster", "speedup", ".1f"),
    ),
    goals=(
        Goal(
            f"{STEPS_IN_ONE} small steps in one call at least 3 times faster",
            "times faster",
            3.0,
            at_least=True,
        ),
    ),
)
FIRST_CALL = Table(
    "first_call",
    "Seconds of the first call, which traces and compiles.",
    (
        Column("devices", "devices"),
        Column("replicax", "replicax", ".2f"),
        Column("by hand", "by_hand", ".2f"),
        Column("TensorFlow", "tensorflow", ".2f"),
        Column(BY_HAND, lambda row: row["replicax"] / row["by_hand"], ".2f", "JAX by hand"),
        Column(
            TENSORFLOW,
            lambda row: row["tensorflow"] and row["tensorflow"] / row["replicax"],
            ".2f",
            "TensorFlow",
            faster=True,
        ),
    ),
    what="the first call of a step",
)
