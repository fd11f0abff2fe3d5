"""What does input cost: on the host, on the devices, from files, and beside the training?"""

import contextlib
import tempfile
from typing import Any

import jax

from benchmarks.harness.benchmark import PEERS, Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import AnySide, Cost, check_equal, start_alike
from benchmarks.harness.tables import Row
from benchmarks.input.chains import SOURCES, WORKERS
from benchmarks.input.data import Data, Rows, data_of
from benchmarks.input.findings import (
    FED,
    INPUT,
    LIMIT,
    OURS,
    TENSORFLOW,
    TITLES,
    ceilings,
    cost_cells,
    costs_finding,
    stream_findings,
    worker_findings,
)
from benchmarks.input.numpy_streams import NumpyStreams
from benchmarks.input.overlap import measure_overlap
from benchmarks.input.replicax_streams import ReplicaxStreams
from benchmarks.input.state import measure_states
from benchmarks.input.streams import best_turns
from benchmarks.input.training import measure_training
from benchmarks.training.jax_steps import mirrored, use_cpu_devices
from benchmarks.training.models import MODELS

REPLICAS = 4
TOLERANCE = 1e-6
TRAINING_GOAL = 1.1
# The peers: what their side is called, its class, and the pipelines that it has.
IN_MEMORY = ("a", "b", "c")
OURS_ALONE = ("c vectorized", "c on device", "d raw unchecked", "d parse plain")
PEER_SIDES = {
    "tensorflow": (TENSORFLOW, "tensorflow_streams:TensorFlowStreams", {*TITLES} - {*OURS_ALONE}),
    "grain": ("Grain", "grain_streams:GrainStreams", IN_MEMORY),
    "torch": ("torch", "torch_streams:TorchStreams", IN_MEMORY),
}


