"""The control plane in one process: a server, and clients in threads."""

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from replicax._src._errors import ClusterConfigError, WorkerLostError, WorkersMissingError
from replicax._src.cluster.control import (
    ControlClient,
    ControlServer,
    Event,
    _reception,
    _server,
    _watchdog,
    dial,
)
from replicax._src.cluster.control._attendance import Hello
from replicax._src.cluster.control._progress import WorkerProgress
from replicax._src.cluster.control._types import Cause

WAIT = 60.0


class Worker:
    """A client with what a membership would do with it."""

    def __init__(self, server: ControlServer, rank: int, workers: int, **hello: Any) -> None:
        self.rank = rank
        self.progress = WorkerProgress()
        self.downs: queue.SimpleQueue[Cause] = queue.SimpleQueue()
        link = dial(*server.bound_address, WAIT)
        key = hello.pop("key", "key")
        self.client = ControlClient(link, key, "the launcher", None, self.progress, self.downs.put)
        self.hello = Hello(
            **{
                "worker": rank,
                "addresses": tuple(f"host{i}:1" for i in range(workers)),
                "names": tuple(f"worker {i}" for i in range(workers)),
                "generation": 0,
                "pid": 1000 + rank,
                "host": "host",
                "device_count": 1,
                "versions": {"jax": "1"},
                "coordinator": "host0:5" if rank == 0 else None,
                **hello,
            }
        )

    def join(self, timeout: float = WAIT) -> "Worker":
        self.client.meet(self.hello, timeout)
        self.client.start()
        return self


class Cluster:
    """A server and its workers."""

    def __init__(self, workers: int, **options: Any) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.seen: list[Event] = []
        self.server = ControlServer(workers, key="key", on_event=self.events.put, **options)
        self.server.start()
        self.size = workers
        self.made: list[Worker] = []
        self.workers: list[Worker] = []

    def add(self, rank: int, **hello: Any) -> Worker:
        worker = Worker(self.server, rank, hello.pop("of", self.size), **hello)
        self.made.append(worker)
        return worker

    def join_all(self) -> "Cluster":
        each = [self.add(rank) for rank in range(self.size)]
        self.workers = in_parallel([worker.join for worker in each])
        return self

    def wait_for(self, kind: str, worker: int | None = None) -> Event:
        """The next event of a kind."""
        end = time.monotonic() + WAIT
        while True:
            event = self.events.get(timeout=max(0.01, end - time.monotonic()))
            self.seen.append(event)
            if event.kind == kind and worker in (None, event.worker):
                return event

    def kinds(self) -> list[str]:
        while not self.events.empty():
            self.seen.append(self.events.get())
        return [event.kind for event in self.seen if event.kind != "status"]


def in_parallel(calls: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(WAIT) for future in [pool.submit(call) for call in calls]]


def errors_of(calls: list[Callable[[], Any]]) -> list[BaseException | None]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.exception(WAIT) for future in [pool.submit(call) for call in calls]]


@contextlib.contextmanager
def running(workers: int, **options: Any) -> Iterator[Cluster]:
    cluster = Cluster(workers, **options)
    try:
        yield cluster
    finally:
        for worker in cluster.made:
            worker.client.is_released.set()
            worker.client.stop()
        cluster.server.stop()


@contextlib.contextmanager
def joined(workers: int, **options: Any) -> Iterator[Cluster]:
    with running(workers, **options) as cluster:
        yield cluster.join_all()


def test_verdict_has_the_coordinator_of_worker_0():
    with running(2) as cluster:
        each = [cluster.add(rank) for rank in range(2)]
        verdicts = in_parallel([lambda w=w: w.client.meet(w.hello, WAIT) for w in each])
        assert [verdict.coordinator for verdict in verdicts] == ["host0:5"] * 2
        assert verdicts[0].names == ["worker 0 (host0:1)", "worker 1 (host1:1)"]
        cluster.wait_for("started")
        assert cluster.kinds() == ["arrived", "arrived", "started"]


def test_exchange_gives_all_payloads_by_worker():
    with joined(3) as cluster:
        payloads = [{"rows": [1, 2], "name": "ü\n"}, None, 0.1]
        got = in_parallel(
            [lambda w=w: w.client.exchange("t", payloads[w.rank], WAIT) for w in cluster.workers]
        )
        assert got == [payloads] * 3


