"""The launcher of a node other than 0: it starts and ends workers as that of node 0 says."""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from replicax.cli._event_loop import EventLoop
from replicax.cli._log import Log
from replicax.cli._node import LocalNode, Plan
from replicax.cli._options import LaunchOptions
from replicax.cluster.control import RESTART_STATUS, dial
from replicax.cluster.control._dial import Link, NobodyThere, WrongProgram

Message = dict[str, Any]
_SECONDS_AFTER_CTRL_C = 3.0


class _ToldToEnd(Exception):
    """The launcher was told to end while it waited."""


class Member:
    """Takes part in a job: joins node 0's launcher, and does what it says until the job ends."""

    def __init__(
        self,
        options: LaunchOptions,
        log: Log | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options
        self._environment = environment
        self._log = log or Log()
        self._loop = EventLoop()
        self._generation = 0
        self._status: int | None = None
        self._exits: dict[int, int] = {}

    def run(self) -> int:
        """Runs until the job ends; returns its exit status."""
        try:
            with self._loop:
                return self._run()
        finally:
            self._log.close(timeout=60.0 if self._loop.told_to_end is None else 2.0)

    def _run(self) -> int:
        options = self._options
        host, port = options.coordinator_address()
        self._log.say(
            f"node {options.node_rank}: connecting to the launcher of node 0 at "
            f"{options.coordinator} (at most {options.join_timeout:g} s)"
        )
        try:
            link = self._link = dial(host, port, options.join_timeout, self._check_told)
        except NobodyThere as error:
            self._log.say(
                f"node 0 does not answer at {options.coordinator} after {options.join_timeout:g} s "
                f"({error}). Start its launcher with --node-rank 0 and the same --coordinator, see "
                "that the port can be reached from here, or wait longer with --join-timeout."
            )
            return 1
        except WrongProgram as error:
            self._log.say(f"{error}. Choose another port for --coordinator, on all nodes.")
            return 1
        except _ToldToEnd:
            return 128 + (self._loop.told_to_end or 0)
        self._local = LocalNode(
            options, self._loop, self._log, link.local_address, self._exited, self._environment
        )
        self._send(
            {
                "op": "node",
                "rank": options.node_rank,
                "nodes": str(options.nodes),
                "workers": str(options.workers),
                "host": link.local_address,
                "addresses": self._local.addresses,
                "pid": os.getpid(),
                "python": sys.version.split()[0],
            }
        )
        thread = threading.Thread(target=self._receive, name="replicax-node", daemon=True)
        thread.start()
        try:
            self._obey_until_the_end()
        finally:
            self._local.close()
            link.hang_up()
            thread.join(5)
            link.close()
        return 1 if self._status is None else self._status

    def _obey_until_the_end(self) -> None:
        leave_at: float | None = None
        while self._status is None:
            workers = self._local.workers
            self._log.wait_for_room(0.02)
            self._loop.wait(leave_at, often=workers.needs_polling)
            workers.reap()
            told = self._loop.told_to_end
            if self._log.reader_is_gone:
                told, self._loop.hurry = signal.SIGPIPE, True
            if told is None:
                continue
            if leave_at is None:
                terminated = told == signal.SIGTERM
                seconds = self._options.grace_period if terminated else _SECONDS_AFTER_CTRL_C
                self._log.say(f"{signal.Signals(told).name}: ending the workers of this node")
                workers.signal(signal.SIGTERM if terminated else signal.SIGINT)
                leave_at = time.monotonic() + seconds
            if not workers.running or self._loop.hurry or time.monotonic() >= leave_at:
                saved = RESTART_STATUS in self._exits.values()
                self._status = RESTART_STATUS if saved else 128 + told

    # --- messages --------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Runs in a thread: hands the messages of node 0 to the loop."""
        link: Link = self._link
        try:
            while True:
                message = link.receive(60.0)
                if message is not None:
                    self._loop.call_soon(lambda message=message: self._heard(message))
        except (EOFError, OSError, ValueError):
            self._loop.call_soon(self._lost_node_0)

    def _heard(self, message: Message) -> None:
        op = message["op"]
        if op == "start":
            self._generation = message["generation"]
            self._exits.clear()
            seats = [(place, rank) for place, rank in message["seats"]]
            self._local.start(Plan(message["cluster"], message["environment"], seats))
        elif op == "signal":
            self._local.signal(message["number"])
            # One that was told to end leaves; it is not ready for another generation.
            if message["number"] == signal.SIGKILL and self._loop.told_to_end is None:
                self._send(
                    {
                        "op": "ready",
                        "generation": self._generation,
                        "addresses": self._local.addresses,
                    }
                )
        elif op == "say":
            self._log.say(message["text"])
        elif op == "refused":
            self._log.say(message["text"])
            self._status = 2
        elif op == "end":
            self._status = message["status"]

    def _lost_node_0(self) -> None:
        if self._status is None:
            self._log.say(
                f"the launcher of node 0 ({self._options.coordinator}) is gone; ending the workers "
                "of this node"
            )
            self._status = 1

    def _exited(self, rank: int, status: int) -> None:
        self._exits[rank] = status
        self._send({"op": "exit", "generation": self._generation, "rank": rank, "status": status})

    def _send(self, message: Message) -> None:
        try:
            self._link.send(message)
        except OSError:
            self._lost_node_0()

    def _check_told(self) -> None:
        self._loop.run_calls()
        if self._loop.told_to_end is not None:
            raise _ToldToEnd
