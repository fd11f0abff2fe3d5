"""Thousands of programs: an error before Linux has no more memory maps for XLA."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from replicax._src.devices import _memory_maps


def few_maps(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """As if this process had 1,000 memory maps."""
    (folder / "maps").write_text("one\n" * 1000)
    (folder / "limit").write_text(f"{limit}\n")
    monkeypatch.setattr(_memory_maps, "_MAPS", folder / "maps")
    monkeypatch.setattr(_memory_maps, "_LIMIT", folder / "limit")


def test_an_error_comes_before_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few_maps(tmp_path, monkeypatch, limit=2000)
    _memory_maps.require_memory_maps()
    few_maps(tmp_path, monkeypatch, limit=1100)
    with pytest.raises(RuntimeError, match=r"1000 memory maps.*1100.*jax\.clear_caches\(\)"):
        _memory_maps.require_memory_maps()


def test_programs_are_counted_as_they_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few_maps(tmp_path, monkeypatch, limit=1100)

    def compile_many() -> None:
        for number in range(_memory_maps.LOOK_EVERY):
            jax.jit(lambda x, number=number: x * number + 17)(jnp.ones(3))

    with pytest.raises(RuntimeError, match="Make an rx.function once"):
        compile_many()


def test_a_system_without_these_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few_maps(tmp_path, monkeypatch, limit=1100)
    monkeypatch.setattr(_memory_maps, "_LIMIT", tmp_path / "none")
    _memory_maps.require_memory_maps()
