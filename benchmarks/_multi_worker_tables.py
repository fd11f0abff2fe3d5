"""The tables of `multi_worker.py`, and the goals they are held to."""

from _tables import Column, Goal, Row, Table

BY_HAND = "replicax / by hand"
TENSORFLOW = "TensorFlow / replicax"

_WORKER_COLUMNS = (
    Column("model", "title"),
    Column("replicax", "replicax", ".2f"),
    Column("by hand", "by_hand", ".2f"),
    Column("DDP", "torch", ".2f"),
    Column("TensorFlow", "tensorflow", ".2f"),
    Column(BY_HAND, "over_by_hand", ".2f", "JAX by hand"),
    Column("replicax / DDP", "over_torch", ".2f", "torch DDP"),
    Column(TENSORFLOW, "speedup", ".2f", "TensorFlow", faster=True),
)
WORKER_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all agree.",
    _WORKER_COLUMNS,
    what="a step over processes",
    mean=True,
    goals=(
        Goal("at most 1 times the step by hand", BY_HAND, 1.0),
        Goal(
            "at most 1.05 times DDP, but for the largest model",
            "replicax / DDP",
            1.05,
            only=lambda row: row["model"] != "largest",
        ),
        Goal(
            "at most 1.2 times DDP on the largest model",
            "replicax / DDP",
            1.2,
            only=lambda row: row["model"] == "largest",
        ),
        Goal("at least 1.5 times faster than TensorFlow", TENSORFLOW, 1.5, at_least=True),
    ),
)
WORKER_WORK = Table(
    "work",
    "Its processor time on a worker, which a busy machine disturbs less.",
    _WORKER_COLUMNS,
    what="a step over processes, processor time",
    mean=True,
)
SAVES = Table(
    "saves",
    "Median seconds of a save.",
    (
        Column("MB", "megabytes", "g"),
        Column("stops the loop", "stopped", ".2f"),
        Column("on the disk", "written", ".2f"),
        Column("np.savez + fsync", "savez", ".2f"),
        Column("share of its speed", "speed", ".2f"),
    ),
    goals=(
        Goal("an asynchronous save stops the loop for at most 0.3 s", "stops the loop", 0.3),
        Goal(
            "and reaches the disk at 50% of the speed of np.savez or more",
            "share of its speed",
            0.5,
            at_least=True,
        ),
    ),
)


def _found_share(row: Row) -> float:
    """The least share of its programs that a worker found in the warm cache."""
    counts = [count.split("/") for count in row["found"].split(", ")]
    return min(int(found) / max(int(wanted), 1) for found, wanted in counts)


STARTS = Table(
    "starts",
    "Seconds from the start to the end of the first step.",
    (
        Column("", "library"),
        Column("workers", "workers"),
        Column("empty cache", "cold", ".2f"),
        Column("warm cache", "warm", ".2f"),
        Column("programs found, by worker", "found"),
    ),
    goals=(
        Goal(
            "the share of its programs that every worker finds is 1",
            _found_share,
            1.0,
            at_least=True,
            only=lambda row: row["library"] == "replicax",
        ),
    ),
)
FAULTS = Table(
    "faults",
    "Seconds until all workers were gone, and until the first new step.",
    (
        Column("fault", "fault"),
        Column("all gone", "gone", "g"),
        Column("first new step", "stepped", "g"),
    ),
)
