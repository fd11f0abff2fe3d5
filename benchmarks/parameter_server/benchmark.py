"""How many steps per second do parameter servers make, and how do they grow with workers?"""

import argparse
import contextlib
import statistics

from benchmarks.harness.benchmark import PEERS, Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import check_equal, take_turns
from benchmarks.harness.tables import Column, Row, Table, at_least, at_most

TENSORFLOW, LOSS = "replicax / TensorFlow", "loss / first"
SYNCHRONOUS = "loss / synchronous"
STEPS = Table(
    "steps",
    "Steps per second: the median over the turns.",
    (
        Column("workers"),
        Column("servers"),
        Column("replicax", form=".0f"),
        Column("TensorFlow", form=".0f"),
        Column(TENSORFLOW, "speedup", ".2f", "TensorFlow", faster=True),
        Column("kB of a step", "kilobytes", ".0f"),
        Column("staleness", form=".1f"),
        Column(LOSS, "loss", ".2f"),
        Column(SYNCHRONOUS, "synchronous", ".2f"),
    ),
    what="steps per second with parameter servers",
    goals=(
        at_least("at least 1.5 times TensorFlow's", TENSORFLOW, 1.5),
        at_most("the loss falls", LOSS, 0.85),
        at_most("as with synchronous training", SYNCHRONOUS, 1.1),
    ),
)


class ParameterServer(Benchmark):
    """A recommender: two tables of 1,000,000 rows of 32, ids by Zipf's law in batches of 256, a
    dense net with one hidden layer of 64, Adagrad. `ParameterServerStrategy` with a
    `ClusterCoordinator` on both sides: ours with actors of Ray, TensorFlow's with processes that
    run a `tf.distribute.Server`, over loopback. The first losses agree; after that, which worker
    is faster decides. *kB of a step* is all that a worker of ours sends to servers and gets.
    *loss* is that after `--updates` updates with tables of 50,000 rows, beside the first one, and
    beside that of one device which makes as many, one after the other.
    """

    name, title, tables = "parameter_server", "Parameter servers", (STEPS,)
    peers = ("tensorflow",)
    rounds, seconds, max_steps = 7, 1.0, 1000
    quick = dict(rows=1000, updates=30, rounds=2, seconds=0.05, max_steps=10, workers=[1])

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
        add("--workers", type=numbers, default=[2], help="numbers, such as 1,2,4,8")
        add("--servers", type=int, default=1)
        add("--rows", type=int, default=1_000_000, help="of each table")
        add("--updates", type=int, default=256, help="after which the loss is compared")
        add("--batch", type=int, default=256)

    def measure(self) -> None:
        self.report.add(STEPS, [self._row(workers) for workers in self.options.workers])
        self.report.note_load()

    def _row(self, workers: int) -> Row:
        options = self.options
        case = (options.rows, options.batch)
        given = (workers, options.servers)
        sides = {}
        with contextlib.ExitStack() as stack:
            self.report.progress(f"{workers} workers")
            address = "benchmarks.parameter_server.{0}_side:{1}Servers"
            names = {"replicax": "Replicax", "tensorflow": "TensorFlow"}
            for name, kind in names.items():
                if name == "tensorflow" and name not in options.pythons:
                    continue
                python = {"python": options.pythons[name]} if name in options.pythons else {}
                side = Processes(address.format(name, kind), *given, **python)
                sides[name] = stack.enter_context(side)
                stack.callback(side.ask, "close")
                if name in PEERS:
                    self.report.versions[PEERS[name]] = side.version
            first = {name: side.start(case, 1) for name, side in sides.items()}
            for name, losses in first.items():
                check_equal(f"the first losses of {name}", losses, first["replicax"], 1e-3)
            turns = take_turns(sides, options)
            (moved,) = sides["replicax"].ask("bytes_of_step", 5)
            training = (min(options.rows, 50_000), options.batch, options.updates)
            (loss,) = sides["replicax"].ask("trained", *training)
            (synchronous,) = sides["replicax"].ask("trained_synchronously", *training)
            (staleness,) = sides["replicax"].ask("staleness")
        rates = {name: 1 / statistics.median(turns.seconds(name)) for name in turns}
        return {
            "workers": workers,
            "servers": options.servers,
            "replicax": rates["replicax"],
            "tensorflow": rates.get("tensorflow"),
            "speedup": turns.ratio("tensorflow", "replicax"),
            "kilobytes": moved / 1e3,
            "staleness": staleness,
            "loss": loss / first["replicax"][0],
            "synchronous": loss / synchronous,
        }


BENCHMARKS = (ParameterServer,)
