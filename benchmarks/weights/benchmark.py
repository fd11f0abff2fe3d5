"""How fast are TensorFlow's checkpoints read, beside TensorFlow, and with how much memory?"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.sides import Side, Work
from benchmarks.harness.tables import Column, Table, at_most, columns
from benchmarks.weights.bundle import write_bundle

READING = Table(
    "rows",
    "Median milliseconds of reading every tensor, with its checksum.",
    (
        Column("checkpoint", "what"),
        *columns(".1f", "replicax", "TensorFlow"),
        Column("replicax / TensorFlow", "over_tensorflow", ".2f", peer="TensorFlow"),
        Column("memory / size", "memory", ".2f"),
    ),
    what="reading a checkpoint of TensorFlow",
    goals=(at_most("at most 1.2 times the memory of what is read", "memory / size", 1.2),),
)

# Reads all tensors and holds them; prints the most memory that this added, over their size.
_MEMORY = """
import re, sys
import replicax as rx
def most():  # unlike getrusage, without what the parent had
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
reader = rx.train.load_checkpoint(sys.argv[1])
names = list(reader.get_variable_to_shape_map())
reader.get_tensor(names[0])
before = most()
held = [reader.get_tensor(name) for name in names]
print((most() - before) * 1024 / sum(each.nbytes for each in held))
"""


class Reader(Side):
    """Ours."""

    version = f"replicax {rx.__version__}"

    def prepare(self, *case: Any) -> Work:
        prefix = case[0]

        def work(count: int) -> list[float]:
            total = 0.0
            for _ in range(count):
                reader = rx.train.load_checkpoint(prefix)
                for name in sorted(reader.get_variable_to_shape_map()):
                    total = float(reader.get_tensor(name).reshape(-1)[-1])
            return [total]

        return work


class Weights(Benchmark):
    """Every tensor of a checkpoint of TensorFlow's form is read into an array of NumPy, from files
    that the system has in memory: a thousand small tensors, and some large ones. *Memory* is what
    a process needs at most to hold all of the arrays, over their size.
    """

    name, title, tables = "weights", "Checkpoints of TensorFlow", (READING,)
    peers = ("tensorflow",)
    seconds, rounds, max_steps = 0.2, 9, 100
    quick = {"megabytes": 4, "rounds": 2, "seconds": 0.01}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--megabytes", type=int, default=256, help="of the large tensors")

    def measure(self) -> None:
        rows = []
        size = self.options.megabytes << 18  # items of 4 bytes
        cases = {
            "1,000 small tensors": [64] * 1000,
            f"{self.options.megabytes} MiB in 16 tensors": [size // 16] * 16,
        }
        with tempfile.TemporaryDirectory() as folder:
            for number, (what, sizes) in enumerate(cases.items()):
                prefix = Path(folder) / f"case-{number}"
                items = np.random.default_rng(0)
                write_bundle(
                    prefix,
                    {f"w{i:05d}": items.random(each, np.float32) for i, each in enumerate(sizes)},
                )
                peer = ("benchmarks.weights.tensorflow_reader:TensorFlowReader",)
                with self.beside_peers({"replicax": Reader()}, tensorflow=peer) as sides:
                    turns = self.turns(sides, (str(prefix),), 1, what, "replicax")
                    ratios = {"over_tensorflow": ("replicax", "tensorflow")}
                    row = turns.row(sides, 1e3, **(ratios if "tensorflow" in sides else {}))
                large = number == 1
                rows.append({"what": what, **row, **({"memory": _memory(prefix)} if large else {})})
        self.report.add(READING, rows)


def _memory(prefix: Path) -> float:
    command = [sys.executable, "-c", _MEMORY, str(prefix)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


BENCHMARKS = (Weights,)
