"""Data sets on the host: grouping, choosing, going along, and folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._expected import raises
from .._library import Library
from .._observation import Seen
from .._pipelines import HOST_ONLY, element, elements, folder
from .._registry import ours, scenario
from .data_operations import _columns, _evens, _generator, _pairs, _range, _slices, _zip

Make = Callable[[Library], Any]

ROWS = [[0], [1, 2, 3, 4], [5, 6, 7], [7, 8, 9, 10, 11], [13, 14, 15, 16, 19, 20], [21, 22]]


def _rows(lib: Library) -> Any:
    return _generator(lib, ROWS, ([None], "int32"))


def _numbered_rows(lib: Library) -> Any:
    return _zip(lib, _rows(lib), _range(lib, 6))


def _length(row: Any, *_: Any) -> Any:
    return row.shape[0] if isinstance(row, np.ndarray) else _dynamic_length(row)


def _dynamic_length(row: Any) -> Any:
    """The length of TensorFlow's symbolic row."""
    import tensorflow as tf

    return tf.shape(row)[0]


def _choose(lib: Library, choices: list[int], *datasets: Any, **options: Any) -> Any:
    numbers = _slices(lib, np.array(choices, np.int64))
    return lib.data.Dataset.choose_from_datasets(list(datasets), numbers, **options)


def _three(lib: Library) -> tuple[Any, Any, Any]:
    return _range(lib, 3), _range(lib, 10, 15), _range(lib, 20, 22)


def _bucket(lib: Library, dataset: Any, *given: Any, **options: Any) -> Any:
    boundaries, sizes = given or ([3, 5], [2, 2, 2])
    return dataset.bucket_by_sequence_length(_length, boundaries, sizes, **options)


def _even(x: Any, *_: Any) -> Any:
    return x % 2


def _failing(x: Any) -> Any:
    if not isinstance(x, np.floating):
        import tensorflow as tf

        return tf.debugging.check_numerics(1.0 / x, "on purpose")
    if x == 0:
        raise ValueError("on purpose")
    return 1 / x


