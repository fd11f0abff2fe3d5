"""What does input cost: on the host, on the devices, from files, and beside the training?"""

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any

from benchmarks.harness import (
    Benchmark,
    Cost,
    Options,
    Processes,
    Report,
    Row,
    Side,
    check_equal,
    start_alike,
)
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

if TYPE_CHECKING:
    from benchmarks.input.data import Data

REPLICAS = 4
WORKERS = 2
TOLERANCE = 1e-6
TRAINING_GOAL = 1.1
# The peers: what their side is called, its class, and the pipelines that it has.
IN_MEMORY = ("a", "b", "c")
OURS_ALONE = ("c vectorized", "c on device", "d raw unchecked", "d parse plain")
PEER_SIDES = {
    "tensorflow": (
        TENSORFLOW,
        "tensorflow_streams:TensorFlowStreams",
        tuple(name for name in TITLES if name not in OURS_ALONE),
    ),
    "grain": ("Grain", "grain_streams:GrainStreams", IN_MEMORY),
    "torch": ("torch", "torch_streams:TorchStreams", IN_MEMORY),
}
WORKER_PIPELINES = (
    "records FILE",
    "records DATA",
    "text FILE",
    "text DATA",
    "rows DATA",
    "half the rows",
)


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

    name = "input"
    title = "Input"
    tables = (INPUT,)
    peers = ("tensorflow", "grain", "torch")
    parts = ("a", "b", "c", "d", "e", "f", "prefetch", "state", "training")
    rounds = 7
    quick = {"rounds": 2}

    def measure(self, options: Options, report: Report) -> None:
        from benchmarks.input.data import data_of
        from benchmarks.training.jax_steps import use_cpu_devices

        use_cpu_devices(REPLICAS)
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            data = data_of(options.quick, folder)
            data.write()
            rows += self._streams(data, options, report)
            if "f" in options.only:
                rows += self._workers(data, options, report)
        if "prefetch" in options.only:
            rows += self._prefetch(options, report)
        if "training" in options.only:
            rows += self._training(options, report)
        report.add(INPUT, rows)

    def _streams(self, data: "Data", options: Options, report: Report) -> list[Row]:
        """Measures batches of all sides, and states."""
        import jax

        from benchmarks.input.numpy_streams import NumpyStreams
        from benchmarks.input.replicax_streams import ReplicaxStreams
        from benchmarks.input.streams import best_turns
        from benchmarks.training.jax_steps import mirrored

        strategy = mirrored(jax.devices()[:REPLICAS])
        wanted = [name for name in TITLES if name[0] in options.only]
        costs: dict[str, dict[str, Cost]] = {}
        rows: list[Row] = []
        with contextlib.ExitStack() as stack:
            ours, limit = ReplicaxStreams(data, strategy), NumpyStreams(data)
            sides: dict[str, tuple[Side | Processes, Any]] = {
                OURS: (ours, ours.pipelines),
                LIMIT: (limit, limit.pipelines),
            }
            for peer, python in options.pythons.items():
                title, address, served = PEER_SIDES[peer]
                if peer == "tensorflow" or {*served} & {*wanted}:
                    given = (options.quick, str(data.folder))
                    given += (REPLICAS,) if peer == "tensorflow" else ()
                    child = Processes(f"benchmarks.input.{address}", *given, python=python)
                    sides[title] = stack.enter_context(child), served
                    library = "TensorFlow" if peer == "tensorflow" else title
                    report.versions[library] = child.version
            for name in wanted:
                report.progress(f"batches: {TITLES[name]}")
                taking = {title: side for title, (side, served) in sides.items() if name in served}
                start_alike(taking, (name,), 1, TITLES[name], OURS, TOLERANCE)
                costs[name] = best_turns(taking, options.rounds)
                for side in taking.values():
                    side.stop()
            if costs:
                rows += stream_findings(costs)
                report.add_cells("Microseconds of a batch", cost_cells(costs, 1e6))
                report.measured["lines"] = ceilings(costs)
            if "state" in options.only:
                peer = sides.get(TENSORFLOW, (None,))[0]
                rows += self._state(data, strategy, peer, report)
        return rows

    def _state(self, data: "Data", strategy: Any, peer: Any, report: Report) -> list[Row]:
        from benchmarks.input.state import HEADINGS, measure_states, state_findings

        report.progress("state")
        states = measure_states(data, strategy)
        cells = [HEADINGS, *(state.cells() for state in states)]
        report.add_cells("State after half an epoch", cells)
        return [*state_findings(states, peer.ask("checkpoint")[0] if peer else None)]

    def _workers(self, data: "Data", options: Options, report: Report) -> list[Row]:
        """Measures workers that are simulated, each in a process and one after the other."""
        from benchmarks.input.streams import best_turns

        addresses = {OURS: ("replicax_streams:ReplicaxWorker", {})}
        if python := options.pythons.get("tensorflow"):
            addresses[TENSORFLOW] = "tensorflow_streams:TensorFlowWorker", {"python": python}
        costs: dict[str, dict[str, Cost]] = {}
        with contextlib.ExitStack() as stack:
            workers: dict[str, Side | Processes] = {}
            for title, (address, more) in addresses.items():
                for worker in range(WORKERS):
                    given = (options.quick, str(data.folder), worker)
                    child = Processes(f"benchmarks.input.{address}", *given, **more)
                    workers[f"{title} {worker}"] = stack.enter_context(child)
            for name in WORKER_PIPELINES:
                report.progress(f"two workers: {name}")
                numbers = {each: worker.start((name,), 1) for each, worker in workers.items()}
                sums = {
                    title: [
                        sum(each)
                        for each in zip(*(numbers[f"{title} {i}"] for i in range(WORKERS)))
                    ]
                    for title in addresses
                }
                for title, computed in sums.items():
                    check_equal(f"the numbers of {title} ({name})", computed, sums[OURS], TOLERANCE)
                best = best_turns(workers, options.rounds)
                costs[name] = {
                    title: Cost(
                        *(
                            sum(each) / WORKERS
                            for each in zip(*(best[f"{title} {i}"] for i in range(WORKERS)))
                        )
                    )
                    for title in addresses
                }
        report.add_cells("Milliseconds of a worker's half", cost_cells(costs, 1e3, 1))
        return [*worker_findings(costs)]

    def _prefetch(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.input.data import Rows
        from benchmarks.input.overlap import HEADINGS, measure_overlap

        report.progress("prefetch")
        # About a millisecond for a batch, as of small images.
        rows = Rows(64, 4, (784,)) if options.quick else Rows(2048, 16, (784,))
        count, repeats = (3, 1) if options.quick else (60, 7)
        overlaps = measure_overlap(rows, count, repeats)
        cells = [HEADINGS, *(overlap.cells() for overlap in overlaps)]
        report.add_cells("Prefetch, milliseconds of a batch by the wall", cells)
        return [overlap.finding() for overlap in overlaps]

    def _training(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.input.training import measure_training
        from benchmarks.training.models import MODELS

        rows = []
        goals = {"tiny": None} if options.quick else {"mlp": TRAINING_GOAL, "tiny": None}
        seconds, rounds = (0.01, 1) if options.quick else (0.3, options.rounds + 2)
        for name, goal in goals.items():
            for replicas in (1, 2) if options.quick else (1, 2, 4):
                title = MODELS[name].title
                report.progress(f"training: {title}, replicas: {replicas}")
                fed, held = measure_training(MODELS[name], replicas, seconds, rounds)
                case, what = f"training, replicas: {replicas}", f"{FED} ({title}, "
                what += f"{1e3 * held.wall:.2f} ms)"
                rows.append(costs_finding(case, what, fed, held, goal, digits=3))
        return rows


BENCHMARKS = (Input,)
