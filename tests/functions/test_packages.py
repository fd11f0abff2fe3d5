"""Whose a function, a class or a module is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from replicax._src.functions._packages import from_library


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("file", ["some_package/__init__.py", "some_package.py"])
def test_packages_of_a_folder_that_pip_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, installed: bool
):
    name = f"some_package_{installed}_{len(file)}"
    path = tmp_path / file.replace("some_package", name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("def fn(): pass\n")
    if installed:
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    try:
        assert from_library(module.fn) == from_library(module) == installed
    finally:
        del sys.modules[name]
