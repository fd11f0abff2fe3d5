"""Looking at a pipeline: one line, a tree, a table in a notebook, and where its time goes."""

import copy
import functools
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Calls, Dataset, elements, text_files


def pipeline(folder: Path) -> Any:
    lines = rx.data.TextLineDataset(text_files(folder, 3, 2))
    numbers = Dataset.range(9).shuffle(9, seed=4).map(lambda x: x * 2)
    options = rx.data.Options()
    options.experimental_distribute.auto_shard_policy = rx.data.experimental.AutoShardPolicy.DATA
    return (
        Dataset.zip(lines, numbers)
        .filter(lambda line, x: True)
        .cache()
        .repeat(2)
        .batch(4)
        .with_options(options)
        .prefetch(2)
    )


def test_a_line_looks_like_tensorflows():
    assert repr(Dataset.range(3)) == "<RangeDataset shapes: (), types: int64>"
    rows = Dataset.from_tensor_slices({"x": np.zeros((3, 2), np.float32), "t": ["a", "b", "c"]})
    shapes, types = "{x: (None, 2), t: (None,)}", "{x: float32, t: string}"
    assert repr(rows.batch(2)) == f"<BatchDataset shapes: {shapes}, types: {types}>"
    pair = Dataset.zip(Dataset.range(2), rows)
    assert repr(pair).startswith("<ZipDataset shapes: ((), {x: (2,), t: ()}), types: ")
    assert "element_spec=DatasetSpec" in repr(Dataset.range(3).window(2))


def test_the_tree_shows_every_operation_with_its_arguments(tmp_path: Path):
    text = str(pipeline(tmp_path))
    lines = text.splitlines()
    names = ["Prefetch", "Options", "Batch", "Repeat", "Cache", "Filter", "Zip", "TextLine"]
    assert [line.split()[0] for line in lines[1:9]] == names
    assert "Map" in text and "Shuffle" in text and "Range" in text
    for part in ("auto_shard_policy DATA", "2 file(s)", "seed 4", "range(0, 9)", "unknown number"):
        assert part in text, text
    indents = [len(line) - len(line.lstrip()) for line in lines[1:9]]
    assert indents == sorted(indents) and len(set(indents)) == 8
    assert "[without end]" in str(Dataset.range(3).repeat())
    assert "[3]" in str(Dataset.range(3))


def test_functions_are_shown_by_name_and_place():
    def double(x: Any) -> Any:
        return 2 * x

    text = str(Dataset.range(3).map(double))
    assert "double" in text and f"{Path(__file__).name}:" in text
    assert "vectorized" in str(Dataset.range(3).map(double, vectorized=True))
    assert "on the device" in str(Dataset.range(3).map(double, on_device=True))
    assert str(Dataset.range(3).map(functools.partial(double)))
    assert str(Dataset.range(3).map(np.square))


def test_notebooks_get_a_table_with_nothing_unescaped(tmp_path: Path):
    html = pipeline(tmp_path)._repr_html_()
    assert html.count("<table") == html.count("</table>") == 1
    assert "&lt;lambda&gt;" in html and "<lambda>" not in html
    assert "Batch" in html and "Range" in html


def test_looking_runs_nothing_of_the_users():
    calls = Calls()

    def generate() -> Any:
        calls.append("generator")
        yield 1

    for dataset in (
        Dataset.range(3).map(calls.of()),
        Dataset.from_generator(generate).batch(2),
        Dataset.range(3).filter(calls.of(lambda x: True)),
        Dataset.range(3).flat_map(calls.of(Dataset.range)),
        Dataset.range(3).map(calls.of(), vectorized=True),
    ):
        assert repr(dataset) and str(dataset) and dataset._repr_html_()
        dataset.cardinality()
    assert calls == []


