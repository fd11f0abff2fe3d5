"""Several nodes: a launcher each, which meet at the address of node 0. All of them on loopback."""

import os
import re
import signal
import socket
import struct
import threading
from pathlib import Path

import pytest

from replicax._src.cli._node_messages import End, Signal, Welcome
from replicax._src.cli._options import Usage
from replicax._src.cluster.control import _framing
from tests.cli.launches import (
    TIMEOUT,
    free_address,
    launch,
    launcher,
    of,
    read_until,
    rest_of,
    script,
    wait_until_gone,
)

WAIT = "signal.pause()"


def launch_two(
    folder: Path, text: str, *options: str
) -> tuple[tuple[int, list[str]], tuple[int, list[str]]]:
    """Launches node 1 in a thread and node 0 here; returns status and log of each."""
    common = ("--nodes=2", f"--coordinator={free_address()}", *options)
    results = []

    def member() -> None:
        results.append(launch(folder, text, *common, "--node-rank=1", name="log1"))

    thread = threading.Thread(target=member)
    thread.start()
    try:
        result = launch(folder, text, *common, "--node-rank=0", name="log0")
    finally:
        thread.join(TIMEOUT)
    return result, results[0]


def test_two_nodes_make_one_job(tmp_path: Path):
    first, second = launch_two(
        tmp_path,
        "print(size, len(set(place['cluster']['worker'])), os.environ['REPLICAX_JOB'])",
        "--workers=2",
    )
    assert first[0] == second[0] == 0
    said = [of(first[1], 0), of(first[1], 1), of(second[1], 2), of(second[1], 3)]
    assert said[0] == said[1] == said[2] == said[3]
    assert said[0][0].startswith("4 4 ")
    assert "generation 0 starts with 4 workers on 2 nodes" in of(second[1], None)


def test_failure_on_one_node_restarts_both(tmp_path: Path):
    first, second = launch_two(
        tmp_path,
        """
        print("generation", generation)
        if generation == 1:
            sys.exit()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        """,
        *("--workers=1", "--max-restarts=1"),
    )
    assert first[0] == second[0] == 0
    assert of(first[1], 0)[-1] == of(second[1], 1)[-1] == "generation 1"
    for _, lines in (first, second):
        assert any("worker 1 was killed by SIGKILL" in line for line in of(lines, None))


def test_all_nodes_end_with_the_status_of_the_failure(tmp_path: Path):
    first, second = launch_two(tmp_path, "if rank == 1: sys.exit(7)\nsignal.pause()", "--workers=1")
    assert first[0] == second[0] == 7


def test_node_that_does_not_come_is_named(tmp_path: Path):
    status, lines = launch(
        tmp_path,
        "",
        *("--nodes=3", f"--coordinator={free_address()}", "--join-timeout=0.2"),
    )
    assert status == 1
    assert "for the launcher of node 1, 2" in of(lines, None)[0]
    assert "1 of 3 nodes are here after 0.2 s; missing: node 1, node 2" in of(lines, None)[1]


def test_coordinator_that_is_not_this_host_is_refused(tmp_path: Path):
    wrong = "--coordinator.*'203.0.113.1' is not an address of this machine.*REPLICAX_LISTEN_HOST"
    with pytest.raises(Usage, match=wrong):
        launch(tmp_path, "", "--nodes=2", "--coordinator=203.0.113.1:12345")


def test_missing_node_0_is_named(tmp_path: Path):
    address = free_address()
    status, lines = launch(
        tmp_path,
        "",
        *("--nodes=2", "--node-rank=1", f"--coordinator={address}", "--join-timeout=0.2"),
    )
    assert status == 1
    assert f"node 0 does not answer at {address} after 0.2 s" in of(lines, None)[-1]


def test_different_options_are_refused(tmp_path: Path):
    address = f"--coordinator={free_address()}"
    results = []

    def member() -> None:
        options = ("--nodes=2", "--node-rank=1", address, "--workers=2")
        results.append(launch(tmp_path, "", *options, name="log1"))

    thread = threading.Thread(target=member)
    thread.start()
    try:
        launch(tmp_path, "", "--nodes=2", address, "--join-timeout=3", "--workers=3")
    finally:
        thread.join(TIMEOUT)
    status, lines = results[0]
    assert status == 2
    assert "started with --workers 2, node 0 with --workers 3" in of(lines, None)[-1]


@pytest.mark.parametrize(
    ("of_node_0", "of_node_1", "told"),
    [
        ("right", "wrong", "node 1 has another key than node 0. Start all launchers with the same"),
        ("right", None, "asks for a key. Start all launchers with the same key: --key"),
        (None, "right", "has not shown that it has the key that this launcher has"),
    ],
)
def test_nodes_with_different_keys_do_not_meet(
    tmp_path: Path, of_node_0: str | None, of_node_1: str | None, told: str
):
    address = f"--coordinator={free_address()}"
    results = []

    def member() -> None:
        options = ("--nodes=2", "--node-rank=1", address)
        key = () if of_node_1 is None else (f"--key={of_node_1}",)
        results.append(launch(tmp_path, "", *options, *key, name="log1"))

    thread = threading.Thread(target=member)
    thread.start()
    key = () if of_node_0 is None else (f"--key={of_node_0}",)
    # Node 0 waits for one that may enter, or loses the one that left again.
    status, lines = 0, []
    try:
        status, lines = launch(tmp_path, WAIT, "--nodes=2", address, "--join-timeout=3", *key)
    finally:
        thread.join(TIMEOUT)
    assert results[0][0] == 2 and told in of(results[0][1], None)[-1]
    assert status == 1
    if of_node_0 and of_node_1:
        assert any("turned away 127.0.0.1: node 1 has another key" in line for line in lines)
    assert not any("right" in line or "wrong" in line for line in [*lines, *results[0][1]])


