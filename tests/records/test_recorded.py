"""Random examples, parsed as TensorFlow parsed them when `record.py` was run."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from replicax._src.records import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseTensor,
    VarLenFeature,
    parse_example,
    parse_single_example,
)
from tests.records.record import RECORDED


def from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if isinstance(value, dict):
        return {name: from_json(part) for name, part in value.items()}
    return [from_json(part) for part in value] if isinstance(value, list) else value


CASES = from_json(json.loads(RECORDED.read_text(encoding="utf-8"))["cases"])


def feature_of(spec: dict[str, Any]) -> Any:
    if spec["kind"] == "sparse":
        return VarLenFeature(spec["dtype"])
    if spec["kind"] == "padded":
        return FixedLenSequenceFeature(spec["shape"], spec["dtype"], True, spec["default"])
    return FixedLenFeature(spec["shape"], spec["dtype"], spec["default"])


def plain(value: Any) -> Any:
    if isinstance(value, SparseTensor):
        return [plain(part) for part in value]
    return {"shape": list(value.shape), "values": value.ravel().tolist()}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_as_tensorflow(native: bool, number: int):
    case = CASES[number]
    features = {name: feature_of(spec) for name, spec in case["features"].items()}
    if case["parsed"] is None:
        with pytest.raises(ValueError, match=r"record \d+ of the batch"):
            parse_example(case["examples"], features, native=native)
        return
    found = parse_example(case["examples"], features, native=native)
    assert {name: plain(value) for name, value in found.items()} == case["parsed"]
    for row, serialized in enumerate(case["examples"]):
        one = parse_single_example(serialized, features, native=native)
        for name, value in one.items():
            if isinstance(features[name], FixedLenFeature):
                assert np.array_equal(value, found[name][row])


def test_enough_was_recorded():
    assert len(CASES) >= 60 and 5 <= sum(case["parsed"] is None for case in CASES) <= 20