class Input(Benchmark):
    """`rx.data` beside the least that NumPy can do the same work for, in the same process, and
    beside tf.data, Grain and the torch DataLoader in processes of their own: shuffled rows in
    memory, as batches on the host and on 4 virtual devices (`a`, `b`, `c`); files of records and
    of text (`d`, `e`); what one of two workers pays for its half (`f`); how much of the input is
    hidden under a step (`prefetch`); the size of a position in a data set and the time to continue
    from it (`state`); and a training step fed by a data set beside the same step on data that are
    on the devices already (`training`). *measured* is processor time of all threads, the best of
    several turns; before any time is taken, all sides must have read the same rows. *NumPy* is the
    least that copying the same rows costs: nobody is faster than that.
    """

    name, title, tables = "input", "Input", (INPUT,)
    peers = ("tensorflow", "grain", "torch")
    parts = ("a", "b", "c", "d", "e", "f", "g", "prefetch", "state", "training")
    rounds = 7
    quick = {"rounds": 2}

    def measure(self) -> None:
        use_cpu_devices(REPLICAS)
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            data = data_of(self.options.quick, folder)
            data.write()
            rows += self._streams(data)
            if "f" in self.options.only:
                rows += self._workers(data)
        if "prefetch" in self.options.only:
            rows += self._prefetch()
        if "training" in self.options.only:
            rows += self._training()
        self.report.add(INPUT, rows)

    def _child(self, address: str, data: Data, peer: str, *given: int) -> Processes:
        more = {"python": self.options.pythons[peer]} if peer else {}
        side = f"benchmarks.input.{address}"
        return Processes(side, self.options.quick, str(data.folder), *given, **more)

    def _streams(self, data: Data) -> list[Row]:
        """Measures batches of all sides, and states."""
        strategy = mirrored(jax.devices()[:REPLICAS])
        wanted = [name for name in TITLES if name[0] in self.options.only]
        costs: dict[str, dict[str, Cost]] = {}
        rows: list[Row] = []
        with contextlib.ExitStack() as stack:
            ours, limit = ReplicaxStreams(data, strategy), NumpyStreams(data)
            # With the names of the pipelines that each has.
            sides: dict[str, tuple[AnySide, Any]] = {
                OURS: (ours, ours.pipelines),
                LIMIT: (limit, limit.pipelines),
            }
            for peer in self.options.pythons:
                title, address, served = PEER_SIDES[peer]
                if peer == "tensorflow" or {*served} & {*wanted}:
                    given = (REPLICAS,) if peer == "tensorflow" else ()
                    child = stack.enter_context(self._child(address, data, peer, *given))
                    sides[title] = child, served
                    self.report.versions[PEERS[peer]] = child.version
            for name in wanted:
                self.report.progress(f"batches: {TITLES[name]}")
                taking = {title: side for title, (side, served) in sides.items() if name in served}
                start_alike(taking, (name,), 1, TITLES[name], OURS, TOLERANCE)
                costs[name] = best_turns(taking, self.options.rounds)
                for side in taking.values():
                    side.stop()
            if costs:
                rows += stream_findings(costs)
                self.report.add_cells("Microseconds of a batch", cost_cells(costs, 1e6))
                self.report.measured["lines"] = ceilings(costs)
            if "state" in self.options.only:
                self.report.progress("state")
                peer = sides[TENSORFLOW][0] if TENSORFLOW in sides else None
                saved = peer.ask("checkpoint")[0] if isinstance(peer, Processes) else None
                cells, lines = measure_states(data, strategy, saved)
                self.report.add_cells("State after half an epoch", cells)
                rows += lines
        return rows

    def _workers(self, data: Data) -> list[Row]:
        """Measures workers that are simulated, each in a process and one after the other."""
        libraries = {OURS: ("replicax_streams:ReplicaxWorker", "")}
        if "tensorflow" in self.options.pythons:
            libraries[TENSORFLOW] = "tensorflow_streams:TensorFlowWorker", "tensorflow"
        costs: dict[str, dict[str, Cost]] = {}
        with contextlib.ExitStack() as stack:
            workers = {
                (title, worker): stack.enter_context(self._child(address, data, peer, worker))
                for title, (address, peer) in libraries.items()
                for worker in range(WORKERS)
            }
            for name in SOURCES:
                self.report.progress(f"two workers: {name}")
                numbers = {each: side.start((name,), 1) for each, side in workers.items()}
                best = best_turns(workers, self.options.rounds)
                sums, costs[name] = {}, {}
                for title in libraries:
                    both = [(title, worker) for worker in range(WORKERS)]
                    sums[title] = [sum(each) for each in zip(*(numbers[one] for one in both))]
                    check_equal(f"{title} ({name}): sums", sums[title], sums[OURS], TOLERANCE)
                    means = (sum(each) / WORKERS for each in zip(*(best[one] for one in both)))
                    costs[name][title] = Cost(*means)
        self.report.add_cells("Milliseconds of a worker's half", cost_cells(costs, 1e3, 1))
        return [*worker_findings(costs)]

    def _prefetch(self) -> list[Row]:
        self.report.progress("prefetch")
        # About a millisecond for a batch, as of small images.
        rows = Rows(64, 4, (784,)) if self.options.quick else Rows(2048, 16, (784,))
        count, repeats = (3, 1) if self.options.quick else (60, 7)
        cells, lines = measure_overlap(rows, count, repeats)
        self.report.add_cells("Prefetch, milliseconds of a batch by the wall", cells)
        return lines

    def _training(self) -> list[Row]:
        quick = self.options.quick
        goals = {"tiny": None} if quick else {"mlp": TRAINING_GOAL, "tiny": None}
        seconds, rounds = (0.01, 1) if quick else (0.3, self.options.rounds + 2)
        rows = []
        for name, goal in goals.items():
            for replicas in (1, 2) if quick else (1, 2, 4):
                title, case = MODELS[name].title, f"training, replicas: {replicas}"
                self.report.progress(f"{case}, {title}")
                fed, held = measure_training(MODELS[name], replicas, seconds, rounds)
                what = f"{FED} ({title}, {1e3 * held.wall:.2f} ms)"
                rows.append(costs_finding(case, what, fed, held, goal, digits=3))
        return rows


BENCHMARKS = (Input,)
