"""Records TensorFlow's names, and what its programs print: `python tests/cli/record.py`.

Needs TensorFlow (`pip install tensorflow-cpu`), not replicax. `test_migrate_table.py` compares the
names with the table of `replicax migrate`, and `test_migrate_programs.py` the output with that of
the ported programs. So does `tests/test_pairs.py`, for the pairs of programs in `examples/pairs`.
"""

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = HERE / "recorded" / "tensorflow_names.json"
PROGRAMS = HERE / "migrate_programs"
PAIRS = HERE.parent.parent / "examples" / "pairs"
# Where the workers of a program find each other.
ADDRESSES = ("127.0.0.1:23450", "127.0.0.1:23451")

# Of these, everything that is below them; of the others, what is in them.
WHOLE = ["distribute", "compat.v1.distribute", "types.experimental.distributed"]
NAMESPACES = [
    *["", "autograph", "config", "config.experimental", "data", "data.experimental", "debugging"],
    *["dtypes", "errors", "experimental", "image", "initializers", "io", "io.gfile"],
    *["keras", "keras.losses", "keras.metrics", "keras.optimizers", "keras.optimizers.schedules"],
    *[
        "linalg",
        "math",
        "nest",
        "nn",
        "random",
        "random.experimental",
        "raw_ops",
        "signal",
        "sparse",
    ],
    *["strings", "summary", "tpu", "tpu.experimental", "train"],
    *["compat.v1", "compat.v1.data", "compat.v1.python_io", "compat.v1.train"],
]
# With the names of their methods.
CLASSES = ["data.Dataset", "Variable", "GradientTape", "keras.Model", "compat.v1.data.Dataset"]


def public(value: Any) -> list[str]:
    """The public attributes of something."""
    return [name for name in dir(value) if not name.startswith("_")]


def find(tensorflow: Any, path: str) -> Any:
    """Returns `tensorflow.a.b` for "a.b"."""
    for part in filter(None, path.split(".")):
        tensorflow = getattr(tensorflow, part)
    return tensorflow


def whole(value: Any, path: str, found: dict[str, str]) -> None:
    """Adds a namespace, those below it, and the classes in them."""
    found[path] = " ".join(public(value))
    for name in public(value):
        part = getattr(value, name)
        if isinstance(part, types.ModuleType):
            whole(part, f"{path}.{name}", found)
        elif inspect.isclass(part):
            found[f"{path}.{name}"] = " ".join(public(part))


def record_names() -> None:
    """Writes the public names of TensorFlow, by where they are."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow: Any = importlib.import_module("tensorflow")
    found: dict[str, str] = {}
    for path in WHOLE:
        whole(find(tensorflow, path), f"tf.{path}", found)
    for path in [*NAMESPACES, *CLASSES]:
        found[f"tf.{path}".rstrip(".")] = " ".join(public(find(tensorflow, path)))
    NAMES.parent.mkdir(exist_ok=True)
    content = {"tensorflow": tensorflow.__version__, "names": dict(sorted(found.items()))}
    NAMES.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def environment(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """The environment of one of several workers; of one, without a cluster."""
    found = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    found["KERAS_BACKEND"] = "tensorflow"
    found.pop("TF_CONFIG", None)
    if len(addresses) > 1:
        task = {"type": "worker", "index": rank}
        found["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
    return found


def output_of(program: Path, addresses: Sequence[str] = ADDRESSES) -> str:
    """Runs a program of TensorFlow, with as many workers as it is for; returns what it prints."""
    if not program.name.startswith("multi_worker"):
        addresses = addresses[:1]
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, str(program), folder],
                env=environment(rank, addresses),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(len(addresses))
        ]
        try:
            outputs = [process.communicate(timeout=300)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert not any(process.returncode for process in processes), program
    return "".join(outputs)


def record_outputs() -> None:
    """Writes what each program prints; the one for TPUs needs one."""
    for program in sorted([*PROGRAMS.glob("*_tensorflow.py"), *PAIRS.glob("*_tensorflow.py")]):
        if not program.name.startswith("tpu_"):
            output = program.name.replace("_tensorflow.py", "_output.txt")
            program.with_name(output).write_text(output_of(program), encoding="utf-8")


if __name__ == "__main__":
    record_names()
    record_outputs()
