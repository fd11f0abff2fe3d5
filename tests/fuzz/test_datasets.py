"""Random pipelines beside lists of Python, straight and resumed.

A pipeline is a list of steps. Each has the operation on a data set and the same on a list. What
order a shuffle takes is its own affair: that it is one, and within its buffer, is compared.
"""

import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.dataset_steps import Step, Writer
from tests.pipelines import plain

LAW = "A data set has the elements of its Python reference, straight and resumed at any point."
COUNT = 80


# ------------------------------------------------------------------ comparisons


def built(steps: Sequence[Step], folder: Path) -> Any:
    dataset: Any = None
    for step in steps:
        dataset = step.apply(dataset, folder)
    return dataset


def program(seed: int) -> int:
    """Compares one random pipeline with its reference, and one with itself, resumed."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        comparisons = compare_with_lists(Writer(random, False).write(), Path(folder))
        steps = Writer(random, True).write()
        return comparisons + compare_resumed(steps, random, Path(folder))


def show(steps: Sequence[Step]) -> str:
    return " . ".join(step.text for step in steps)


def compare_with_lists(steps: Sequence[Step], folder: Path) -> int:
    rows: list[Any] = []
    comparisons = 0
    for count in range(1, len(steps) + 1):
        (folder / str(count)).mkdir()
        step, dataset = steps[count - 1], built(steps[:count], folder / str(count))
        found = [plain(element) for element in dataset]
        if step.reference is None:
            check_shuffled(found, rows, step.buffer, show(steps[:count]))
            rows = found
        else:
            rows = step.reference(rows)
        assert found == rows, f"{found}, not {rows}, for\n{show(steps[:count])}"
        again = [plain(element) for element in dataset]
        assert again == rows, f"the second time {again}, not {rows}, for\n{show(steps[:count])}"
        size = dataset.cardinality()
        assert size < 0 or size == len(rows), f"cardinality {size} of {rows}, for\n{show(steps)}"
        comparisons += 3 + check_specs(dataset, show(steps[:count]))
    return comparisons


def check_shuffled(found: list[Any], rows: list[Any], buffer: int, text: str) -> None:
    """An element may come as late as it likes, but no sooner than the buffer allows."""
    left = [(repr(row), place) for place, row in enumerate(rows)]
    for position, row in enumerate(found):
        places = [place for look, place in left if look == repr(row)]
        assert places, f"{row} in {found}, which is no order of {rows}, for\n{text}"
        assert places[0] < position + buffer, f"{row} too early in {found} of {rows}, for\n{text}"
        left.remove((repr(row), places[0]))
    assert not left, f"{left} is missing in {found}, for\n{text}"


def check_specs(dataset: Any, text: str) -> int:
    elements = list(dataset)
    if not elements:
        return 0
    spec = dataset.element_spec
    specs, width = (spec, len(spec)) if isinstance(spec, tuple) else ((spec,), 0)
    for element in elements:
        for leaf, its in zip(element if width else (element,), specs, strict=True):
            same = leaf.dtype == its.dtype and len(leaf.shape) == len(its.shape)
            fits = same and all(b in (None, a) for a, b in zip(leaf.shape, its.shape))
            assert fits, f"{its} is not of {leaf.dtype}{leaf.shape}, for\n{text}"
    return 1


def compare_resumed(steps: Sequence[Step], random: np.random.Generator, folder: Path) -> int:
    """Elements that follow a state, here and in other data sets of the same steps."""
    text = show(steps)
    folders = [folder / name for name in ("first", "other", "walked")]
    for each in folders:
        each.mkdir()
    first, other, walked = (built(steps, each) for each in folders)
    for _ in walked:  # to its end: what is cached there is in an order of its own
        pass
    comparisons = 0
    for _ in range(2):
        straight = [plain(element) for element in first]
        for _ in range(2):
            position = int(random.integers(0, len(straight) + 1))
            iterator = iter(first)
            begun = [plain(element) for element in itertools.islice(iterator, position)]
            state = json.loads(json.dumps(iterator.get_state()))
            rest = [plain(element) for element in iterator]
            after = [plain(element) for element in first]
            for name, dataset in (("another", other), ("a walked", walked), ("the same", first)):
                resumed = iter(dataset)
                resumed.set_state(state)
                found = [plain(element) for element in resumed]
                assert found == rest, (
                    f"{name} data set resumed at {position}: {found}, not {rest} (after {begun}), "
                    f"for\n{text}"
                )
                following = [plain(element) for element in dataset]
                assert following == after, (
                    f"{name} data set after it was resumed at {position}: {following}, not "
                    f"{after}, for\n{text}"
                )
                comparisons += 2
    return comparisons


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_programs(seed: int):
    program(seed)