def test_nodes_with_the_same_key_make_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It may come from the environment, and workers do not get it."""
    monkeypatch.setenv("REPLICAX_LAUNCH_KEY", "a secret")
    first, second = launch_two(tmp_path, "print(size, 'REPLICAX_LAUNCH_KEY' in os.environ)")
    assert first[0] == second[0] == 0
    assert of(first[1], 0) == of(second[1], 1) == ["2 False"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_job_goes_on_without_a_lost_node_and_takes_it_back(tmp_path: Path, number: int):
    train = script(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
        print("ready", os.getpid(), size)
        if size == 1:
            # Until the test has seen the other node come back.
            open(sys.argv[1]).read()
            sys.exit(42)
        if os.path.exists(sys.argv[2]):
            sys.exit()
        signal.pause()
        """,
    )
    fifo, again = tmp_path / "fifo", tmp_path / "again"
    os.mkfifo(fifo)
    address = f"--coordinator={free_address()}"
    common = ("--nodes=1:2", address, "--max-restarts=5", "--grace-period=0.5")
    command = (train, str(fifo), str(again))
    with launcher(*common, *command) as node_0:
        with launcher(*common, "--node-rank=1", *command) as node_1:
            pid = int(read_until(node_1, "[worker 1] ready")[-1].split()[-2])
            read_until(node_0, "[worker 0] ready")
            node_1.send_signal(number)
            wait_until_gone(pid)
        said = read_until(node_0, "generation 1 starts with 1 worker")
        assert any(re.search(r"launcher of node 1 \(127.0.0.1\) is gone", line) for line in said)
        with launcher(*common, "--node-rank=1", *command) as node_1:
            read_until(node_0, "node 1 (127.0.0.1) has joined")
            again.touch()
            fifo.write_text("")
            assert rest_of(node_1)[0] == 0
            status, said = rest_of(node_0)
        assert status == 0
        assert "[launch] generation 2 starts with 2 workers on 2 nodes" in said


def test_another_node_leads_when_the_first_is_killed(tmp_path: Path):
    """And the launcher of the first, started again, follows it.

    It takes long, because nobody leads before the first has been silent for 12 seconds.
    """
    train = script(
        tmp_path,
        """
        print("generation", generation, "of", size, "ready", flush=True)
        if generation == 2:
            sys.exit()
        # Until the test has seen what it wants to see.
        open(sys.argv[1] + str(generation)).read()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    for generation in (0, 1):
        os.mkfifo(tmp_path / f"fifo{generation}")
    common = (
        *("--nodes=1:2", f"--coordinator={free_address()}", "--max-restarts=2"),
        f"--shared-folder={tmp_path / 'leaders'}",
    )
    command = (train, str(tmp_path / "fifo"))
    with launcher(*common, "--node-rank=1", *command) as node_1:
        with launcher(*common, *command) as node_0:
            read_until(node_1, "[worker 1] generation 0 of 2 ready")
            node_0.kill()
            said = read_until(node_1, "[worker 0] generation 1 of 1 ready")
        assert any("the launcher of node 0" in line and "is gone" in line for line in said)
        assert any("node 1 leads the job now, at 127.0.0.1:" in line for line in said)
        with launcher(*common, *command) as node_0:
            read_until(node_1, "node 0 (127.0.0.1) has joined")
            (tmp_path / "fifo1").write_text("")
            status_1, said_1 = rest_of(node_1)
            status_0, said_0 = rest_of(node_0)
    assert status_0 == status_1 == 0
    assert "[worker 0] generation 2 of 2 ready" in said_0
    assert "[worker 1] generation 2 of 2 ready" in said_1


def test_launchers_say_that_nobody_leads(tmp_path: Path):
    leaders = tmp_path / "leaders"
    common = ("--nodes=2", f"--coordinator={free_address()}", "--max-restarts=1")
    options = (*common, f"--shared-folder={leaders}", "--join-timeout=1", "--node-rank=1")
    with launcher(*options, script(tmp_path, "")) as node_1:
        status, said = rest_of(node_1)
    assert status == 1
    assert f"nobody leads the job in {leaders}: node 0 has not begun" in said[-1]


def test_end_of_the_job_is_heard_also_when_an_answer_finds_nobody(tmp_path: Path):
    """A leader that is gone when the last answer comes has said how the job ended."""
    words = [Welcome(""), Signal(signal.SIGKILL), End(7)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def lead() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(_framing.GREETING + b"\n")
                assert lines.readline() and lines.readline()  # the greeting, and the arrival
                # Who closes so sends no farewell, but refuses whatever comes.
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.sendall(b"".join(_framing.encode(each.message) for each in words))

        thread = threading.Thread(target=lead)
        thread.start()
        address = f"--coordinator=127.0.0.1:{server.getsockname()[1]}"
        status, _ = launch(tmp_path, "", "--nodes=2", "--node-rank=1", address)
        thread.join(TIMEOUT)
    assert status == 7
