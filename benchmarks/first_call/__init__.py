"""How long does the first call of a compiled step take, which traces and compiles it?"""

import argparse
import statistics
import sys

from benchmarks.harness import (
    Benchmark,
    Column,
    Options,
    Processes,
    Report,
    Row,
    Table,
    check_equal,
)

FIRST_CALL = Table(
    "first_call",
    "Seconds of the first call, which traces and compiles.",
    (
        Column("devices", "devices"),
        Column("replicax", "replicax", ".2f"),
        Column("by hand", "by_hand", ".2f"),
        Column("TensorFlow", "tensorflow", ".2f"),
        Column(
            "replicax / by hand", lambda row: row["replicax"] / row["by_hand"], ".2f", "JAX by hand"
        ),
        Column(
            "TensorFlow / replicax",
            lambda row: row.get("tensorflow") and row["tensorflow"] / row["replicax"],
            ".2f",
            "TensorFlow",
            faster=True,
        ),
    ),
    what="the first call of a step",
)


class FirstCall(Benchmark):
    """Seconds of the first step of fifty layers, 16 wide, with Adam: a hundred variables. The
    median over turns, each in a new process without any cache of programs: ours in an
    `rx.function`, *by hand* with `jax.jit` and `jax.shard_map`, and *TensorFlow* in a
    `tf.function`.
    """

    name = "first_call"
    title = "The first call of a step"
    tables = (FIRST_CALL,)
    peers = ("tensorflow",)
    rounds = 3
    quick = {"devices": [2], "rounds": 1, "model": "tiny"}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from benchmarks.training.models import MODELS

        parser.add_argument("--model", choices=MODELS, default="deep_narrow")
        parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 4])

    def measure(self, options: Options, report: Report) -> None:
        report.add(FIRST_CALL, [self._row(count, options, report) for count in options.devices])

    def _row(self, devices: int, options: Options, report: Report) -> Row:
        report.progress(f"{options.model}, devices: {devices}")
        jax_side, peer = "jax_steps:JaxStep", "tensorflow_steps:TensorFlow"
        sides = {
            "replicax": (jax_side, "replicax", sys.executable),
            "by_hand": (jax_side, "by_hand", sys.executable),
        }
        if python := options.pythons.get("tensorflow"):
            sides["tensorflow"] = (peer, devices, python)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        losses = []
        for _ in range(options.rounds):
            for name, (side, argument, python) in sides.items():
                with Processes(
                    f"benchmarks.training.{side}",
                    argument,
                    python=python,
                    JAX_PLATFORMS="cpu",
                    JAX_NUM_CPU_DEVICES=str(devices),
                    JAX_ENABLE_COMPILATION_CACHE="false",
                ) as process:
                    ((took, loss),) = process.ask("first_turn", (options.model, devices))
                    if name == "tensorflow":
                        report.versions["TensorFlow"] = process.version
                seconds[name].append(took)
                losses.append(loss)
        check_equal("the losses of all sides", losses, [losses[0]] * len(losses), 1e-4)
        return {"devices": devices} | {
            name: statistics.median(times) for name, times in seconds.items()
        }


BENCHMARKS = (FirstCall,)