DATASETS: dict[str, Make] = {
    "choose": lambda lib: _choose(lib, [0, 1, 2, 0, 1, 2, 0, 1, 2], *_three(lib)),
    "choose past the end": lambda lib: _choose(
        lib, [0, 1, 2, 0, 1, 2, 0, 1, 2, 1, 0, 1], *_three(lib), stop_on_empty_dataset=False
    ),
    "choose few": lambda lib: _choose(lib, [0, 1], *_three(lib)),
    "choose for ever": lambda lib: lib.data.Dataset.choose_from_datasets(
        _three(lib)[:2], _range(lib, 2).repeat(), False
    ),
    "choose of repeat": lambda lib: lib.data.Dataset.choose_from_datasets(
        [_range(lib, 3).repeat(), _range(lib, 10, 15)], _range(lib, 2).repeat(), False
    ),
    "choose of repeat, stopping": lambda lib: lib.data.Dataset.choose_from_datasets(
        [_range(lib, 3).repeat(), _range(lib, 10, 15)], _range(lib, 2).repeat()
    ),
    "choose of other shapes": lambda lib: _choose(
        lib, [0, 1], _slices(lib, [[1]]), _slices(lib, [[1, 2]])
    ),
    "choose of a filter": lambda lib: _choose(
        lib, [0, 1, 0, 1, 0], _range(lib, 9).filter(_evens), _range(lib, 2)
    ),
    "choose of pairs, batched": lambda lib: _choose(lib, [0, 1, 1, 0], *[_pairs(lib)] * 2).batch(3),
    "sample of one": lambda lib: lib.data.Dataset.sample_from_datasets([_range(lib, 3)]),
    "sample by 0 and 1": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 3), _range(lib, 5)], [0.0, 1.0]
    ),
    "sample by 0 and 0": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 3), _range(lib, 5)], [0.0, 0.0]
    ),
    "sample by a data set": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 3), _range(lib, 5)], _slices(lib, [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    ),
    "counter": lambda lib: lib.data.Dataset.counter(),
    "counter with names": lambda lib: lib.data.Dataset.counter(start=2, step=-3, dtype=np.int32),
    "counter of floats": lambda lib: lib.data.Dataset.counter(1, 0.5, np.float32),
    "take_while": lambda lib: _range(lib, 8).take_while(lambda x: x < 3),
    "take_while of repeat": lambda lib: _range(lib, 8).repeat().take_while(lambda x: x < 3),
    "take_while of pairs": lambda lib: _pairs(lib).take_while(lambda a, b: b < 25),
    "take_while of all": lambda lib: _range(lib, 3).take_while(lambda x: x < 9),
    "take_while, again": lambda lib: _range(lib, 5).take_while(lambda x: x < 2).repeat(2),
    "unique": lambda lib: _slices(lib, [1, 37, 2, 37, 2, 1]).unique(),
    "unique texts": lambda lib: _slices(lib, ["a", "b", "a", ""]).unique(),
    "unique rows": lambda lib: _slices(lib, [[1, 2], [1, 2], [2, 1]]).unique(),
    "unique of repeat": lambda lib: _range(lib, 3).repeat().unique().take(3),
    "unique, again": lambda lib: _range(lib, 3).repeat(2).unique().repeat(2),
    "scan": lambda lib: _range(lib, 10).scan(np.int64(0), lambda state, x: (state + x, state)),
    "scan of a filter": lambda lib: (
        _range(lib, 9).filter(_evens).scan(np.int64(0), lambda state, x: (state + x, state + x))
    ),
    "scan of pairs": lambda lib: _pairs(lib).scan(
        np.float32(0), lambda state, row: (state + row[1], (state, row[0]))
    ),
    "scan with a pair": lambda lib: _range(lib, 5).scan(
        (np.int64(0), np.int64(1)), lambda state, x: ((state[1], state[0] + state[1]), state[1])
    ),
    "scan of repeat": lambda lib: (
        _range(lib, 3).repeat().scan(np.int64(0), lambda state, x: (state + x, state + x))
    ),
    "scan, again": lambda lib: (
        _range(lib, 3).scan(np.int64(0), lambda state, x: (state + x, state + x)).repeat(2)
    ),
    "ignore_errors": lambda lib: _slices(lib, [1.0, 2.0, 0.0, 4.0]).map(_failing).ignore_errors(),
    "ignore_errors of batches": lambda lib: (
        _slices(lib, [1.0, 2.0, 0.0, 4.0]).map(_failing).batch(2).ignore_errors()
    ),
    "ignore_errors of none": lambda lib: _range(lib, 3).ignore_errors(),
    "group": lambda lib: _range(lib, 10).group_by_window(_even, lambda k, w: w.batch(3), 3),
    "group, what is left": lambda lib: _range(lib, 9).group_by_window(
        lambda x: 2 - x % 4, lambda k, w: _zip(lib, _slices(lib, [k] * 5), w), window_size=5
    ),
    "group by sizes": lambda lib: _range(lib, 10).group_by_window(
        _even, lambda k, w: w.batch(9), window_size_func=lambda key: (key + 1) * 2
    ),
    "group of pairs": lambda lib: _pairs(lib).group_by_window(
        _even, lambda k, w: w.batch(4), window_size=2
    ),
    "group of columns": lambda lib: _columns(lib).group_by_window(
        lambda row: row["a"] % 2, lambda k, w: w.batch(4), window_size=2
    ),
    "group to several": lambda lib: _range(lib, 6).group_by_window(
        _even, lambda k, w: w.repeat(2), window_size=2
    ),
    "bucket": lambda lib: _bucket(lib, _rows(lib)),
    "bucket with drop_remainder": lambda lib: _bucket(
        lib, _rows(lib), [3, 6], [3, 2, 2], drop_remainder=True
    ),
    "bucket to the boundary": lambda lib: _bucket(
        lib, _rows(lib), [3, 8], [2, 2, 2], pad_to_bucket_boundary=True
    ),
    "bucket with padding": lambda lib: _bucket(
        lib, _rows(lib), padded_shapes=[8], padding_values=np.int32(7)
    ),
    "bucket of pairs": lambda lib: _bucket(lib, _numbered_rows(lib)),
    "bucket of pairs to the boundary": lambda lib: _bucket(
        lib, _numbered_rows(lib), [3, 8], [2, 2, 2], pad_to_bucket_boundary=True
    ),
    "bucket of all": lambda lib: _bucket(lib, _rows(lib), [], [2]),
    "bucket without padding": lambda lib: _bucket(
        lib, _rows(lib), [2, 3, 4, 5, 6, 7], [1] * 7, no_padding=True
    ),
}

