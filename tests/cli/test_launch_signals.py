"""Signals to the launcher: Ctrl-C, preemption, a closed pipe, and its own sudden death."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from replicax._src.cli._launch import Launch
from replicax._src.cli._log import Log
from replicax._src.cli._options import LaunchOptions, Range
from tests.cli.launches import (
    TIMEOUT,
    environment,
    launcher,
    of,
    read_until,
    rest_of,
    script,
    wait_until_gone,
)

READY = ("[worker 0] ready", "[worker 1] ready")


def pids_of(lines: list[str]) -> list[int]:
    return [int(line.split()[-1]) for line in lines if "ready" in line]


def test_ctrl_c_ends_everything(tmp_path: Path):
    train = script(
        tmp_path,
        """
        signal.signal(signal.SIGINT, lambda *_: sys.exit("interrupted"))
        print("ready", os.getpid())
        signal.pause()
        """,
    )
    with launcher("--workers=2", "--max-restarts=3", train) as process:
        pids = pids_of(read_until(process, *READY))
        process.send_signal(signal.SIGINT)
        status, lines = rest_of(process)
    assert status == 130
    assert of(lines, 0) == of(lines, 1) == ["interrupted"]
    assert of(lines, None) == ["SIGINT: ending all workers"]
    for pid in pids:
        wait_until_gone(pid)


def test_ctrl_c_ends_workers_that_do_not_listen(tmp_path: Path):
    train = script(
        tmp_path,
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ready", os.getpid())
        while True: signal.pause()
        """,
    )
    with launcher("--workers=2", train) as process:
        pids = pids_of(read_until(process, *READY))
        process.send_signal(signal.SIGINT)
        read_until(process, "ending all workers")
        process.send_signal(signal.SIGINT)  # I mean it
        status, _ = rest_of(process)
    assert status == 130
    for pid in pids:
        wait_until_gone(pid)


def test_sigterm_lets_workers_save(tmp_path: Path):
    train = script(
        tmp_path,
        """
        def save(*_):
            print("saved")
            sys.exit(42)
        signal.signal(signal.SIGTERM, save)
        print("ready", os.getpid())
        signal.pause()
        """,
    )
    with launcher("--workers=2", "--max-restarts=3", train) as process:
        read_until(process, *READY)
        process.send_signal(signal.SIGTERM)
        status, lines = rest_of(process)
    assert status == 42
    assert of(lines, 0) == of(lines, 1) == ["saved"]
    assert "have saved" in of(lines, None)[-1]


def test_sigterm_has_a_grace_period(tmp_path: Path):
    train = script(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", os.getpid())
        while True: signal.pause()
        """,
    )
    with launcher("--workers=2", "--grace-period=0.5", train) as process:
        pids = pids_of(read_until(process, *READY))
        process.send_signal(signal.SIGTERM)
        status, _ = rest_of(process)
    assert status == 128 + signal.SIGTERM
    for pid in pids:
        wait_until_gone(pid)


def test_workers_die_with_the_launcher(tmp_path: Path):
    train = script(tmp_path, "print('ready', os.getpid())\nsignal.pause()")
    with launcher("--workers=2", train) as process:
        pids = pids_of(read_until(process, *READY))
        process.kill()
        process.wait(TIMEOUT)
        for pid in pids:
            wait_until_gone(pid)


def test_what_workers_started_dies_with_the_launcher(tmp_path: Path):
    train = script(
        tmp_path,
        """
        import subprocess
        print("ready", subprocess.Popen(["sleep", "1000"]).pid)
        signal.pause()
        """,
    )
    with launcher("--workers=2", train) as process:
        pids = pids_of(read_until(process, *READY))
        process.kill()
        for pid in pids:
            wait_until_gone(pid)


def test_launcher_uses_no_device(tmp_path: Path):
    """A launcher that starts JAX would take the GPUs from its workers."""
    program = (
        "import runpy, sys\n"
        "sys.argv = ['replicax', 'launch', '--workers=2', sys.argv[1]]\n"
        "try:\n"
        "    runpy.run_module('replicax', run_name='__main__')\n"
        "except SystemExit as leaving:\n"
        "    assert not leaving.code\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
    )
    command = [sys.executable, "-c", program, script(tmp_path, "")]
    subprocess.run(command, env=environment(), timeout=TIMEOUT, check=True)


def test_reader_that_leaves_ends_the_job(tmp_path: Path):
    train = script(tmp_path, "while True: print('line')")
    with launcher("--workers=1", train) as process:
        read_until(process, "[worker 0] line")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(TIMEOUT) == 128 + signal.SIGPIPE


def test_job_of_a_launcher_with_closed_output_succeeds(tmp_path: Path):
    """As after `>&- 2>&-`, where Python has no `sys.stdout`."""
    train = script(tmp_path, f"open({str(tmp_path / 'trained')!r}, 'w').close()")
    closed = 'exec "$@" >&- 2>&-'
    command = [sys.executable, "-m", "replicax", "launch", "--workers=1", train]
    subprocess.run(
        ["sh", "-c", closed, "sh", *command], env=environment(), timeout=TIMEOUT, check=True
    )
    assert (tmp_path / "trained").exists()


def test_log_that_nobody_reads_does_not_hide_a_failure(tmp_path: Path):
    """Worker 0 fills the pipe; the end of worker 1 is noticed all the same."""
    os.mkfifo(tmp_path / "fifo")
    fifo = str(tmp_path / "fifo")
    train = script(
        tmp_path,
        f"""
        if rank == 1:
            open({fifo!r}).read()
            sys.exit(5)
        for _ in range(20_000):  # more than all buffers on the way hold
            print("x" * 1000)
        """,
    )
    read, write = os.pipe()
    log = Log(write)
    seen: list[bytes] = []

    def fill_then_read() -> None:
        while not log.full:
            log.say("y" * 100_000)
        with open(fifo, "w"):
            pass  # now worker 1 leaves
        while data := os.read(read, 1 << 20):
            seen.append(data)

    thread = threading.Thread(target=fill_then_read)
    thread.start()
    try:
        options = LaunchOptions((train,), workers=Range(2, 2))
        assert Launch(options, log, environment()).run() == 5
    finally:
        os.close(write)
        thread.join(TIMEOUT)
        os.close(read)
    assert b"worker 1 exited with status 5" in b"".join(seen[-2:])
