"""`cache`: computed once, in memory or in a file; whole or not at all."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines import Calls, Dataset, elements


def test_the_first_pass_computes_and_the_next_ones_do_not():
    calls = Calls()
    dataset = Dataset.range(4).map(calls.of(lambda x: x * 2)).cache()
    assert elements(dataset) == [0, 2, 4, 6] and calls == [0, 1, 2, 3]
    assert elements(dataset) == elements(dataset.take(9)) == [0, 2, 4, 6]
    assert elements(dataset.batch(2)) == [[0, 2], [4, 6]]
    assert elements(dataset.repeat(3)) == [0, 2, 4, 6] * 3
    assert len(calls) == 4 and len(dataset) == 4


def test_repetitions_of_the_first_pass_are_computed_once():
    calls = Calls()
    dataset = Dataset.range(3).map(calls.of()).cache().repeat(4).batch(5)
    assert elements(dataset) == [[0, 1, 2, 0, 1], [2, 0, 1, 2, 0], [1, 2]]
    assert calls == [0, 1, 2]


def test_a_pass_that_was_broken_off_leaves_nothing():
    calls = Calls()
    dataset = Dataset.range(4).map(calls.of()).cache()
    for _ in dataset:
        break
    next(iter(dataset.take(2)))
    elements(dataset.take(2))
    assert elements(dataset) == [0, 1, 2, 3] and elements(dataset) == [0, 1, 2, 3]
    calls.clear()
    assert elements(dataset) == [0, 1, 2, 3] and calls == []


def test_skipping_does_not_leave_holes():
    dataset = Dataset.range(5).map(lambda x: x).cache()
    assert elements(dataset.skip(3)) == [3, 4]
    assert elements(dataset.shard(2, 1)) == [1, 3]
    assert elements(dataset) == elements(dataset) == [0, 1, 2, 3, 4]
    iterator = iter(dataset)
    iterator.set_state(iterator.get_state() | {"position": 4})
    assert elements(iterator) == [4] and elements(dataset) == [0, 1, 2, 3, 4]


def test_an_error_in_the_first_pass_leaves_nothing():
    fail = [True]

    def fn(x: Any) -> Any:
        if x == 2 and fail[0]:
            raise KeyError("not yet")
        return x

    dataset = Dataset.range(4).map(fn).cache()
    with pytest.raises(KeyError):
        list(dataset)
    fail[0] = False
    assert elements(dataset) == elements(dataset) == [0, 1, 2, 3]


def test_errors_that_are_passed_do_not_make_holes():
    fail = [True]

    def fn(x: Any) -> Any:
        if x == 2 and fail[0]:
            fail[0] = False
            raise KeyError("once")
        return x

    dataset = Dataset.range(4).map(fn).cache()
    iterator = iter(dataset)
    for _ in range(6):
        try:
            next(iterator, None)
        except KeyError:
            pass
    assert elements(dataset) == [0, 1, 2, 3]


def test_what_is_kept_cannot_be_changed_by_those_who_get_it():
    for make in (
        lambda x: np.array([x]),
        lambda x: {"x": np.array([x])},
        lambda x: (np.array([x]), "text"),
    ):
        dataset = Dataset.range(3).map(make).cache()
        wanted = elements(dataset)
        for element in dataset:
            leaf = element["x"] if isinstance(element, dict) else element
            leaf = leaf[0] if isinstance(leaf, tuple) else leaf
            try:
                leaf += 100
            except ValueError as error:
                assert "read-only" in str(error)
            if isinstance(element, dict):
                element["new"] = 1
        assert elements(dataset) == wanted
        first = Dataset.range(3).map(make).cache()
        for element in first:  # while it is filled
            leaf = element["x"] if isinstance(element, dict) else element
            leaf = leaf[0] if isinstance(leaf, tuple) else leaf
            try:
                leaf += 100
            except ValueError as error:
                assert "read-only" in str(error)
        assert elements(first) == wanted


def test_two_passes_at_once():
    calls = Calls()
    dataset = Dataset.range(50).map(calls.of()).cache()
    one, other = iter(dataset), iter(dataset)
    assert [next(one) == next(other) for _ in range(50)] == [True] * 50
    assert elements(one) == elements(other) == []
    calls.clear()
    assert elements(dataset) == list(range(50)) and calls == []


def test_two_threads_at_once():
    dataset = Dataset.range(300).map(lambda x: x * 2).cache()
    found: list[list[Any]] = []

    def read() -> None:
        found.append(elements(dataset))
        found.append(elements(dataset))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(0, 600, 2))] * 6


def test_data_sets_made_of_a_cached_one_share_it():
    calls = Calls()
    cached = Dataset.range(4).map(calls.of()).cache()
    elements(cached)
    assert elements(cached.shuffle(4, seed=1)) != elements(cached.batch(2))
    assert len(calls) == 4


# ------------------------------------------------------------------ files


def test_a_file_outlives_the_data_set(tmp_path: Path):
    calls = Calls()
    name = str(tmp_path / "kept")

    def make() -> Any:
        rows = {"x": np.arange(4.0).reshape(2, 2), "t": ["a", "b"]}
        return Dataset.from_tensor_slices(rows).map(calls.of(lambda row: row)).cache(name)

    wanted = [{"x": [0.0, 1.0], "t": b"a"}, {"x": [2.0, 3.0], "t": b"b"}]
    assert elements(make()) == wanted and len(calls) == 2
    assert elements(make()) == wanted and len(calls) == 2
    assert elements(Dataset.range(2).cache(tmp_path / "other")) == [0, 1]


def test_a_broken_off_pass_leaves_no_file(tmp_path: Path):
    dataset = Dataset.range(4).cache(str(tmp_path / "kept"))
    for _ in dataset.map(lambda x: x):
        break
    assert list(tmp_path.iterdir()) == []
    assert elements(dataset) == [0, 1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_is_no_cache_is_refused(tmp_path: Path):
    rubbish = (
        b"",
        b"hello",
        b"\x80\x04\x95",
        b"\x80\x81",
        b"h\x00.",
        b"\x82\x01.",
        b"I1\n.",
        b"}.",
    )
    for content in rubbish:
        (tmp_path / "kept").write_bytes(content)
        with pytest.raises(ValueError, match="kept.*no cache file.*[Dd]elete"):
            list(Dataset.range(2).cache(str(tmp_path / "kept")))


def test_a_folder_that_is_not_there_is_refused_before_anything_is_computed(tmp_path: Path):
    calls = Calls()
    name = str(tmp_path / "missing" / "kept")
    with pytest.raises(FileNotFoundError, match="missing"):
        list(Dataset.range(4).map(calls.of()).cache(name))
    assert calls == []


def test_a_dict_of_the_cache_is_the_users_own_also_after_a_shuffle():
    dataset = Dataset.range(6).map(lambda x: {"x": x}).cache()
    list(dataset)
    for element in dataset.shuffle(3, seed=1):
        element["x"] = np.int64(99)
    assert [int(element["x"]) for element in dataset] == [0, 1, 2, 3, 4, 5]
