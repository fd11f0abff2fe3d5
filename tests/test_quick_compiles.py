"""What spares the tests compiling: contexts that programs share, and a folder that stays."""

import threading
from pathlib import Path

import jax
import numpy as np

from tests import quick_compiles
from tests.quick_compiles import _Contexts


def test_programs_of_a_thread_share_a_context_for_a_while():
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    contexts = _Contexts(make)
    got = [contexts.get() for _ in range(_Contexts._PROGRAMS + 1)]
    assert got == [made[0]] * _Contexts._PROGRAMS + [made[1]]
    thread = threading.Thread(target=lambda: got.append(contexts.get()))
    thread.start()
    thread.join()
    assert got[-1] is made[2]


def test_folder_of_programs_is_made_kept_and_begun_again(tmp_path: Path):
    folder = tmp_path / "cache" / "programs"
    assert quick_compiles._limit(folder)
    for name in ("a", "b"):
        (folder / name).touch()
    assert quick_compiles._limit(folder, most=2)
    assert len(list(folder.iterdir())) == 2
    assert quick_compiles._limit(folder, most=1)
    assert list(folder.iterdir()) == []


def test_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    assert not quick_compiles._limit(tmp_path / "file" / "programs")


def test_what_one_device_has_compiled_runs_on_the_others():
    triple = jax.jit(lambda x: x * 3)
    for device in jax.devices("cpu"):
        (made_for,) = triple(jax.device_put(np.arange(5.0), device)).devices()
        assert made_for == device
    wide = jax.jit(lambda x: x + jax.device_count())
    results = [wide(jax.device_put(np.float32(n), d)) for n, d in enumerate(jax.devices("cpu"))]
    assert [float(each) for each in results] == [8.0 + n for n in range(8)]
