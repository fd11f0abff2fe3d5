"""What does an eager training step cost, and how much of it is replicax's own?"""

import argparse

from benchmarks.eager.sides import EagerReplicax, Limit
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.sides import Sides, start_alike, take_turns
from benchmarks.harness.tables import Column, Row, Table, at_least, at_most, columns
from benchmarks.training.jax_steps import JaxStep, use_cpu_devices
from benchmarks.training.models import MODELS

PLAIN, COMPILED = "TensorFlow / plain", "TensorFlow / compiled"
SIDES = ("limit", "plain", "compiled", "tensorflow")
RATIOS = {
    "own_cost": ("plain", "limit"),
    "plain_speedup": ("tensorflow", "plain"),
    "compiled_speedup": ("tensorflow", "compiled"),
}
EAGER = Table(
    "rows",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("model", "title"),
        Column("replicas"),
        *columns(".1f", "limit", "plain"),
        Column("plain / limit", "own_cost", ".2f", "JAX's gradients and nothing else"),
        *columns(".1f", "compiled", "TensorFlow"),
        Column(PLAIN, "plain_speedup", ".2f", "TensorFlow", faster=True),
        Column(COMPILED, "compiled_speedup", ".2f", "TensorFlow (our loss compiled)", faster=True),
    ),
    what="an eager step",
    labels=2,
    mean=True,
    goals=(
        at_most("plain costs at most 1.25 times JAX's own eager work", "plain / limit", 1.25),
        at_least("plain is never slower than TensorFlow's eager step", PLAIN, 1.0),
        at_least("compiled is at least 4 times faster than TensorFlow's eager step", COMPILED, 4.0),
        at_least("and 10 times in the geometric mean", COMPILED, 10.0, mean=True),
    ),
)


class Eager(Benchmark):
    """One step of `strategy.run` with Adam on virtual CPU devices, four ways on the same data.
    *limit* is JAX's own eager gradient on every replica and nothing else: no reduction, no
    optimizer. *plain* and *compiled* are whole training steps of replicax, without and with
    `rx.value_and_grad(..., compile=True)`; *TensorFlow* is its eager `MirroredStrategy` with the
    Keras Adam. `--idiom` chooses how the loss is written.
    """

    name, title, tables = "eager", "Eager steps", (EAGER,)
    peers = ("tensorflow",)
    rounds, seconds, max_steps, clocks = 15, 0.25, 50, True
    quick = dict(cases=["two-small"], replicas=[2], rounds=1, seconds=0.05, check_steps=3)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        cases = ["two-small", "two", "six", "deep"]
        parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
        parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4])
        text = "jax.nn.relu and optax's cross-entropy, or jnp.maximum and a one-hot product"
        parser.add_argument("--idiom", choices=("nn", "jnp"), default="nn", help=text)
        text = "steps whose losses are checked"
        parser.add_argument("--check-steps", type=int, default=5, help=text)

    def measure(self) -> None:
        options = self.options
        use_cpu_devices(max(options.replicas))
        rows: dict[tuple[str, int], Row] = {}
        ours = {
            "plain": EagerReplicax(options.idiom, compiled=False),
            "compiled": EagerReplicax(options.idiom, compiled=True),
        }
        for replicas in options.replicas:
            peer = ("benchmarks.training.tensorflow_steps:TensorFlow", replicas, False)
            with self.beside_peers(ours, tensorflow=peer) as sides:
                for name in options.cases:
                    rows[name, replicas] = self._row(name, replicas, sides)
        cases = [(name, replicas) for name in options.cases for replicas in options.replicas]
        title = f"Median {self.unit} per step; the losses of all variants agree."
        self.report.add(EAGER, [rows[case] for case in cases], title)
        self.report.measured |= {"idiom": options.idiom, "clock": options.clock}

    def _row(self, name: str, replicas: int, sides: Sides) -> Row:
        what = f"{MODELS[name].title}, replicas: {replicas}"
        self.report.progress(what)
        case, count, idiom = (name, replicas), self.options.check_steps, self.options.idiom
        expected = JaxStep("by_hand").start((name, 1), count)
        start_alike(sides, case, count, what, expected)
        limit = {"limit": Limit(idiom)}
        # It never updates its weights.
        start_alike(limit, case, count, what, [expected[0]] * count)
        turns = take_turns({**limit, **sides}, self.options)
        about = {"case": name, "title": MODELS[name].title, "replicas": replicas}
        return about | turns.row(SIDES, 1e3, self.options.clock, **RATIOS)


BENCHMARKS = (Eager,)
