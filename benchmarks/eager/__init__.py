"""What does an eager training step cost, and how much of it is replicax's own?"""

import argparse
import contextlib

from benchmarks.harness import (
    Benchmark,
    Column,
    Goal,
    Options,
    Processes,
    Report,
    Row,
    Side,
    Table,
    start_alike,
    take_turns,
)

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


class Eager(Benchmark):
    """One step of `strategy.run` with Adam on virtual CPU devices, four ways on the same data.
    *limit* is JAX's own eager gradient on every replica and nothing else: no reduction, no
    optimizer. *plain* and *compiled* are whole training steps of replicax, without and with
    `rx.value_and_grad(..., compile=True)`; *TensorFlow* is its eager `MirroredStrategy` with the
    Keras Adam. `--idiom` chooses how the loss is written.
    """

    name = "eager"
    title = "Eager steps"
    tables = (EAGER,)
    peers = ("tensorflow",)
    rounds = 15
    seconds = 0.25
    max_steps = 50
    clocks = True
    quick = {
        "cases": ["two-small"],
        "replicas": [1, 2],
        "rounds": 1,
        "seconds": 0.05,
        "check_steps": 3,
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        cases = ["two-small", "two", "six", "deep"]
        parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
        parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4])
        text = "jax.nn.relu and optax's cross-entropy, or jnp.maximum and a one-hot product"
        parser.add_argument("--idiom", choices=("nn", "jnp"), default="nn", help=text)
        text = "steps whose losses are checked"
        parser.add_argument("--check-steps", type=int, default=5, help=text)

    def measure(self, options: Options, report: Report) -> None:
        from benchmarks.training.jax_steps import use_cpu_devices

        use_cpu_devices(max(options.replicas))
        rows: dict[tuple[str, int], Row] = {}
        for replicas in options.replicas:
            with contextlib.ExitStack() as stack:
                peers: dict[str, Processes] = {}
                if python := options.pythons.get("tensorflow"):
                    address = "benchmarks.training.tensorflow_steps:TensorFlow"
                    peers["tensorflow"] = Processes(address, replicas, False, python=python)
                    stack.enter_context(peers["tensorflow"])
                    report.versions["TensorFlow"] = peers["tensorflow"].version
                for name in options.cases:
                    rows[name, replicas] = self._row(name, replicas, peers, options, report)
        cases = [(name, replicas) for name in options.cases for replicas in options.replicas]
        unit = "milliseconds" if options.clock == "wall" else "CPU milliseconds"
        title = f"Median {unit} per step; the losses of all variants agree."
        report.add(EAGER, [rows[case] for case in cases], title)
        report.measured |= {"idiom": options.idiom, "clock": options.clock}

    def _row(
        self,
        name: str,
        replicas: int,
        peers: dict[str, Processes],
        options: Options,
        report: Report,
    ) -> Row:
        from benchmarks.eager.sides import EagerReplicax, Limit, reference_losses
        from benchmarks.training.models import MODELS

        what = f"{MODELS[name].title}, replicas: {replicas}"
        report.progress(what)
        expected = reference_losses(name, options.idiom, options.check_steps)
        limit = {"limit": Limit(options.idiom)}
        sides: dict[str, Side | Processes] = {
            "plain": EagerReplicax(options.idiom, compiled=False),
            "compiled": EagerReplicax(options.idiom, compiled=True),
            **peers,
        }
        case, count = (name, replicas), options.check_steps
        start_alike(sides, case, count, what, expected)
        # The limit never updates its weights.
        start_alike(limit, case, count, what, [expected[0]] * count)
        turns = take_turns({**limit, **sides}, options)
        return {
            "case": name,
            "title": MODELS[name].title,
            "replicas": replicas,
            **turns.row(
                ("limit", "plain", "compiled", "tensorflow"),
                1e3,
                options.clock,
                own_cost=("plain", "limit"),
                plain_speedup=("tensorflow", "plain"),
                compiled_speedup=("tensorflow", "compiled"),
            ),
        }


BENCHMARKS = (Eager,)