def test_exchanges_of_different_topics_and_threads_do_not_mix():
    with joined(2) as cluster:

        def many(worker: Worker, topic: str) -> list[Any]:
            return [worker.client.exchange(topic, [topic, worker.rank, n], WAIT) for n in range(50)]

        calls = [
            lambda w=w, topic=topic: many(w, topic) for topic in "abc" for w in cluster.workers
        ]
        for index, got in enumerate(in_parallel(calls)):
            topic = "abc"[index // 2]
            assert got == [[[topic, 0, n], [topic, 1, n]] for n in range(50)]


def test_exchange_names_who_does_not_come_and_what_it_does():
    with joined(3) as cluster:
        cluster.workers[2].progress.phase = "reading the newspaper"
        while cluster.wait_for("status", 2).details["phase"] != "reading the newspaper":
            pass
        # One after the other: what the first has put in is there when the second one comes.
        for worker, missing in ((0, "worker 1 (host1:1)"), (1, "worker 2 (host2:1): call 0")):
            with pytest.raises(WorkersMissingError) as caught:
                cluster.workers[worker].client.exchange("rows", 1, 0.5)
            assert f"'rows' (number 1); missing: {missing}" in str(caught.value)
            assert "reading the newspaper" in str(caught.value)
        # The next exchange of the topic is number 2 for them, and number 1 is still open.
        assert len(in_parallel([lambda: cluster.workers[2].client.exchange("rows", 1, WAIT)])[0])


def test_exchange_with_a_finished_worker_fails_at_once():
    with joined(2) as cluster:
        first, second = cluster.workers
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(first.client.exchange, "more", True, WAIT)
            cluster.server.drain()
            second.client.finish(0)
            with pytest.raises(WorkerLostError, match="'more'.*worker 1 .*finished after 0 calls"):
                waiting.result(WAIT)
        with pytest.raises(WorkerLostError, match="worker 1 .*finished"):
            first.client.exchange("more", True, WAIT)


def test_messages_come_to_all_in_one_order():
    with joined(3) as cluster:
        got: list[list[Any]] = [[], [], []]
        complete = [threading.Event() for _ in range(3)]

        def take(rank: int, payload: Any, worker: int) -> None:
            got[rank].append((payload, worker))
            if len(got[rank]) == 90:
                complete[rank].set()

        for worker in cluster.workers[:2]:
            worker.client.subscribe("t", lambda p, w, rank=worker.rank: take(rank, p, w))

        def publish(worker: Worker) -> None:
            for n in range(30):
                worker.client.publish("t", n)

        in_parallel([lambda w=w: publish(w) for w in cluster.workers])
        assert complete[0].wait(WAIT)
        # Worker 2 subscribes late, and misses nothing.
        cluster.workers[2].client.subscribe("t", lambda p, w: take(2, p, w))
        assert all(each.wait(WAIT) for each in complete)
        assert got[0] == got[1] == got[2]
        assert sorted(got[0]) == sorted((n, w) for n in range(30) for w in range(3))


def raise_one() -> None:
    raise ZeroDivisionError


def test_subscriber_that_raises_does_not_end_the_thread(capfd: pytest.CaptureFixture[str]):
    with joined(1) as cluster:
        (worker,) = cluster.workers
        got = threading.Event()
        worker.client.subscribe("t", lambda p, w: got.set() if p else raise_one())
        worker.client.publish("t", 0)
        worker.client.publish("t", 1)
        assert got.wait(WAIT)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_status_follows_progress():
    with joined(2) as cluster:
        with cluster.workers[1].progress.in_phase("compiling step"):
            cluster.workers[1].progress.step = 7
            cluster.workers[1].progress.calls = 9
            event = cluster.wait_for("status", 1)
            while event.details["step"] != 7:
                event = cluster.wait_for("status", 1)
        assert event.details == {"calls": 9, "phase": "compiling step", "step": 7, "busy": True}
        first, second = cluster.server.status()
        assert (second.step, second.calls, second.state) == (7, 9, "running")
        assert (first.name, first.pid, first.host) == ("worker 0", 1000, "host")


def test_lost_connection_ends_the_job_at_once():
    with joined(3) as cluster:
        cluster.workers[1].client.is_released.set()  # it does not mind its own end
        cluster.workers[1].client.stop()
        for worker in (cluster.workers[0], cluster.workers[2]):
            cause = worker.downs.get(timeout=WAIT)
            assert (cause.kind, cause.worker) == ("lost", 1)
            assert cause.line == ("worker 1 (host1:1) was killed or crashed: its connection closed")
        assert cluster.wait_for("down").worker == 1
        assert cluster.kinds()[-2:] == ["lost", "down"]
        with pytest.raises(WorkerLostError, match="worker 1 .*killed or crashed"):
            cluster.workers[0].client.exchange("t", 0, WAIT)


def test_status_of_the_process_explains_a_lost_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_server, "_REAPING_SECONDS", 10 * WAIT)
    with joined(2, owns_processes=True) as cluster:
        cluster.workers[1].client.is_released.set()
        cluster.workers[1].client.stop()
        cluster.server.process_ended(1, -9)
        assert cluster.workers[0].downs.get(timeout=WAIT).text == "was killed by SIGKILL"
        assert cluster.wait_for("lost").details == {"status": -9}