def test_broken_data_sets_can_be_looked_at(tmp_path: Path):
    def broken(x: Any) -> Any:
        raise KeyError

    for dataset in (
        rx.data.TextLineDataset(str(tmp_path / "missing")).batch(2),
        Dataset.range(3).map(broken),
        Dataset.from_generator(lambda: 1 / 0),
        Dataset.range(3).unbatch(),
        Dataset.from_tensor_slices(np.zeros((0, 2))).map(broken),
    ):
        assert repr(dataset) and str(dataset) and dataset._repr_html_()


def test_the_benchmark_tells_where_the_time_goes(monkeypatch: pytest.MonkeyPatch):
    now = 0.0

    def slow(x: Any) -> Any:
        nonlocal now
        now += 0.002
        return x

    monkeypatch.setattr(time, "perf_counter", lambda: now)

    report = Dataset.range(1000).map(slow).batch(2).benchmark(elements=4, warm_up=1)
    assert [stage.operation for stage in report.stages] == ["Batch", "Map", "Range"]
    assert report.elements == 4 and report.seconds == pytest.approx(0.004)
    by_name = {stage.operation: stage for stage in report.stages}
    assert by_name["Map"].share == 1.0 and by_name["Map"].seconds == pytest.approx(0.004)
    assert sum(stage.share for stage in report.stages) == pytest.approx(1.0)
    text = str(report)
    assert "us for each of 4 elements" in text and "Map" in text and "slow" in text
    assert report._repr_html_().count("<tr") >= 3


def test_the_benchmark_of_short_endless_and_empty_data_sets():
    assert Dataset.range(3).benchmark(elements=10, warm_up=0).elements == 3
    assert Dataset.range(3).repeat().shuffle(3).benchmark(elements=5).elements == 5
    assert Dataset.range(0).batch(2).benchmark().elements == 0
    assert Dataset.range(3).benchmark(elements=2, warm_up=9).elements == 3
    both = Dataset.zip(Dataset.range(9), Dataset.range(9)).map(lambda a, b: a).benchmark(3, 0)
    assert [stage.operation for stage in both.stages] == ["Map", "Zip"]
    options = rx.data.Options()
    with_options = Dataset.range(9).with_options(options).prefetch(1).benchmark(2, 0)
    assert {stage.operation for stage in with_options.stages} >= {"Range"}
    assert str(with_options) and elements(Dataset.range(2)) == [0, 1]


def test_the_benchmark_leaves_the_data_set_as_it_was():
    dataset = Dataset.range(20).shuffle(20, seed=1)
    dataset.benchmark(5)
    assert elements(dataset) == elements(Dataset.range(20).shuffle(20, seed=1))


def test_copies_are_the_same_data_set():
    dataset = Dataset.range(20).shuffle(20).batch(5)
    for same in (copy.copy(dataset), copy.deepcopy(dataset), copy.deepcopy({"a": dataset})["a"]):
        iterator = iter(dataset)
        state = iterator.get_state()
        other = iter(same)
        other.set_state(state)
        assert elements(other) == elements(iterator)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(5).shuffle(5).batch(2),
        lambda: Dataset.from_tensor_slices(
            {"a": np.arange(3), "b": (np.arange(3), ["x", "y", "z"])}
        ),
        lambda: Dataset.zip({"a": Dataset.range(3), "b": Dataset.range(3)}).repeat(2).prefetch(1),
        lambda: Dataset.range(3).map(np.square).cache().enumerate(),
    ],
)
def test_pickled_data_sets_are_the_same_or_are_refused_clearly(make: Any):
    dataset = make()
    try:
        same = pickle.loads(pickle.dumps(dataset))
    except TypeError as error:
        assert "data set" in str(error) and "pickle" in str(error)
        return
    iterator, other = iter(dataset), iter(same)
    other.set_state(iterator.get_state())
    assert elements(other) == elements(iterator)


def test_a_pickled_iterator_is_refused_or_continues():
    iterator = iter(Dataset.range(5))
    next(iterator)
    try:
        again = pickle.loads(pickle.dumps(iterator))
    except TypeError as error:
        assert "get_state" in str(error)
        return
    assert elements(again) == [1, 2, 3, 4]
