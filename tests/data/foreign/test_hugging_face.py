"""Data sets of Hugging Face, where they are installed."""

import sys
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.data import stand_ins
from tests.data.foreign.sources import from_source, installed, rest_after, rows_of_workers, steps
from tests.pipelines import elements, flat, on_host

# ------------------------------------------------------------------ Hugging Face


def test_columns_of_a_format_are_read_by_index(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", stand_ins.torch_module())
    source = stand_ins.ArrowDataset(
        {
            "x": np.arange(10, dtype=np.float32).reshape(5, 2),
            "s": list("abcde"),
            "t": [stand_ins.Tensor(np.float32(i)) for i in range(5)],
            "d": [{"a": i} for i in range(5)],
        }
    )
    dataset = from_source(source)
    assert elements(dataset.batch(2))[1] == {
        "x": [[4, 5], [6, 7]],
        "s": [b"c", b"d"],
        "t": [2, 3],
        "d": {"a": [2, 3]},
    }
    assert source.asked == [slice(0, 2, 1), slice(2, 4, 1), slice(4, 5, 1)]
    source.asked.clear()
    dataset = from_source(stand_ins.ArrowDataset({"s": list("abc")})).shuffle(3, seed=0)
    assert sorted(row["s"] for row in dataset) == [b"a", b"b", b"c"]
    with pytest.raises(ValueError, match="not batched"):
        on_host(source, 2)


def test_rows_of_a_hugging_face_stream_without_features():
    rows = [{"x": np.full(2, i, np.uint8), "y": i, "l": [0.5, i]} for i in range(5)]
    dataset = from_source(stand_ins.StreamedDataset(rows))
    [batch] = dataset.batch(5)
    assert {name: batch[name].dtype.name for name in batch} == {
        "x": "uint8",
        "y": "int32",
        "l": "float32",
    }
    assert rest_after(lambda: dataset, 3)[1] == elements(rows[3:])
    assert dataset.cardinality() == rx.data.UNKNOWN_CARDINALITY


@pytest.fixture
def hugging_face(libraries: dict[str, Any]) -> Any:
    return installed(libraries, "datasets")


def all_types(hf: Any, size: int) -> Any:
    features = hf.Features(
        {
            "i": hf.Value("int32"),
            "u": hf.Value("uint8"),
            "d": hf.Value("float64"),
            "s": hf.Value("string"),
            "b": hf.Value("bool"),
            "v": hf.List(hf.Value("float32"), length=2),
            "r": hf.List(hf.Value("int64")),
            "a": hf.Array2D((2, 2), "uint8"),
            "c": hf.ClassLabel(names=["no", "yes"]),
        }
    )
    rows = range(size)
    return hf.Dataset.from_dict(
        {
            "i": list(rows),
            "u": [i % 256 for i in rows],
            "d": [i + 0.1 for i in rows],
            "s": [f"é{i}" for i in rows],
            "b": [i % 2 == 0 for i in rows],
            "v": [[i, i + 0.5] for i in rows],
            "r": [[i] * 3 for i in rows],
            "a": [[[i, 1], [2, 3]] for i in rows],
            "c": [i % 2 for i in rows],
        },
        features=features,
    )


def test_columns_of_hugging_face_keep_their_types(hugging_face: Any):
    source = all_types(hugging_face, 7)
    for dataset in (from_source(source), from_source(source.to_iterable_dataset())):
        spec = dataset.element_spec
        assert {name: (spec[name].shape, spec[name].dtype) for name in spec} == {
            "i": ((), np.int32),
            "u": ((), np.uint8),
            "d": ((), np.float64),
            "s": ((), object),
            "b": ((), bool),
            "v": ((2,), np.float32),
            "r": ((None,), np.int64),
            "a": ((2, 2), np.uint8),
            "c": ((), np.int64),
        }
        first, second = dataset.batch(4)
        assert {name: first[name].dtype for name in first} == {
            name: spec[name].dtype for name in spec
        }
        assert second["d"].tolist() == [4.1, 5.1, 6.1]
        assert second["s"].tolist() == ["é4".encode(), "é5".encode(), "é6".encode()]
        assert second["v"].tolist() == [[4, 4.5], [5, 5.5], [6, 6.5]]
        assert second["r"].tolist() == [[4] * 3, [5] * 3, [6] * 3]
        assert second["a"][0].tolist() == [[4, 1], [2, 3]]
        assert elements(row["i"] for row in dataset) == list(range(7))


def test_rows_of_hugging_face_are_shuffled_selected_and_sharded(hugging_face: Any):
    source = all_types(hugging_face, 20).select_columns(["i"]).select(range(4, 20, 2))
    dataset = from_source(source).map(lambda row: row["i"]).shuffle(8, seed=1).batch(3)
    assert sorted(flat(elements(dataset))) == list(range(4, 20, 2))
    found = rows_of_workers(lambda: dataset, 1, 2)
    assert sorted(flat(found)) == list(range(4, 20, 2))
    one, other = rest_after(lambda: dataset, 1)
    assert one == other
    with pytest.raises(ValueError, match="not batched"):
        on_host(source, 2)


def test_batches_of_a_hugging_face_stream(hugging_face: Any):
    source = all_types(hugging_face, 100).select_columns(["i", "s"]).to_iterable_dataset()
    found = steps(source.batch(8))
    assert flat(found) == list(range(100))
    assert found[-1] == [[96, 97], [98, 99]]
    rows = from_source(source).map(lambda row: row["i"]).batch(7)
    assert rest_after(lambda: rows, 9)[1] == elements(rows)[9:]
    mapped = source.map(lambda row: {"h": np.full(2, row["i"], np.float16)})
    [batch] = from_source(mapped).take(3).batch(3)
    assert batch["h"].dtype == np.float16


def test_formats_and_transforms_of_hugging_face_are_kept(hugging_face: Any):
    source = all_types(hugging_face, 4)
    formatted = from_source(source.with_format("numpy", columns=["i", "v"]))
    assert set(next(iter(formatted))) == {"i", "v"}
    texts = source.with_transform(lambda rows: {"n": [len(s) for s in rows["s"]]})
    assert elements(from_source(texts).batch(4)) == [{"n": [2, 2, 2, 2]}]
    nested = hugging_face.Dataset.from_dict({"x": [{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3, 4]}]})
    assert elements(from_source(nested).batch(2)) == [{"x": {"a": [1, 2], "b": [[1, 2], [3, 4]]}}]


def test_rows_of_hugging_face_that_are_no_arrays(hugging_face: Any):
    ragged = from_source(hugging_face.Dataset.from_dict({"x": [[1], [1, 2], []]}))
    assert elements(ragged.padded_batch(3)) == [{"x": [[1, 0], [1, 2], [0, 0]]}]
    with pytest.raises(ValueError, match=r"padded_batch\(\)"):
        elements(ragged.batch(3))
    missing = from_source(hugging_face.Dataset.from_dict({"x": [1, None]}))
    with pytest.raises(ValueError, match="'x' .* has missing values"):
        elements(missing.batch(2))
    splits = hugging_face.DatasetDict({"train": all_types(hugging_face, 2)})
    with pytest.raises(TypeError, match=r"such as datasets\['train'\]"):
        from_source(splits)
