"""Records what TensorFlow makes of random examples: `python tests/records/record.py`.

Needs TensorFlow (`pip install tensorflow-cpu`), not replicax. `test_recorded.py` compares.
"""

import base64
import importlib
import json
import os
import random
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "examples.json"
NAMES = ["a", "label", "größe", "image/encoded", "x" * 130]
KINDS = {"float32": "FloatList", "int64": "Int64List", "string": "BytesList"}
FLOATS = [0.0, 1.5, -3e38, 1e-40, float("inf"), 0.1]
INTEGERS = [0, 1, 127, 128, -1, 2**63 - 1, -(2**63), 10**12]


def as_json(value: Any) -> Any:
    """A value in which bytes have become what JSON can hold."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    return [as_json(part) for part in value] if isinstance(value, list) else value


class Recorder:
    """Makes up examples and lets TensorFlow parse them."""

    def __init__(self, seed: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        self.tf: Any = importlib.import_module("tensorflow")
        self.rng = random.Random(seed)

    def values(self, dtype: str, count: int) -> list[Any]:
        if dtype == "float32":
            return [self.rng.choice(FLOATS) for _ in range(count)]
        if dtype == "int64":
            return [self.rng.choice(INTEGERS) for _ in range(count)]
        sizes = [0, 1, 1, 5, 5, 5, 5, 130]
        return [self.rng.randbytes(self.rng.choice(sizes)) for _ in range(count)]

    def feature(self, dtype: str, count: int) -> Any:
        train = self.tf.train
        made = getattr(train, KINDS[dtype])(value=self.values(dtype, count))
        field = {"float32": "float_list", "int64": "int64_list", "string": "bytes_list"}[dtype]
        return train.Feature(**{field: made})

    def spec(self) -> dict[str, Any]:
        dtype = self.rng.choice(list(KINDS))
        kind = self.rng.choice(["fixed", "default", "sparse", "padded"])
        shape = self.rng.choice([[], [1], [2], [3, 2]] if kind != "padded" else [[], [2]])
        size = 6 if shape == [3, 2] else sum(shape) or 1
        default = None
        if kind == "default":
            default = [self.values(dtype, 1)[0]] * size
        elif kind == "padded" and self.rng.random() < 0.5:
            default = self.values(dtype, 1)[0]
        return {"kind": kind, "dtype": dtype, "shape": shape, "size": size, "default": default}

    def example(self, specs: dict[str, Any], damage: float) -> bytes:
        features = {}
        for name in self.rng.sample(NAMES, len(NAMES)):
            if name not in specs:
                if self.rng.random() < 0.5:
                    features[name] = self.feature(self.rng.choice(list(KINDS)), 1)
                continue
            spec = specs[name]
            dtype, size, count = spec["dtype"], spec["size"], 1
            if spec["kind"] in ("sparse", "padded"):
                count = self.rng.choice([0, 0, 1, 2, 5])
            if self.rng.random() < damage:
                dtype = self.rng.choice(list(KINDS))
                size += self.rng.choice([0, 1])
            if spec["kind"] == "fixed" or self.rng.random() < 0.8:
                features[name] = self.feature(dtype, size * count)
            elif self.rng.random() < 0.3:
                features[name] = self.tf.train.Feature()
        train = self.tf.train
        return train.Example(features=train.Features(feature=features)).SerializeToString()

    def case(self) -> dict[str, Any]:
        specs = {name: self.spec() for name in self.rng.sample(NAMES, self.rng.randint(1, 4))}
        damage = self.rng.choice([0, 0, 0.2])
        count = self.rng.choice([1, 2, 9])
        examples = [self.example(specs, damage) for _ in range(count)]
        io = self.tf.io
        features = {}
        for name, spec in specs.items():
            dtype, shape, default = spec["dtype"], spec["shape"], spec["default"]
            if spec["kind"] == "sparse":
                features[name] = io.VarLenFeature(dtype)
            elif spec["kind"] == "padded":
                features[name] = io.FixedLenSequenceFeature(shape, dtype, True, default)
            else:
                features[name] = io.FixedLenFeature(shape, dtype, default)
        try:
            parsed = io.parse_example(examples, features)
        except self.tf.errors.InvalidArgumentError:
            found = None
        else:
            found = {name: self.result(value) for name, value in parsed.items()}
        return {"features": specs, "examples": examples, "parsed": found}

    def result(self, value: Any) -> Any:
        if isinstance(value, self.tf.SparseTensor):
            return [self.result(part) for part in (value.indices, value.values, value.dense_shape)]
        array = value.numpy()
        return {"shape": list(array.shape), "values": array.ravel().tolist()}


def main() -> None:
    recorder = Recorder(seed=7)
    cases = [as_json(recorder.case()) for _ in range(60)]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    version = json.dumps(recorder.tf.__version__)
    text = f'{{"tensorflow": {version}, "cases": [\n{lines}\n]}}\n'
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(text, encoding="utf-8")
    errors = sum(case["parsed"] is None for case in cases)
    print(f"{len(cases)} cases, {errors} of them errors, {len(text)} bytes")


if __name__ == "__main__":
    main()
