"""The command line of `replicax launch`, and the shares of the devices."""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from replicax._src.cli import _devices
from replicax._src.cli._arguments import add_launch_options, launch_options
from replicax._src.cli._devices import device_environments
from replicax._src.cli._options import LaunchOptions, Range, Usage
from replicax._src.cli.main import main


def parse(text: str) -> LaunchOptions:
    parser = argparse.ArgumentParser(prog="replicax launch")
    add_launch_options(parser)
    return launch_options(parser, text.split())


def test_what_follows_the_script_is_its_own():
    options = parse("--workers 2 train.py --workers 7 -m x -- y")
    assert options.workers == Range(2, 2)
    assert options.command == ("train.py", "--workers", "7", "-m", "x", "--", "y")
    assert parse("--workers=2 -m pkg.train --nodes 3").command == (
        "-m",
        "pkg.train",
        "--nodes",
        "3",
    )
    assert parse("-- -odd-name.py x").command == ("-odd-name.py", "x")


def test_defaults_are_one_worker_and_no_restart():
    options = parse("train.py")
    assert options == LaunchOptions(("train.py",))
    assert options.workers == Range(1, 1) and options.max_restarts == 0


def test_where_ray_is():
    assert parse("--workers 2 train.py --ray x").ray is None
    for text, address in (
        ("--ray train.py", ""),
        ("--ray --workers 2 train.py", ""),
        ("--ray head:6379 train.py", "head:6379"),
        ("--ray=auto train.py", "auto"),
        ("--ray local -m train", "local"),
    ):
        options = parse(text)
        assert options.ray == address and options.command[-1].startswith("train")


def test_workers_for_each_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_devices, "_uses_gpus", lambda _: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,5")
    assert parse("--workers auto x.py").workers == Range(4, 4)
    assert parse("--workers auto --devices-per-worker 2 x.py").workers == Range(2, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert parse("--workers auto x.py").workers == Range(1, 1)


def test_time_outs_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REPLICAX_JOIN_TIMEOUT", "7")
    monkeypatch.setenv("REPLICAX_STALL_TIMEOUT", "8")
    assert (parse("x.py").join_timeout, parse("x.py").stall_timeout) == (7, 8)
    options = parse("--join-timeout 1 --stall-timeout 0 x.py")
    assert (options.join_timeout, options.stall_timeout) == (1, 0)
    monkeypatch.setenv("REPLICAX_STALL_TIMEOUT", "0")
    assert parse("x.py").stall_timeout == 0


def test_key_may_come_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    assert parse("x.py").key is None
    monkeypatch.setenv("REPLICAX_LAUNCH_KEY", "")
    assert parse("x.py").key is None
    monkeypatch.setenv("REPLICAX_LAUNCH_KEY", "ours")
    assert parse("x.py").key == "ours"
    options = parse("--key theirs x.py")
    assert options.key == "theirs" and "theirs" not in repr(options)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "name a script"),
        ("--workers 0 x.py", "--workers 0: both numbers must be at least 1"),
        ("--workers 4:2 x.py", "the first not above the second"),
        ("--workers two x.py", "expected a number, as in `--workers 4`"),
        ("--workers 1:2:3 x.py", "as in `--workers 2:4`"),
        ("--max-restarts -1 x.py", "--max-restarts -1: expected 0 or more"),
        ("--join-timeout 0 x.py", "--join-timeout 0: expected more than 0"),
        ("--stall-timeout nan x.py", "--stall-timeout nan: expected 0 or more"),
        ("--devices-per-worker 0 x.py", "--devices-per-worker 0: expected 1 or more"),
        ("--node-rank 1 x.py", "`--nodes 2 --node-rank 0 --coordinator host0:12345`"),
        ("--nodes 2 x.py", "several nodes need the address of node 0"),
        ("--nodes 2 --coordinator host:² x.py", "as in `--coordinator host0:12345`"),
        ("--nodes 2 --coordinator ::1:12345 x.py", "`--coordinator [2001:db8::1]:12345`"),
        ("--nodes 2 --coordinator [::1:5 x.py", "several nodes need the address of node 0"),
        ("--nodes 2 --coordinator host0 x.py", "host and free port"),
        ("--nodes 2 --coordinator http://host0:1 x.py", "host and free port"),
        ("--nodes 2 --coordinator [fe80::1%eth0]:5 x.py", "[fe80::1%eth0]:5', is a link-local one"),
        ("--nodes 2 --node-rank 2 --coordinator h:1 x.py", "the nodes are 0 to 1"),
        ("--nodes 2 --workers 1:2 --coordinator h:1 x.py", "Write `--workers 2`"),
        ("--shared-folder /tmp x.py", "--shared-folder are for several nodes"),
        ("--nodes 2 --coordinator h:1 --shared-folder /tmp x.py", "as in `--max-restarts 10`"),
        ("--log-dir gs://b/logs x.py", "--log-dir gs://b/logs: expected a folder"),
        ("--record s3://b/r x.py", "one that is mounted"),
        ("--key= x.py", "--key: it is empty"),
        ("--wrokers 2 x.py", "unrecognized arguments: --wrokers"),
        ("--ray --nodes 2 --coordinator h:1 train.py", "Leave out --nodes"),
        ("--ray ray://head:10001 train.py", "ray job submit"),
        ("--ray --workers auto train.py", "with --ray, say how many"),
    ],
)
def test_mistakes_get_advice(text: str, advice: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as leaving:
        parse(text)
    assert leaving.value.code == 2
    assert advice in capsys.readouterr().err


def test_missing_script_is_said_before_anything_starts(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as leaving:
        main(["launch", "no_such_script.py"])
    assert leaving.value.code == 2
    assert "there is no file 'no_such_script.py'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["launch", "--workers", "2", "-"])
    assert "workers have no standard input" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["20", "9" * 30])
def test_more_workers_than_open_files_are_refused(
    workers: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 4096))
    with pytest.raises(SystemExit):
        main(["launch", "--workers", workers, __file__])
    said = capfd.readouterr().err
    assert f"--workers {workers}: the launcher needs" in said and "`ulimit -n" in said