def test_lost_connection_without_a_status_is_told_soon():
    with joined(2, owns_processes=True) as cluster:
        cluster.workers[1].client.is_released.set()
        cluster.workers[1].client.stop()
        assert "connection closed" in cluster.workers[0].downs.get(timeout=WAIT).text


def test_failure_is_told_to_all_with_its_own_words():
    with joined(2) as cluster:
        cluster.workers[0].client.fail("ValueError", "bad row\nmore", "Traceback ...", 1, False)
        for worker in cluster.workers:
            cause = worker.downs.get(timeout=WAIT)
            assert cause.line == "worker 0 (host0:1) failed: ValueError: bad row"
        event = cluster.wait_for("failed")
        assert event.details["traceback"] == "Traceback ..." and event.details["status"] == 1
        assert cluster.wait_for("down").text == "worker 0 (host0:1) failed: ValueError: bad row"


def test_echo_of_a_death_is_not_taken_for_the_cause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_server, "_ECHO_SECONDS", 10 * WAIT)
    with joined(3) as cluster:
        cluster.workers[0].client.fail("JaxRuntimeError", "Gloo: connection reset", "", 1, True)
        cluster.server.drain()
        cluster.workers[2].client.is_released.set()
        cluster.workers[2].client.stop()
        for worker in cluster.workers[:2]:
            assert worker.downs.get(timeout=WAIT).worker == 2


def test_doubtful_failure_that_stays_alone_is_the_cause():
    with joined(2) as cluster:
        cluster.workers[0].client.fail("JaxRuntimeError", "out of memory", "", 1, True)
        assert cluster.workers[1].downs.get(timeout=WAIT).worker == 0


def test_worker_that_finishes_too_early_ends_the_job():
    with joined(3) as cluster:
        cluster.workers[0].progress.calls = 121
        cluster.wait_for("status", 0)
        cluster.workers[2].progress.calls = 120
        cluster.workers[2].client.finish(0)
        for worker in cluster.workers:
            cause = worker.downs.get(timeout=WAIT)
            assert cause.worker == 2
            assert "finished after 120 calls, but worker 0 (host0:1) is in call 121" in cause.text
        assert cluster.wait_for("failed").worker == 2


def test_finishing_alike_releases_all():
    with joined(2) as cluster:
        for worker in cluster.workers:
            worker.progress.calls = 5
        cluster.workers[0].client.finish(0)
        cluster.wait_for("finished", 0)
        assert not cluster.workers[0].client.is_released.is_set()
        assert cluster.workers[1].client.last_call in (5, float("inf"))
        cluster.workers[1].client.finish(0)
        assert all(worker.client.is_released.wait(WAIT) for worker in cluster.workers)
        assert cluster.workers[1].client.last_call == 5
        assert cluster.wait_for("done").details == {"status": 0}
        assert "down" not in cluster.kinds()


def test_worker_that_dies_while_it_waits_at_the_end_is_lost():
    with joined(2) as cluster:
        cluster.workers[1].client.finish(0)
        cluster.wait_for("finished", 1)
        cluster.workers[1].client.is_released.set()
        cluster.workers[1].client.stop()
        cause = cluster.workers[0].downs.get(timeout=WAIT)
        assert cause.worker == 1 and "while it waited for the others to finish" in cause.text


def test_finishing_preempted_is_told_as_such():
    with joined(2) as cluster:
        for worker in cluster.workers:
            worker.client.finish(42)
        assert cluster.wait_for("done").details == {"status": 42}


