"""Random programs of replicas, run from several threads at once and one after the other."""

import threading
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.replica_programs import Batch, Run, Writer, source_with
from tests.fuzz.sources import differences, shown

LAW = "Programs compute the same in several threads at once as one after the other."
COUNT = 3
# Seconds for all threads: they compile one after the other.
PATIENCE = 120.0


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    runs = [_draw(random) for _ in range(random.integers(2, 5))]
    expected = [_outcome(run) for run, _ in runs]
    found: list[Any] = [None] * len(runs)
    together = threading.Barrier(len(runs))

    def work(index: int) -> None:
        together.wait(PATIENCE)
        found[index] = _outcome(runs[index][0])

    threads = [
        threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(runs))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    texts = "\n".join(f"# thread {index}\n{text}" for index, (_, text) in enumerate(runs))
    for index, thread in enumerate(threads):
        assert not thread.is_alive(), f"Thread {index} has not ended in {PATIENCE} s.\n{texts}"
        if problem := next(differences(expected[index], found[index]), None):
            raise AssertionError(
                f"thread {index}: {problem}\none after the other: {shown(expected[index])}\n"
                f"at once: {shown(found[index])}\n{texts}"
            )
    return len(runs)


def _draw(random: np.random.Generator) -> tuple[Run, str]:
    """A program on one to three replicas, eager or compiled, and its text."""
    statements = Writer(random, alike=False, even=True).write()
    shares = [2] * int(random.integers(1, 4))
    batches = [Batch.draw(random, shares) for _ in range(2)]
    how = [{}, {"step": rx.function}, {"replica": rx.function}][random.integers(3)]
    return Run(statements, batches, **how), f"# {how}\n{source_with(statements, batches)}"


def _outcome(run: Run) -> Any:
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(COUNT))
def test_threads(seed: int):
    assert program(seed) > 0
