"""Compiled programs that are kept: a program that is started again reads them."""

import os
import sys
from pathlib import Path

import jax
import pytest

import replicax as rx
from replicax._src import _jax_cache
from tests.scripts import run_python

PROGRAM = """
import sys
import jax, jax.monitoring
import replicax as rx

seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name.rsplit("/", 1)[-1]))
rx.config.keep_compiled_programs(sys.argv[1])
strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    total = rx.Variable(1.0, aggregation=rx.VariableAggregation.SUM)


@rx.function
def step(x):
    strategy.run(lambda: total.assign_add(x))


seen.clear()
step(2.0)
print(float(total.read_value()), seen.count("cache_hits"), seen.count("cache_misses"))
"""


def test_a_program_that_is_started_again_compiles_nothing(tmp_path: Path):
    folder = tmp_path / "checkpoints" / "programs"
    arguments = ["-c", PROGRAM, str(folder)]
    first, again = (run_python(arguments, tmp_path).split() for _ in range(2))
    assert first[0] == again[0] == "5.0"
    assert int(first[2]) > 0 and list(folder.glob("*-cache"))
    assert int(again[1]) > 0 and int(again[2]) == 0, "all of them were read"


def test_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file. Name a directory"):
        rx.config.keep_compiled_programs(tmp_path / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such permissions")
def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path):
    os.chmod(tmp_path, 0o770)
    with pytest.raises(PermissionError, match=r"others can write to .* chmod go-w"):
        rx.config.keep_compiled_programs(tmp_path)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs two users")
def test_a_file_that_another_user_has_left_there_is_refused(tmp_path: Path):
    os.chmod(tmp_path, 0o700)
    (tmp_path / "jit_step-0-cache").write_bytes(b"")
    os.chown(tmp_path / "jit_step-0-cache", 12345, 12345)
    with pytest.raises(PermissionError, match=r"step-0-cache' belongs to another user.* Remove it"):
        rx.config.keep_compiled_programs(tmp_path)


def test_what_a_link_leads_to_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not the link, which others may own and turn elsewhere when it has been looked at."""
    set_to: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", set_to.__setitem__)
    monkeypatch.setattr(_jax_cache, "let_every_process_write", lambda: None)
    (tmp_path / "link").symlink_to(tmp_path / "programs")
    rx.config.keep_compiled_programs(tmp_path / "link")
    assert set_to["jax_compilation_cache_dir"] == str((tmp_path / "programs").resolve())