def test_owner_can_end_the_job():
    with joined(2) as cluster:
        cluster.server.fail("interrupted")
        for worker in cluster.workers:
            assert worker.downs.get(timeout=WAIT).line == "interrupted"


def test_server_that_goes_away_is_named():
    with joined(2) as cluster:
        cluster.server.stop()
        for worker in cluster.workers:
            assert worker.downs.get(timeout=WAIT).line.startswith("the launcher is gone")


def test_hello_serves_once():
    with running(2) as cluster:
        first, second = cluster.add(1), cluster.add(1)
        first.client._say_hello(first.hello)
        cluster.wait_for("arrived", 1)
        first.client.stop()
        second.client._challenge = first.client._challenge  # all that goes over the wire
        second.client._link.challenge = first.client._link.challenge
        with pytest.raises(ClusterConfigError, match="another job.*same REPLICAX_JOB"):
            second.join()


@pytest.mark.parametrize("key", ["", "another"])
def test_worker_without_the_key_is_refused(key: str):
    with running(2) as cluster:
        with pytest.raises(ClusterConfigError, match="another job.*same REPLICAX_JOB"):
            cluster.add(1, key=key).join()
        assert cluster.kinds() == []


def test_late_worker_is_refused_and_not_trusted():
    with joined(2) as cluster:
        with pytest.raises(ClusterConfigError, match="running already.*one too many"):
            cluster.add(1).join()
        loop = cluster.server._running_loop
        assert sum(not each.is_stranger for each in list(loop._connections)) == 2


def test_server_must_show_the_key_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_reception, "is_proof", lambda given, expected: True)
    with running(1) as cluster:
        with pytest.raises(ClusterConfigError, match="launcher has not shown.*same REPLICAX_JOB"):
            cluster.add(0, key="another").join()


def test_processes_too_many_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_reception, "_LATECOMERS_SECONDS", 10 * WAIT)
    with running(1, join_timeout=10 * WAIT) as cluster, ThreadPoolExecutor(40) as pool:
        each = [cluster.add(1, of=2) for _ in range(40)]
        answers = as_completed([pool.submit(worker.join) for worker in each], WAIT)
        turned_away = [next(answers).exception() for _ in range(8)]
        # Now all have come: those who were not turned away wait for an answer.
        cluster.server._running_loop.call(cluster.server._reception._decide)
        told = [answer.exception() for answer in answers]
        assert {type(error) for error in turned_away} == {WorkersMissingError}
        assert {type(error) for error in told} == {ClusterConfigError} and len(told) == 32


def test_worker_that_goes_away_before_the_verdict_may_come_again():
    with running(2) as cluster:
        first = cluster.add(1)
        first.client._say_hello(first.hello)
        cluster.wait_for("arrived", 1)
        first.client.stop()
        cluster.join_all()
        cluster.wait_for("started")


def test_missing_workers_are_named():
    with running(3, join_timeout=2) as cluster:
        each = [cluster.add(rank) for rank in (0, 2)]
        for error in errors_of([worker.join for worker in each]):
            assert isinstance(error, WorkersMissingError)
            text = "2 of 3 workers arrived in 2 s; missing: worker 1 (host1:1)."
            assert text in str(error)
        assert text in cluster.wait_for("refused").text
        assert cluster.wait_for("down").worker is None
        with pytest.raises(WorkersMissingError, match="missing: worker 1"):
            cluster.add(1).join()  # too late: it hears what the others heard


def test_process_that_dies_before_it_joins_ends_the_waiting():
    with running(2, owns_processes=True) as cluster:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(cluster.add(0).join)
            cluster.wait_for("arrived", 0)
            cluster.server.process_ended(1, 1)
            with pytest.raises(WorkerLostError, match="(?i)worker 1 .*exited with status 1 before"):
                waiting.result(WAIT)
        assert cluster.wait_for("down").worker == 1


def test_process_that_never_joins_is_missed_only_if_others_wait():
    with running(2, owns_processes=True) as cluster:
        cluster.server.process_ended(1, 0)
        with pytest.raises(WorkerLostError, match="exited with status 0 before it joined"):
            cluster.add(0).join()
    with running(2, owns_processes=True) as cluster:
        cluster.server.process_ended(1, 0)
        cluster.server.process_ended(0, 0)
        assert cluster.wait_for("done").details == {"status": 0}


