"""What does a last batch cost that the replicas do not divide?"""

import argparse
import statistics

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import check_equal, take_turns
from benchmarks.harness.tables import Column, Row, Table, at_most
from benchmarks.training.jax_steps import use_cpu_devices
from benchmarks.uneven.epochs import BATCH, LOOPS, Epochs

TOLERANCE = 1e-3
LATER = "uneven / even"
FIRST = "first, uneven / even"

UNEVEN = Table(
    "epochs",
    "Median milliseconds of an epoch after the first, and seconds of the first.",
    (
        Column("model"),
        Column("even", form=".1f"),
        Column("uneven", form=".1f"),
        Column(LATER, "over_even", ".3f"),
        Column("first, even", "first_even", ".2f"),
        Column("first, uneven", "first_uneven", ".2f"),
        Column(FIRST, "first_over_even", ".2f"),
        Column("programs more", "more_programs"),
    ),
    goals=(
        at_most("at most 1.1 times the even epoch, after the first", LATER, 1.1),
        at_most("at most 2 times the first even epoch", FIRST, 2.0),
        at_most("at most 3 programs more", "programs more", 3),
    ),
)


class Uneven(Benchmark):
    """An epoch of 2,590 rows in batches of 128, beside one of 2,560: 21 steps in place of 20, and
    the last has 30 rows, in shares that the replicas do not divide evenly. A data set, a step in
    an `rx.function`, a metric; later epochs in turns in one process, first ones in a new process
    each, without any cache of programs. All of them give the loss and the metric of one device.
    """

    name, title, tables = "uneven", "A last batch that the replicas do not divide", (UNEVEN,)
    rounds, clocks = 41, True
    seconds, max_steps = 0.05, 10
    quick = {"models": ["tiny"], "rounds": 2, "first_rounds": 1, "replicas": 2, "batches": 2}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        models = [each for each in LOOPS if each != "tiny"]
        parser.add_argument("--models", nargs="+", choices=LOOPS, default=models)
        parser.add_argument("--replicas", type=int, default=4)
        parser.add_argument("--first-rounds", type=int, default=3, help="new processes of each")
        parser.set_defaults(batches=20)

    def measure(self) -> None:
        use_cpu_devices(self.options.replicas)
        self.report.add(UNEVEN, [self._row(model) for model in self.options.models])

    def _row(self, model: str) -> Row:
        replicas = self.options.replicas
        rows = {"even": self.options.batches * BATCH}
        rows["uneven"] = rows["even"] + 30
        self.report.progress(f"{model}: first epochs")
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        programs: dict[str, int] = {}
        for _ in range(self.options.first_rounds):
            for name, count in rows.items():
                with Processes(
                    "benchmarks.uneven.epochs:FirstEpoch",
                    count,
                    replicas,
                    variables={"JAX_ENABLE_COMPILATION_CACHE": "false"},
                ) as process:
                    ((took, programs[name], _),) = process.ask("first_epoch", model)
                seconds[name].append(took)
        self.report.progress(f"{model}: later epochs")
        sides = {name: Epochs(count, replicas) for name, count in rows.items()}
        for name, side in sides.items():
            one = Epochs(rows[name], 1).start((model,), 2)
            check_equal(f"loss and metric, {name}", side.start((model,), 2), one, TOLERANCE)
        turns = take_turns(sides, self.options, alike=True)
        pairs = zip(seconds["uneven"], seconds["even"], strict=True)
        return {
            "model": model,
            **turns.row(rows, 1e3, self.options.clock, over_even=("uneven", "even")),
            "first_even": statistics.median(seconds["even"]),
            "first_uneven": statistics.median(seconds["uneven"]),
            "first_over_even": statistics.median(a / b for a, b in pairs),
            "more_programs": programs["uneven"] - programs["even"],
        }


BENCHMARKS = (Uneven,)
