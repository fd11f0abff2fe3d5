"""Records of sequences, and features with any number of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._library import Library
from .._observation import Seen
from .._pipelines import HOST_ONLY, leaf
from .._registry import ours, scenario

Make = Callable[[Library], Any]
Values = Sequence[Any]


def _feature(lib: Library, values: Values, kind: str) -> Any:
    train = lib.train
    match kind:
        case "string":
            return train.Feature(bytes_list=train.BytesList(value=values))
        case "float32":
            return train.Feature(float_list=train.FloatList(value=values))
    return train.Feature(int64_list=train.Int64List(value=values))


def _example(lib: Library, **features: Values) -> bytes:
    train = lib.train
    made = {name: _feature(lib, values, "int64") for name, values in features.items()}
    return train.Example(features=train.Features(feature=made)).SerializeToString()


def _sequence(lib: Library, context: dict[str, Any], lists: dict[str, Any]) -> bytes:
    train = lib.train
    kinds = {"names": "string", "vectors": "float32"}
    features = {n: _feature(lib, v, kinds.get(n, "int64")) for n, v in context.items()}
    sequences = {
        name: train.FeatureList(
            feature=[_feature(lib, values, kinds.get(name, "int64")) for values in steps]
        )
        for name, steps in lists.items()
    }
    return train.SequenceExample(
        context=train.Features(feature=features),
        feature_lists=train.FeatureLists(feature_list=sequences),
    ).SerializeToString()


def _records(lib: Library) -> list[bytes]:
    return [
        _sequence(
            lib,
            {"number": [1], "names": [b"a", b"b"]},
            {
                "tokens": [[1], [2], [3]],
                "vectors": [[1.0, 2.0], [3.0, 4.0]],
                "parts": [[1, 2], [3], []],
            },
        ),
        _sequence(lib, {"number": [2]}, {"tokens": [[5]], "vectors": [], "parts": [[7, 8, 9]]}),
        _sequence(lib, {"number": [3]}, {}),
    ]


def _context(lib: Library) -> dict[str, Any]:
    return {
        "number": lib.io.FixedLenFeature([], np.int64),
        "names": lib.io.VarLenFeature(lib.string),
    }


def _steps(lib: Library, allow_missing: bool = False) -> dict[str, Any]:
    return {
        "tokens": lib.io.FixedLenSequenceFeature([], np.int64, allow_missing),
        "vectors": lib.io.FixedLenSequenceFeature([2], np.float32, allow_missing),
        "parts": lib.io.VarLenFeature(np.int64),
    }


def _described(lib: Library, value: Any) -> Any:
    """Describes what parsing gives: sparse and ragged values as lists."""
    if isinstance(value, dict):
        return {name: _described(lib, value[name]) for name in sorted(value)}
    if type(value) is tuple:
        return Seen(tuple=[_described(lib, each) for each in value])
    if hasattr(value, "dense_shape"):
        parts = (value.indices, value.values, value.dense_shape)
        return Seen(sparse=[_described(lib, each) for each in parts])
    if hasattr(value, "to_list"):  # TensorFlow's ragged one
        return Seen(ragged=_texts(value.to_list()))
    if hasattr(value, "lengths"):
        return Seen(ragged=_texts(_lists(value.rows, value.lengths)))
    return leaf(lib.on_host(value))


def _lists(rows: Any, lengths: Any) -> Any:
    if lengths.ndim == 1:
        return [row[:length].tolist() for row, length in zip(rows, lengths)]
    return [_lists(*each) for each in zip(rows, lengths)]


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


PARSED: dict[str, Make] = {
    "one": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], _context(lib), _steps(lib)
    ),
    "one without steps": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[1], _context(lib), _steps(lib)
    ),
    "one without sequences": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[2], _context(lib), _steps(lib, allow_missing=True)
    ),
    "two": lambda lib: lib.io.parse_sequence_example(_records(lib)[:2], _context(lib), _steps(lib)),
    "all": lambda lib: lib.io.parse_sequence_example(
        _records(lib), _context(lib), _steps(lib, allow_missing=True)
    ),
    "context alone": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], _context(lib)
    ),
    "sequences alone": lambda lib: lib.io.parse_sequence_example(
        _records(lib)[:2], sequence_features={"tokens": _steps(lib)["tokens"]}
    ),
    "ragged steps of one": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], sequence_features={"parts": lib.io.RaggedFeature(np.int64)}
    ),
    "ragged": lambda lib: lib.io.parse_example(
        [_example(lib, v=[1, 2, 3]), _example(lib, v=[4]), _example(lib)],
        {"v": lib.io.RaggedFeature(np.int64)},
    ),
    "ragged of one": lambda lib: lib.io.parse_single_example(
        _example(lib, v=[1, 2, 3]), {"v": lib.io.RaggedFeature(np.int64)}
    ),
    "ragged under another name": lambda lib: lib.io.parse_example(
        [_example(lib, v=[1, 2, 3], w=[5]), _example(lib, v=[4])],
        {
            "q": lib.io.RaggedFeature(np.int64, value_key="v", row_splits_dtype=np.int64),
            "w": lib.io.VarLenFeature(np.int64),
        },
    ),
}

REFUSED: dict[str, Make] = {
    "nothing to parse": lambda lib: lib.io.parse_single_sequence_example(_records(lib)[0]),
    "sequences that are missing": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[2], _context(lib), _steps(lib)
    ),
    "sequences that are missing in a batch": lambda lib: lib.io.parse_sequence_example(
        _records(lib), _context(lib), _steps(lib)
    ),
    "steps of another kind": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0],
        sequence_features={"tokens": lib.io.FixedLenSequenceFeature([], np.float32)},
    ),
    "steps of another size": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], sequence_features={"parts": lib.io.FixedLenSequenceFeature([], np.int64)}
    ),
    "a fixed feature as a sequence": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], sequence_features={"tokens": lib.io.FixedLenFeature([], np.int64)}
    ),
    "a sequence as context": lambda lib: lib.io.parse_single_sequence_example(
        _records(lib)[0], {"names": lib.io.FixedLenSequenceFeature([], lib.string, True)}
    ),
    "no record": lambda lib: lib.io.parse_single_sequence_example(
        b"\x07abc", _context(lib), _steps(lib)
    ),
    "a default for steps": lambda lib: lib.io.parse_sequence_example(
        _records(lib)[:2],
        sequence_features={
            "tokens": lib.io.FixedLenSequenceFeature([], np.int64, default_value=-1)
        },
    ),
    "ragged of another kind": lambda lib: lib.io.parse_example(
        [_example(lib, v=[1])], {"v": lib.io.RaggedFeature(np.float32)}
    ),
}


@scenario(case=tuple(PARSED), eager_only=HOST_ONLY)
def parsed(lib: Library, case: str) -> Any:
    return _described(lib, PARSED[case](lib))


@scenario(case=tuple(REFUSED), eager_only=HOST_ONLY)
def refused(lib: Library, case: str) -> Any:
    return lib.outcome(lambda: _described(lib, REFUSED[case](lib)))


@scenario(eager_only=HOST_ONLY)
@ours(
    "a batch of ragged steps has the number of steps beside it",
    {
        "tuple": [
            {"names": {"ragged": [["a", "b"], []]}},
            {"parts": {"ragged": [[[1, 2], [3], []], [[7, 8, 9], [], []]]}},
            {"parts": {"int64": [3, 1]}},
        ]
    },
)
def ragged_steps(lib: Library) -> Any:
    ragged = lib.io.RaggedFeature
    return _described(
        lib,
        lib.io.parse_sequence_example(
            _records(lib)[:2], {"names": ragged(lib.string)}, {"parts": ragged(np.int64)}
        ),
    )
