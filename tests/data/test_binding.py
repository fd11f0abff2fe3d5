"""Functions see the numbers and texts around them as they were when `map` was called."""

import pickle
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax.data._binding import bound_now

Dataset = rx.data.Dataset
SCALE = 3
COUNTED = 0


def scaled(x: Any) -> Any:
    return x * SCALE


def count(x: Any) -> Any:
    global COUNTED
    COUNTED += 1
    return x


def values(dataset: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in dataset]


def test_the_variable_of_a_loop_has_the_value_of_its_round():
    parts = []
    for label in range(3):
        parts.append(
            Dataset.range(2)
            .map(lambda x: x + 10 * label)  # noqa: B023
            .filter(lambda x: x >= 10 * label)  # noqa: B023
            .flat_map(lambda x: Dataset.from_tensors(x + label))  # noqa: B023
        )
    assert [values(part) for part in parts] == [[0, 1], [11, 12], [22, 23]]


def test_the_variable_of_a_loop_in_a_module(monkeypatch: pytest.MonkeyPatch):
    dataset = Dataset.range(2).map(scaled)
    monkeypatch.setitem(globals(), "SCALE", 100)
    assert values(dataset) == [0, 3]
    assert values(Dataset.range(2).map(scaled)) == [0, 100]


def test_methods_are_bound_too():
    factor = 2

    class Model:
        offset = 1

        def apply(self, x: Any) -> Any:
            return x * factor + self.offset

    model = Model()
    dataset = Dataset.range(2).map(model.apply)
    factor = model.offset = 5
    assert values(dataset) == [5, 7]


def test_what_can_change_is_what_it_is():
    seen: list[int] = []
    total = 0

    def add(x: Any) -> Any:
        nonlocal total
        total += int(x)
        seen.append(total)
        return x

    assert values(Dataset.range(4).map(add)) == [0, 1, 2, 3]
    assert (seen, total) == ([0, 1, 3, 6], 6)
    before = COUNTED
    assert values(Dataset.range(4).map(count)) == [0, 1, 2, 3]
    assert COUNTED == before + 4


def test_names_that_come_later_are_found():
    def early(x: Any) -> Any:
        return later(x) + SCALE

    dataset = Dataset.range(2).map(early)

    def later(x: Any) -> Any:
        return x * 2

    assert values(dataset) == [3, 5]


def test_functions_without_such_names_are_themselves():
    plain = np.negative
    assert bound_now(plain) is plain

    def nothing(x: Any) -> Any:
        return x

    assert bound_now(nothing) is nothing


def test_bound_functions_show_their_own_names_and_can_be_pickled():
    dataset = Dataset.range(2).map(scaled)
    assert "scaled" in str(dataset)
    assert values(pickle.loads(pickle.dumps(dataset))) == [0, 3]
