"""The tables of `keras_fit.py`, and the goals they are held to."""

from dataclasses import replace

from _tables import Column, Goal, Table

TENSORFLOW = "TensorFlow / replicax"


def _keras_table(clock: str, title: str, what: str, goals: tuple[Goal, ...]) -> Table:
    return Table(
        "rows",
        title,
        (
            Column("model", "title"),
            Column("batch", "batch"),
            Column("replicas", "replicas"),
            Column("replicax", "replicax", ".2f"),
            Column("DataParallel", "data_parallel", ".2f"),
            Column("TensorFlow", "tensorflow", ".2f"),
            Column("replicax / DataParallel", "over_data_parallel", ".2f", "Keras's DataParallel"),
            Column(TENSORFLOW, "speedup", ".2f", "Keras on TensorFlow", faster=True),
        ),
        what=what,
        goals=goals,
        labels=3,
        only=lambda row: row["clock"] == clock,
        mean=True,
    )


KERAS_WALL = _keras_table(
    "wall",
    "Median milliseconds of a step of fit; the losses of all agree.",
    "a step of Keras fit",
    (
        Goal("at most 1.03 times Keras's DataParallel", "replicax / DataParallel", 1.03),
        Goal(
            "at least 1.3 times faster than TensorFlow on 2 or more replicas",
            TENSORFLOW,
            1.3,
            at_least=True,
            only=lambda row: row["replicas"] > 1,
        ),
    ),
)
KERAS_GPU = replace(KERAS_WALL, what="a step of Keras fit, on a GPU")
KERAS_CPU = _keras_table(
    "cpu",
    "Median milliseconds of processor time of such a step, of all threads.",
    "a step of Keras fit, processor time",
    (),
)