REFUSED: dict[str, Make] = {
    "choose of none": lambda lib: _choose(lib, [0]),
    "choose of another type": lambda lib: _choose(lib, [0], _range(lib, 2), _slices(lib, [1.0])),
    "choose that is not there": lambda lib: _choose(lib, [0, 5], _range(lib, 2)),
    "choose by int32": lambda lib: lib.data.Dataset.choose_from_datasets(
        [_range(lib, 2)], _slices(lib, [0])
    ),
    "choose by a list": lambda lib: lib.data.Dataset.choose_from_datasets([_range(lib, 2)], [0]),
    "choose by rows": lambda lib: lib.data.Dataset.choose_from_datasets(
        [_range(lib, 2)], _slices(lib, np.zeros((2, 1), np.int64))
    ),
    "sample of none": lambda lib: lib.data.Dataset.sample_from_datasets([]),
    "sample by too few": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 2)] * 2, [1.0]
    ),
    "sample by integers": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 2)] * 2, [1, 2]
    ),
    "sample of another type": lambda lib: lib.data.Dataset.sample_from_datasets(
        [_range(lib, 2), _slices(lib, [1.0])]
    ),
    "counter of a half": lambda lib: lib.data.Dataset.counter(start=0.5),
    "unique floats": lambda lib: _slices(lib, [1.0]).unique(),
    "unique bytes": lambda lib: _slices(lib, np.array([1], "uint8")).unique(),
    "scan that returns one": lambda lib: _range(lib, 3).scan(0, lambda state, x: state),
    "scan of another type": lambda lib: _range(lib, 3).scan(
        np.int32(0), lambda state, x: (x, state)
    ),
    "scan with two arguments": lambda lib: _pairs(lib).scan(0, lambda state, a, b: (state, a)),
    "group by two sizes": lambda lib: _range(lib, 3).group_by_window(
        _even, lambda k, w: w, 2, lambda key: 2
    ),
    "group by no size": lambda lib: _range(lib, 3).group_by_window(_even, lambda k, w: w),
    "group by 0": lambda lib: _range(lib, 3).group_by_window(_even, lambda k, w: w, 0),
    "group by a list": lambda lib: _range(lib, 3).group_by_window(lambda x: [x], lambda k, w: w, 2),
    "group to a number": lambda lib: _range(lib, 3).group_by_window(_even, lambda k, w: k, 2),
    "bucket with too few sizes": lambda lib: _bucket(lib, _rows(lib), [3, 5], [2, 2]),
    "bucket of the longest to a boundary": lambda lib: _bucket(
        lib, _rows(lib), pad_to_bucket_boundary=True
    ),
    "bucket of others without padding": lambda lib: _bucket(lib, _rows(lib), no_padding=True),
    "resample of other classes": lambda lib: _range(lib, 5).rejection_resample(
        lambda x: x + 7, [1.0, 0.0], [0.5, 0.5]
    ),
    "resample of too many": lambda lib: _range(lib, 5).rejection_resample(
        _even, [0.5, 0.5], [0.5, 0.3, 0.2]
    ),
    "a folder that is not there": lambda lib: lib.data.Dataset.load("no such folder"),
}


@scenario(case=tuple(DATASETS), eager_only=HOST_ONLY)
def contents(lib: Library, case: str) -> Any:
    return elements(lib, lambda: DATASETS[case](lib))


@scenario(case=tuple(DATASETS), eager_only=HOST_ONLY)
def described(lib: Library, case: str) -> Any:
    def describe() -> Any:
        dataset = DATASETS[case](lib)
        return {
            "spec": lib.spec(dataset.element_spec),
            "cardinality": int(dataset.cardinality()),
        }

    return lib.outcome(describe)


@scenario(case=tuple(REFUSED), eager_only=HOST_ONLY)
@ours(
    "an element is wrong, not the library",
    raises("ValueError"),
    case="bucket of the longest to a boundary",
)
def refused(lib: Library, case: str) -> Any:
    return elements(lib, lambda: REFUSED[case](lib))


@scenario(eager_only=HOST_ONLY)
def single_elements(lib: Library) -> Any:
    return {str(count): lib.outcome(lambda count=count: _single(lib, count)) for count in (0, 1, 2)}


def _single(lib: Library, count: int) -> Any:
    return element(lib, _range(lib, count).get_single_element())


# Random numbers: laws, not numbers.


