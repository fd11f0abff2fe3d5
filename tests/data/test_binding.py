"""Functions see the numbers and texts around them as they were when `map` was called."""

import pickle
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.data._binding import bound_now

Dataset = rx.data.Dataset
SCALE = 3
OFFSET = 7
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


def helped(x: Any) -> Any:
    return scaled(x) + OFFSET


def through_default(x: Any, helper: Any = scaled) -> Any:
    return helper(x)


def countdown(x: Any, left: int = 3) -> Any:
    return x * SCALE if left == 0 else countdown(x, left - 1)


def bump() -> None:
    global COUNTED
    COUNTED += 1


def bump_and_read(x: Any) -> Any:
    bump()
    return x + COUNTED * SCALE


def test_helpers_see_what_the_function_sees(monkeypatch: pytest.MonkeyPatch):
    functions = (scaled, helped, through_default, countdown, lambda x: helped(x))
    before = [Dataset.range(2).map(fn) for fn in functions]
    monkeypatch.setitem(globals(), "SCALE", 100)
    monkeypatch.setitem(globals(), "OFFSET", 1000)
    assert [values(each) for each in before] == [[0, 3], [7, 10], [0, 3], [0, 3], [7, 10]]
    later = [values(Dataset.range(2).map(fn)) for fn in functions]
    assert later == [[0, 100], [1000, 1100], [0, 100], [0, 100], [1000, 1100]]


def test_helpers_of_a_loop_see_its_round():
    parts = []
    for label in range(3):

        def helper(x: Any) -> Any:
            return x + 10 * label  # noqa: B023

        parts.append(Dataset.range(2).map(lambda x: helper(x) * 2))  # noqa: B023
    assert [values(part) for part in parts] == [[0, 2], [20, 22], [40, 42]]


def test_a_helper_is_the_one_of_when_map_was_called(monkeypatch: pytest.MonkeyPatch):
    dataset = Dataset.range(2).map(helped)
    monkeypatch.setitem(globals(), "scaled", lambda x: x * 0)
    assert values(dataset) == [7, 10]
    assert values(Dataset.range(2).map(helped)) == [7, 7]


def test_what_a_helper_assigns_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "COUNTED", 0)
    assert values(Dataset.range(3).map(bump_and_read)) == [3, 7, 11]
    assert COUNTED == 3
    total = 0

    def add() -> None:
        nonlocal total
        total += 1

    def read(x: Any) -> Any:
        add()
        return x + total

    assert values(Dataset.range(3).map(read)) == [1, 3, 5] and total == 3


def test_attributes_of_functions_and_objects_are_what_they_are():
    def helper(x: Any) -> Any:
        return x * helper.factor + table[0] + number  # type: ignore[attr-defined]

    number, table = 1, [5]
    helper.factor = 2  # type: ignore[attr-defined]
    dataset = Dataset.range(2).map(lambda x: helper(x))
    helper.factor, table[0], number = 3, 50, 1000  # type: ignore[attr-defined]
    assert values(dataset) == [51, 54]


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
