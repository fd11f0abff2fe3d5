"""`replicax launch` on one host: what workers get, how they end, and how they start again."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.launches import launch, of

WAIT = "signal.pause()"


def test_lines_carry_their_worker_and_are_never_torn(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        """
        for number in range(300):
            for piece in (f"line {number} ", "of ", f"worker {rank}", "\\n"):
                os.write(1 + number % 2, piece.encode())
        os.write(2, b"no end of line")
        """,
        "--workers=3",
    )
    assert status == 0
    for rank in range(3):
        expected = [f"line {number} of worker {rank}" for number in range(300)]
        assert of(lines, rank) == [*expected, "no end of line"]
    assert len(lines) == 3 * 301


def test_every_worker_knows_its_place(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        """
        names = ("TF_CONFIG", "REPLICAX_CONTROL", "REPLICAX_JOB", "REPLICAX_GENERATION",
                 "JAX_NUM_CPU_DEVICES", "PYTHONUNBUFFERED", "REPLICAX_JOIN_TIMEOUT")
        print(json.dumps({name: os.environ[name] for name in names}))
        """,
        *("--workers", "3", "--devices-per-worker", "2", "--join-timeout", "7"),
    )
    assert status == 0
    found = [json.loads(of(lines, rank)[0]) for rank in range(3)]
    places = [json.loads(each.pop("TF_CONFIG")) for each in found]
    assert found[0] == found[1] == found[2]
    assert found[0]["JAX_NUM_CPU_DEVICES"] == "2" and found[0]["REPLICAX_JOIN_TIMEOUT"] == "7"
    assert [place["task"] for place in places] == [
        {"type": "worker", "index": index} for index in range(3)
    ]
    addresses = places[0]["cluster"]["worker"]
    assert places[1]["cluster"] == places[2]["cluster"] == {"worker": addresses}
    assert len(set(addresses)) == 3
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)


def test_first_failure_ends_all_with_its_status(tmp_path: Path):
    status, lines = launch(tmp_path, f"if rank == 1: sys.exit(3)\n{WAIT}", "--workers=3")
    assert status == 3
    assert of(lines, None)[-1].startswith("worker 1 exited with status 3")
    assert of(lines, None)[-1].endswith("exit status 3")


def test_traceback_is_there_in_full_and_once(tmp_path: Path):
    status, lines = launch(
        tmp_path, f"if rank == 2: raise ValueError('bad row 17')\n{WAIT}", "--workers=3"
    )
    assert status == 1
    assert of(lines, 2)[0] == "Traceback (most recent call last):"
    assert of(lines, 2)[-1] == "ValueError: bad row 17"
    assert sum("Traceback" in line for line in lines) == 1


def test_killed_worker_gives_128_and_the_signal(tmp_path: Path):
    status, lines = launch(
        tmp_path, f"if rank == 0: os.kill(os.getpid(), signal.SIGKILL)\n{WAIT}", "--workers=2"
    )
    assert status == 137
    assert of(lines, None)[-1].startswith("worker 0 was killed by SIGKILL")


def test_worker_may_finish_before_others(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    status, _ = launch(
        tmp_path,
        f"""
        # The second can open the pipe only when the first does, which then ends long before it.
        fifo = {str(tmp_path / "fifo")!r}
        if rank == 0:
            open(fifo, "w").close()
        else:
            open(fifo).read()
            for _ in range(20):
                assert sum(range(10_000))
        """,
        "--workers=2",
    )
    assert status == 0


def test_restart_is_a_new_generation_with_nothing_of_the_old(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        f"""
        variables = os.environ["REPLICAX_JOB"] + " " + os.environ["REPLICAX_CONTROL"]
        address = place["cluster"]["worker"][rank]
        print(f"{{os.getpid()}} {{address}} {{variables}} {{generation}}\\n", end="")
        if generation == 2:
            sys.exit()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        {WAIT}
        """,
        *("--workers=2", "--max-restarts=2"),
    )
    assert status == 0
    for rank in range(2):
        lives = [line.split() for line in of(lines, rank)]
        # Worker 0 may be killed before it has said a word.
        assert lives and lives[-1][-1] == "2"
        for part in range(5):
            assert len({life[part] for life in lives}) == len(lives), f"part {part} came again"
    restarts = [line for line in of(lines, None) if "restart" in line]
    assert [line[-14:] for line in restarts] == ["restart 1 of 2", "restart 2 of 2"]
    assert all(line.startswith("worker 1 was killed by SIGKILL") for line in restarts)


def test_restarts_are_limited(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        f"if rank == 1: sys.exit(generation + 5)\n{WAIT}",
        *("--workers=2", "--max-restarts=2"),
    )
    assert status == 7
    assert "after 2 restarts" in of(lines, None)[-1]


def test_preempted_workers_start_again_uncounted(tmp_path: Path):
    status, lines = launch(
        tmp_path, "print(generation)\nsys.exit(42 if generation < 3 else 0)", "--workers=2"
    )
    assert status == 0
    assert of(lines, 0) == of(lines, 1) == ["0", "1", "2", "3"]


def test_preempted_without_end_gives_up(tmp_path: Path):
    status, lines = launch(tmp_path, "sys.exit(42)", "--workers=1")
    assert status == 42
    assert "10 times in a row" in of(lines, None)[-1]


def test_elastic_loses_a_worker_and_takes_it_back(tmp_path: Path):
    """4 workers; one is killed; 3; one fails; 4 again."""
    status, lines = launch(
        tmp_path,
        f"""
        print(generation, size)
        if generation == 2:
            sys.exit()
        if generation == 0 and rank == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if generation == 1 and rank == 0:
            sys.exit(1)
        {WAIT}
        """,
        *("--workers=2:4", "--max-restarts=5"),
    )
    assert status == 0
    assert of(lines, 0)[-2:] == ["1 3", "2 4"]
    assert [line for line in of(lines, None) if "starts" in line] == [
        "generation 1 starts with 3 workers",
        "generation 2 starts with 4 workers",
    ]


def test_elastic_keeps_the_least(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        f"""
        if generation == 2:
            sys.exit()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        {WAIT}
        """,
        *("--workers=2:2", "--max-restarts=5"),
    )
    assert status == 0
    assert all("2 workers" in line for line in of(lines, None) if "starts" in line)


def test_what_workers_started_ends_with_them(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    # The child holds the write end; it is open as long as the child lives.
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        status, _ = launch(
            tmp_path,
            f"""
            import subprocess
            with open({str(tmp_path / "fifo")!r}, "w") as fifo:
                subprocess.Popen(["sleep", "1000"], stdout=fifo)
            sys.exit(9)
            """,
            "--workers=1",
        )
        assert status == 9
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b"", "the child of the worker is gone"
    finally:
        os.close(reader)


def test_module_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a_module.py").write_text("import sys; print(sys.argv[1:])", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status, lines = launch(tmp_path, "", "-m", "a_module", "--workers")
    assert status == 0
    assert of(lines, 0)[0].startswith("['--workers', ")