@pytest.mark.parametrize(
    "hello", [{"key": "other"}, {"generation": 1}], ids=["other key", "other generation"]
)
def test_leftover_of_another_run_is_refused(hello: dict[str, Any]):
    with running(2) as cluster:
        with pytest.raises(ClusterConfigError, match="(?i)pid 1001 on host .*another job.*end it"):
            cluster.add(1, **hello).join()
        cluster.join_all()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"replicax-control 1\nnot json\n",
        b"replicax-control 1\n[1, 2]\n",
        b'replicax-control 1\n{"op": "failed", "type": "x"}\n',
        b'replicax-control 1\n{"op": "hello", "worker": 99, "addresses": []}\n',
        b'replicax-control 1\n{"op": "hello", "worker": "x"}\n',
        b'replicax-control 1\n{"op": "hello"}\n',
        b"replicax-control 1\n" + b"[" * 100_000 + b"\n",
        b"x" * (2 << 20),
        b"",
    ],
    ids=lambda data: data[:40].decode("latin-1"),
)
def test_stranger_does_no_harm(data: bytes):
    with joined(2) as cluster:
        with socket.create_connection(cluster.server.bound_address, WAIT) as stranger:
            with contextlib.suppress(OSError):  # it may hang up first
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):  # until it is shown the door
                    pass
        got = in_parallel([lambda w=w: w.client.exchange("t", 1, WAIT) for w in cluster.workers])
        assert got == [[1, 1]] * 2


def test_message_of_a_worker_that_makes_no_sense_costs_only_that_worker():
    with joined(2) as cluster:
        cluster.workers[1].client.is_released.set()
        cluster.workers[1].client._link.send({"op": "status", "calls": "many"})
        assert cluster.workers[0].downs.get(timeout=WAIT).worker == 1


def test_payload_that_is_not_json_is_the_callers_error():
    with joined(1) as cluster:
        with pytest.raises(TypeError, match="JSON"):
            cluster.workers[0].client.exchange("t", object(), WAIT)
        assert cluster.workers[0].client.exchange("u", 1, WAIT) == [1]


def test_long_payloads_go_through():
    with joined(2) as cluster:
        text = "x" * 3_000_000
        got = in_parallel([lambda w=w: w.client.exchange("t", text, WAIT) for w in cluster.workers])
        assert got == [[text, text]] * 2


def test_stalled_job_is_reported_with_stacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_watchdog, "_STACKS_SECONDS", 10 * WAIT)  # both answer
    with joined(2, stall_timeout=1.0) as cluster:
        for worker in cluster.workers:
            worker.progress.busy, worker.progress.phase = 0, "running step"
        cluster.workers[0].progress.calls = 3
        cluster.workers[1].progress.calls = 2
        event = cluster.wait_for("stalled")
        assert event.worker == 1
        assert "worker 1 (host1:1) has made no progress for 1 s" in event.text
        assert "the others are at call 3" in event.text
        report = event.details["report"]
        assert "worker 0 (host0:1): call 3, running step" in report
        assert report.count("thread MainThread:") == 2
        assert "test_stalled_job_is_reported_with_stacks" in report
        assert "replicax-control" not in report
        assert cluster.workers[0].downs.get(timeout=WAIT).kind == "stalled"


def test_silent_worker_is_stalled_even_while_others_compile():
    with running(2, stall_timeout=1.0) as cluster:
        worker, frozen = cluster.add(0), cluster.add(1)
        frozen.client._say_hello(frozen.hello)  # and never a word again
        worker.join()
        worker.progress.busy = 1
        event = cluster.wait_for("stalled")
        assert event.worker == 1 and "does not answer" in event.text
        assert "no answer" in event.details["report"]


def test_environment_leads_a_worker_to_the_server():
    with running(1, generation=3) as cluster:
        environment = cluster.server.environment()
        assert environment == {
            "REPLICAX_CONTROL": cluster.server.address,
            "REPLICAX_JOB": "key",
            "REPLICAX_GENERATION": "3",
        }
        assert json.dumps(environment)


def test_port_in_use_is_an_error_of_start():
    with running(1) as cluster:
        second = ControlServer(1, *cluster.server.bound_address)
        with pytest.raises(OSError):
            second.start()
        with pytest.raises(RuntimeError, match="has not been started"):
            _ = second.address
