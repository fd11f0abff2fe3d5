"""The tables of `eager.py`, and the goals they are held to."""

from _tables import Column, Goal, Table

PLAIN, COMPILED = "TensorFlow / plain", "TensorFlow / compiled"

EAGER = Table(
    "rows",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("model", "title"),
        Column("replicas", "replicas"),
        Column("limit", "limit", ".1f"),
        Column("plain", "plain", ".1f"),
        Column("plain / limit", "own_cost", ".2f", "JAX's gradients and nothing else"),
        Column("compiled", "compiled", ".1f"),
        Column("TensorFlow", "tensorflow", ".1f"),
        Column(PLAIN, "plain_speedup", ".2f", "TensorFlow", faster=True),
        Column(COMPILED, "compiled_speedup", ".2f", "TensorFlow (our loss compiled)", faster=True),
    ),
    what="an eager step",
    labels=2,
    mean=True,
    goals=(
        Goal("plain costs at most 1.25 times JAX's own eager work", "plain / limit", 1.25),
        Goal("plain is never slower than TensorFlow's eager step", PLAIN, 1.0, at_least=True),
        Goal(
            "compiled is at least 4 times faster than TensorFlow's eager step",
            COMPILED,
            4.0,
            at_least=True,
        ),
        Goal("and 10 times in the geometric mean", COMPILED, 10.0, at_least=True, mean=True),
    ),
)
