"""Keras without what it imports besides."""

import sys
from pathlib import Path

import pytest

from tests.scripts import run_python

pytest.importorskip("keras")

PROGRAM = """
import importlib.util, sys
from tests import quick_imports
quick_imports.set_here()
quick_imports.set_here()
import keras
print(len([each for each in sys.meta_path if type(each).__module__ == quick_imports.__name__]))
print(sorted({"matplotlib", "sklearn"} & sys.modules.keys()))
print(all(importlib.util.find_spec(name) for name in ("matplotlib", "sklearn")))
keras.layers.Dense(2)
"""


def test_others_import_what_keras_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("matplotlib", "sklearn"):
        pytest.importorskip(name)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert run_python(["-c", PROGRAM], tmp_path, warm=True).splitlines() == ["1", "[]", "True"]
    assert any(type(each).__name__ == "_WithoutExtras" for each in sys.meta_path)