def test_script_is_not_found_in_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(SystemExit):
        main(["launch", "train.py"])
    assert "in the working directory, which somebody has removed" in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as leaving:
        main(["launch", "--help"])
    assert leaving.value.code == 0
    assert "replicax launch --workers 4 train.py" in capsys.readouterr().out


# --- devices --------------------------------------------------------------------------------------


def test_cpu_is_cut_only_if_asked():
    cpu = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert device_environments(2, None, cpu) == [{}, {}]
    assert device_environments(2, 3, cpu) == [{"JAX_NUM_CPU_DEVICES": "3"}] * 2


@pytest.mark.parametrize(
    ("workers", "each", "shares"),
    [
        (1, None, ["4,5,6,7"]),
        (2, None, ["4,5", "6,7"]),
        (3, None, ["4", "5", "6"]),
        (2, 1, ["4", "5"]),
    ],
)
def test_gpus_are_shared_out(
    workers: int, each: int | None, shares: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_devices, "_uses_gpus", lambda _: True)
    found = device_environments(workers, each, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    assert found == [{"CUDA_VISIBLE_DEVICES": share} for share in shares]


def test_too_few_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_devices, "_uses_gpus", lambda _: True)
    with pytest.raises(Usage, match="need 6, and this host has 2"):
        device_environments(3, 2, {"CUDA_VISIBLE_DEVICES": "0,1"})
    with pytest.raises(Usage, match="Start fewer workers"):
        device_environments(3, None, {"CUDA_VISIBLE_DEVICES": "0,1"})


def test_commands_run_in_threads_which_get_no_signals(tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, ["migrate", str(tmp_path)]).result() == 0
