"""`rx.profile`: a profile is written, of the right steps, and says how to open it."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import replicax as rx
from replicax._src.watching import _profile


def _events(profile: Any) -> list[dict[str, Any]]:
    with gzip.open(profile.folder / "perfetto_trace.json.gz") as file:
        return json.load(file)["traceEvents"]


def _steps(profile: Any) -> list[int]:
    found = [each for each in _events(profile) if each.get("name", "").startswith("step")]
    return sorted({int(each["args"]["step_num"]) for each in found if "step_num" in each["args"]})


@pytest.fixture(scope="module")
def step():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica_fn(x: Any) -> Any:
        return jnp.sum(x @ x)

    train_step = rx.function(lambda x: strategy.run(replica_fn, args=(x,)))
    x = jnp.ones((64, 64))
    train_step(x)
    return lambda: train_step(x)


def test_a_profile_of_a_block(step: Any, tmp_path: Path, capsys: Any):
    with rx.profile(tmp_path / "logs" / "profile") as profile:
        step()
    assert profile.folder is not None
    assert list(profile.folder.glob("*.xplane.pb"))  # for TensorBoard
    assert profile.folder.parent == tmp_path / "logs/profile/plugins/profile"
    assert _steps(profile) == [0]
    said = capsys.readouterr().out
    assert f"tensorboard --logdir {tmp_path / 'logs' / 'profile'}" in said
    assert f"{profile.folder / 'perfetto_trace.json.gz'} at https://ui.perfetto.dev" in said


def test_a_profile_of_some_steps(step: Any, tmp_path: Path, capsys: Any):
    with rx.profile(tmp_path, steps=range(2, 4)) as profile:
        for number in range(6):
            with profile.step():
                step()
            assert (profile.folder is None) is (number < 3)
    assert _steps(profile) == [2, 3]
    assert capsys.readouterr().out.count("the profile is in") == 1


def test_a_loop_that_ends_before_says_so(step: Any, tmp_path: Path, capsys: Any):
    with rx.profile(tmp_path, steps=range(2, 4)) as profile:
        with profile.step():
            step()
    assert profile.folder is None
    said = capsys.readouterr().out
    assert "nothing was written: there were 1 steps" in said and "range(2, 4)" in said


def test_a_loop_that_ends_in_the_middle_is_written(step: Any, tmp_path: Path, capsys: Any):
    with rx.profile(tmp_path, steps=range(1, 9)) as profile:
        for _ in range(3):
            with profile.step():
                step()
    assert _steps(profile) == [1, 2]


def test_after_an_error_another_one_can_be_made(step: Any, tmp_path: Path, capsys: Any):
    with pytest.raises(KeyError, match="mine"):
        with rx.profile(tmp_path / "a"):
            raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        with rx.profile(tmp_path / "b", steps=range(1)) as profile:
            with profile.step():
                raise KeyError("mine")
    assert not _profile._running
    with rx.profile(tmp_path / "c") as profile:
        step()
    assert profile.folder is not None


def test_work_from_before_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waited = []
    monkeypatch.setattr(
        _profile, "_wait_for_devices", lambda: waited.append(len(_profile._running))
    )
    with rx.profile(tmp_path):
        pass
    assert waited == [0, 1, 1]  # before the beginning; before the end of the step, and of the whole


def test_one_at_a_time(tmp_path: Path, capsys: Any):
    with rx.profile(tmp_path / "a"):
        with pytest.raises(RuntimeError, match=f"one for {tmp_path / 'a'}.*one at a time"):
            with rx.profile(tmp_path / "b"):
                pass
    jax.profiler.start_trace(str(tmp_path / "c"))
    try:
        with pytest.raises(RuntimeError, match="that jax.profiler has started"):
            with rx.profile(tmp_path / "b"):
                pass
    finally:
        jax.profiler.stop_trace()


def test_wrong_folders_say_what_is_wrong(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="a file has that name"):
            rx.profile(path)
    for path in ("", "gs://bucket/x", None, 3):
        with pytest.raises(ValueError, match="must be a folder of this machine"):
            rx.profile(path)  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="may not be written to"):
        rx.profile(tmp_path / "locked")


@pytest.mark.parametrize("steps", [3, (1, 2), range(0), range(0, 4, 2), range(-1, 2)])
def test_wrong_steps_say_what_to_write(steps: Any, tmp_path: Path):
    with pytest.raises(ValueError, match=r"a range of following steps, such as range\("):
        rx.profile(tmp_path, steps=steps)


def test_a_step_outside_of_the_block(tmp_path: Path):
    profile = rx.profile(tmp_path, steps=range(1))
    with pytest.raises(RuntimeError, match="outside of the profile's block"):
        with profile.step():
            pass


def test_each_worker_has_one_folder_however_often_a_profile_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_profile, "number_of_workers", lambda: 2)
    profile = rx.profile(tmp_path, steps=range(1), all_workers=True)
    for _ in range(2):
        with profile:
            pass
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["worker_0"]


def test_wrong_places_say_where_to_put_it(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica_fn() -> None:
        with rx.profile(tmp_path):
            pass

    with pytest.raises(rx.errors.WrongContextError, match="put it around strategy.run"):
        strategy.run(replica_fn)
    with pytest.raises(RuntimeError, match="Put it around the call"):
        rx.function(lambda: replica_fn())()
    with rx.profile(tmp_path) as profile:
        with pytest.raises(RuntimeError, match=r"steps=range\(10, 12\)"):
            with profile.step():
                pass
