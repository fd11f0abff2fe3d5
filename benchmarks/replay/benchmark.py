"""What does it cost to record steps, and to look at them?"""

import argparse
import statistics
import time
from typing import Any

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.tables import Column, Table, at_most
from benchmarks.replay.recorded import MODELS, RECORDED, Recorded
from benchmarks.training.jax_steps import use_cpu_devices

RECORDING = "recording / without"
_STEPS = 20

COSTS = Table(
    "steps",
    "Median milliseconds of a step without a recorder, and with one: ratios, by what it looks for.",
    (
        Column("model"),
        Column("without", form=".2f"),
        Column(RECORDING, "recording", ".3f"),
        *(Column(f"{name} / without", name, ".3f") for name in RECORDED if name != "recording"),
    ),
    goals=(
        at_most(
            "at most 1.01 times a step of 10 ms, without traps",
            RECORDING,
            1.01,
            only=lambda row: row["without"] >= 10,
        ),
    ),
)


THREAD = Table(
    "thread",
    "Median microseconds of CPU time that the calling thread spends for a step without a recorder, "
    "and what recording adds to it, alone and with each trap; and the bytes that are written for a "
    "step, without traps and with the checksums of `bits`.",
    (
        Column("model"),
        Column("without", form=".0f"),
        *(Column(f"{name} adds", form=".0f") for name in RECORDED),
        Column("bytes of a step", form=".0f"),
        Column("bytes with bits", form=".0f"),
    ),
    goals=(
        at_most("at most 100, 1 % of a step of 10 ms", "recording adds", 100),
        at_most("at most 4,096 bytes of a step", "bytes of a step", 4096),
    ),
)


class Replay(Benchmark):
    """Steps that read their batches from a data set, without an `rx.debug.Recorder` and with one:
    `recording` alone, and with each trap. `finite` looks at each replica's gradients, at variables
    and at the loss; `bits` records the sums of their bits as well; `copies` compares all copies of
    variables after every 100 steps; `slow` looks at the time. The last result of a turn is waited
    for; the thread that writes works beside the steps, and what it takes from them counts.
    """

    name, title, tables = "replay", "Recording steps, and traps", (COSTS, THREAD)
    rounds, clocks = 21, True
    seconds, max_steps = 0.1, 300
    quick = {"models": ["tiny"], "rounds": 2, "replicas": 2}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        models = [name for name in MODELS if name != "tiny"]
        parser.add_argument("--models", nargs="+", choices=MODELS, default=models)
        parser.add_argument("--replicas", type=int, default=2)
        parser.add_argument("--traps", nargs="+", choices=RECORDED, default=list(RECORDED))

    def measure(self) -> None:
        use_cpu_devices(self.options.replicas)
        rows = []
        for model in self.options.models:
            names = ["without", *self.options.traps]
            sides = {name: Recorded(name, self.options.replicas) for name in names}
            try:
                turns = self.turns(sides, (model,), 3, model, "without")
            finally:
                for side in sides.values():
                    side.stop()
            ratios = {name: (name, "without") for name in self.options.traps}
            row = turns.row(["without"], 1e3, self.options.clock, **ratios)
            rows.append({"model": model, **row})
        self.report.add(COSTS, rows)
        self.report.add(THREAD, [self._of_thread(self.options.models[0])])

    def _of_thread(self, model: str) -> dict[str, Any]:
        """Returns what a step takes of the calling thread, in turns."""
        sides = {name: Recorded(name, self.options.replicas) for name in ("without", *RECORDED)}
        taken: dict[str, list[float]] = {name: [] for name in sides}
        try:
            works = {name: side.prepare(model) for name, side in sides.items()}
            for number in range(self.options.rounds + 1):
                for name, work in works.items():
                    before = time.thread_time()
                    work(_STEPS)
                    if number:  # the first one compiles
                        taken[name].append((time.thread_time() - before) / _STEPS * 1e6)
        finally:
            for side in sides.values():
                side.stop()
        medians = {name: statistics.median(each) for name, each in taken.items()}
        plain = medians["without"]
        more = {f"{name}_adds": medians[name] - plain for name in RECORDED}
        sizes = {
            "bytes_of_a_step": sides["recording"].bytes_of_step,
            "bytes_with_bits": sides["bits"].bytes_of_step,
        }
        return {"model": model, "without": plain, **more, **sizes}


BENCHMARKS = (Replay,)