@scenario(seed=(None, 3), again=(None, True, False), eager_only=HOST_ONLY)
def random_over_iterations(lib: Library, seed: int | None, again: Any) -> Any:
    def numbers() -> Any:
        return lib.data.Dataset.random(seed=seed, rerandomize_each_iteration=again)

    def sampled() -> Any:
        parts = [_range(lib, 12), _range(lib, 20, 32)]
        return lib.data.Dataset.sample_from_datasets(
            parts, seed=seed, rerandomize_each_iteration=again
        )

    seen = {}
    for name, make in {"numbers": numbers, "sampled": sampled}.items():
        dataset = make().take(24)
        first, second, other, repeated = (
            [int(each) for each in some]
            for some in (dataset, dataset, make().take(24), make().take(12).repeat(2))
        )
        seen[name] = {
            "in range": all(0 <= each < 2**32 for each in first),
            "same in the next iteration": first == second,
            "same in the next repetition": repeated[:12] == repeated[12:],
            "same in a new data set": seed is not None and other == first,
            "cardinality": int(make().cardinality()),
        }
    return seen


@scenario(seed=(None, 3), known=(True, False), eager_only=HOST_ONLY)
def resampled(lib: Library, seed: int | None, known: bool) -> Any:
    initial = [0.9, 0.1] if known else None
    dataset = _range(lib, 4000).rejection_resample(lambda x: x % 10 // 9, [0.5, 0.5], initial, seed)
    classes = [int(number) for number, _ in dataset]
    share = sum(classes) / len(classes)
    return {
        "half of each": abs(share - 0.5) < (0.06 if known else 0.09),
        "about a fifth is left": 600 < len(classes) < (1000 if known else 1400),
        "spec": lib.spec(dataset.element_spec),
        "cardinality": int(dataset.cardinality()),
    }


@scenario(eager_only=HOST_ONLY)
def ragged_batches(lib: Library) -> Any:
    def lists(value: Any) -> Any:
        if hasattr(value, "to_list"):  # TensorFlow's
            return value.to_list()
        rows, lengths = value
        return [row[:length].tolist() for row, length in zip(rows, lengths.tolist())]

    def numbered(dataset: Any) -> Any:
        return [Seen(rows=lists(rows), numbers=element(lib, numbers)) for rows, numbers in dataset]

    return {
        "rows": [lists(each) for each in _rows(lib).ragged_batch(4)],
        "dropping": [lists(each) for each in _rows(lib).ragged_batch(4, drop_remainder=True)],
        "pairs": numbered(_numbered_rows(lib).ragged_batch(4)),
        "numbers": elements(lib, lambda: _range(lib, 4).ragged_batch(3)),
        "of none": lib.outcome(lambda: list(_range(lib, 4).ragged_batch(0))),
    }


FOLDERS: dict[str, Make] = {
    "range": lambda lib: _range(lib, 5),
    "pairs": _pairs,
    "columns": _columns,
    "texts": lambda lib: _slices(lib, ["a", "", "bc"]),
    "rows": _rows,
    "batches": lambda lib: _range(lib, 5).batch(2),
}


@scenario(case=tuple(FOLDERS), compression=(None, "GZIP"), eager_only=HOST_ONLY)
def saved(lib: Library, case: str, compression: str | None) -> Any:
    with folder() as path:
        name = str(path / "folder")
        FOLDERS[case](lib).save(name, compression=compression)
        dataset = lib.data.Dataset.load(name, compression=compression)
        return {
            "elements": elements(lib, lambda: dataset),
            "spec": lib.spec(dataset.element_spec),
            "cardinality": int(dataset.cardinality()),
        }


@scenario(eager_only=HOST_ONLY)
def saved_in_shards(lib: Library) -> Any:
    with folder() as path:
        name = str(path / "folder")
        _range(lib, 10).save(name, shard_func=lambda x: x % 3)
        read = lib.data.Dataset.load(name, reader_func=lambda shards: shards.flat_map(lambda x: x))
        return elements(lib, lambda: read)


@scenario(eager_only=HOST_ONLY)
def saved_twice(lib: Library) -> Any:
    with folder() as path:
        name = str(path / "folder")
        _range(lib, 10).save(name)
        _range(lib, 3).save(name)
        return elements(lib, lambda: lib.data.Dataset.load(name))


@scenario(eager_only=HOST_ONLY)
def snapshots(lib: Library) -> Any:
    with folder() as path:
        dataset = _range(lib, 5).shuffle(5).snapshot(str(path / "folder"))
        first, second = ([int(each) for each in dataset] for _ in range(2))
        return {
            "elements": sorted(first),
            "again": sorted(second),
            "cardinality": int(dataset.cardinality()),
        }
