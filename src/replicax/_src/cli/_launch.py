"""`Launch`: starts workers, generation after generation, until they finish or may not start again.

This is the launcher of a single host, or the leader of several, which decides for all of them: that
of node 0, or another that took its place (`_succession.py`). One thread does everything
(`_event_loop.py`), next to that of the control server, which watches over the workers. A generation
ends as a whole: nothing of it is left when the next one starts, which has a new server, port and
key.
"""

import math
import secrets
import signal
import time
from collections.abc import Mapping
from typing import final

from replicax._src._typing import override
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._generation import Failure, Generation, Result
from replicax._src.cli._lease import Lease
from replicax._src.cli._log import Log
from replicax._src.cli._node import (
    JobNode,
    Launcher,
    LocalNode,
    NewNode,
    NodePlan,
    OwnNode,
    seats_for,
)
from replicax._src.cli._options import LaunchOptions
from replicax._src.cli._other_nodes import OtherNodes
from replicax._src.cli._status import WorkerPlace, in_short, status_line
from replicax._src.cluster.control import RESTART_STATUS, ControlServer, Event

# Preempted so soon and so often in a row, a script has some other reason to leave with status 42.
_QUICK_PREEMPTION = 5.0
_MOST_QUICK_PREEMPTIONS = 10
# How long other nodes may take to say that their workers are gone.
_SECONDS_TO_KILL = 15.0
# How long a leader waits for others before it lets one lead that may reach more of them.
_SECONDS_TO_COME = 4.0


class LaunchFailed(Exception):
    """The job cannot go on; the text says why."""


class Deposed(Exception):
    """This launcher leads no more; the text says why."""


@final
class Launch(Launcher):
    """Runs a job of workers to its end.

    Args:
      options, log, environment, loop: As `Launcher`.
      lease: What lets this launcher lead; None: nothing else can.
      new_node: As `Launcher`.

    Attributes:
      cause: What ended the last generation, if it was a failure.
      failure: Why the job could not go on, if that was not a worker's fault.
      outcome: What the first worker has left as its result, or the one that failed first; see
        `_errand.py`.
    """

    def __init__(
        self,
        options: LaunchOptions,
        log: Log | None = None,
        environment: Mapping[str, str] | None = None,
        loop: EventLoop | None = None,
        lease: Lease | None = None,
        new_node: NewNode = LocalNode,
    ) -> None:
        super().__init__(options, log, environment, loop, new_node)
        self.cause: Failure | None = None
        self.failure = ""
        self.outcome: bytes | None = None
        self._lease = lease
        several = options.nodes.most > 1
        self._host = options.coordinator_address()[0] if several else "127.0.0.1"
        self._others: OtherNodes | None = None
        self._nodes: dict[int, JobNode] = {}
        self._generation: Generation | None = None
        self._server: ControlServer | None = None
        self._seats: dict[int, list[tuple[int, int]]] = {}
        self._restarts = 0
        self._quick_preemptions = 0
        self._sitting_out: set[tuple[int, int]] = set()  # (node, place)
        self._started = time.monotonic()
        self._exits: list[tuple[int, int]] = []

    # --- the life of the job ---------------------------------------------------------------------

    @override
    def take_part(self, local: OwnNode) -> int | None:
        """Runs the job; returns its exit status, or None if another launcher may lead it now."""
        options = self._options
        local.serve(self._host, self.note_exit, self.lose_worker)
        self._local = self._nodes[local.rank] = local
        status = 1 if self._lease is None else None
        if self._lease is not None:
            # If this process is stopped, or held up, its workers end all the same.
            self._lease.on_renewal = local.limit
        try:
            if options.nodes.most > 1:
                self._others = OtherNodes(options, self._loop, self._nodes, self)
            number = first = self._first_generation()
            while True:
                self._gather_nodes(number, first)
                generation = self._start(number)
                self._watch(generation)
                ended = self._end(generation)
                if ended is not None:
                    status = ended
                    return status
                number += 1
        except LaunchFailed as failure:
            self.failure = str(failure)
            self.say(self.failure)
            told = self._loop.told_to_end
            status = 1 if told is None else 128 + told
            return status
        except Deposed as reason:
            self._log.say(str(reason))
            status = None
            return status
        finally:
            local.end()
            if self._server is not None:
                self._server.stop()
            if self._others is not None:
                self._others.close(status)
            if self._lease is not None:
                self._lease.end(status)
                local.limit(math.inf)

    def _first_generation(self) -> int:
        """Returns the number of the first generation; goes on counting where a leader was lost."""
        term = None if self._lease is None else self._lease.term
        if term is None or term.generation < 0:
            return 0
        self._restarts = term.restarts
        if self._restarts >= self._options.max_restarts:
            raise LaunchFailed(
                f"the leader of the job is lost after {self._restarts} of "
                f"{self._options.max_restarts} restarts; it is not started again"
            )
        self._restarts += 1
        return term.generation + 1

    def _gather_nodes(self, number: int, first: int) -> None:
        """Waits for the launchers of the other nodes: for all at first, later for enough."""
        options = self._options
        now = time.monotonic()
        deadline, kill_deadline = now + options.join_timeout, now + _SECONDS_TO_KILL
        come_deadline = now + _SECONDS_TO_COME
        told = False
        while True:
            self._check_lease()
            late = time.monotonic() >= deadline
            if late:
                self._local.make_do()
            if self._local.trouble:
                raise LaunchFailed(self._local.trouble)
            ready = [node for node in self._nodes.values() if node.addresses is not None]
            all_ready = len(ready) == len(self._nodes)
            is_enough = len(ready) >= options.nodes.least
            has_waited = time.monotonic() >= come_deadline
            if all_ready and len(ready) >= self._wanted_nodes(number, first, has_waited):
                return
            if not all_ready and time.monotonic() >= kill_deadline and self._others is not None:
                self._others.drop_those_not_ready(_SECONDS_TO_KILL)
                continue
            if late and all_ready and is_enough:
                return
            missing = [rank for rank in range(options.nodes.most) if rank not in self._nodes]
            if late or self._loop.told_to_end is not None:
                raise LaunchFailed(self._missing_nodes(missing, late))
            if self._lease is not None and number and all_ready and not is_enough and has_waited:
                raise Deposed(
                    f"{len(ready)} of {options.nodes} nodes are here after {_SECONDS_TO_COME:g} s; "
                    "another launcher may reach more of them: this one leaves the lead to it"
                )
            if not told and (missing or (has_waited and self._local.waits_for)):
                told = True
                nodes = f"at {options.coordinator} for the launcher of node " + ", ".join(
                    map(str, missing)
                )
                what = nodes if missing else f"for {self._local.waits_for}"
                self.say(f"waiting {what} (at most {options.join_timeout:g} s)")
            self._loop.wait(deadline)

    def _wanted_nodes(self, number: int, first: int, has_waited: bool) -> int:
        """Returns how many nodes to start a generation with; `first` is this leader's first one."""
        least, most = self._options.nodes
        if number == 0:
            return most
        # Where this leader follows another, it is that one which is lost.
        return max(least, most - 1) if number == first and not has_waited else least

    def _check_lease(self) -> None:
        """Ends everything here when another launcher may lead: never two of them."""
        if self._lease is not None and not self._lease.is_held:
            trouble = self._lease.trouble
            raise Deposed(
                "this launcher could not renew its lease in time"
                f"{f' ({trouble})' if trouble else ''}, and leads no more; ending its workers"
            )

    def _missing_nodes(self, missing: list[int], late: bool) -> str:
        options = self._options
        if self._local.waits_for:
            when = f"after {options.join_timeout:g} s" if late else "when told to end"
            return f"{self._local.waits_for} {when}. Wait longer with --join-timeout."
        here = f"{len(self._nodes)} of {options.nodes} nodes are here"
        names = ", ".join(f"node {rank}" for rank in missing)
        if not late:
            return f"told to end while {here}; missing: {names}"
        return (
            f"{here} after {options.join_timeout:g} s; missing: {names}. Start "
            f"`replicax launch --nodes {options.nodes} --node-rank {missing[0]} "
            f"--coordinator {options.coordinator} ...` there, or wait longer with --join-timeout."
        )

    def _start(self, number: int) -> Generation:
        options = self._options
        nodes = sorted(self._nodes.values(), key=lambda node: node.rank)
        self._seats = seats_for(nodes, {node.rank: self._places(node.rank) for node in nodes})
        cluster = [
            (node.addresses or [])[place] for node in nodes for place, _ in self._seats[node.rank]
        ]
        server = self._server = ControlServer(
            workers=len(cluster),
            host=self._local.host,
            port=0,
            key=secrets.token_hex(16),
            generation=number,
            join_timeout=options.join_timeout,
            stall_timeout=options.stall_timeout or None,
            owns_processes=True,
            on_event=lambda event: self._loop.call_soon(lambda: self._heard(number, event)),
        )
        server.start()
        generation = self._generation = Generation(number, len(cluster), options.grace_period)
        if number or len(nodes) > 1 or len(cluster) < options.workers.most:
            self.say(f"generation {number} starts with {_workers(len(cluster), len(nodes))}")
        if self._lease is not None:
            self._lease.note(number, self._restarts)
            self._check_lease()
        for node in nodes:
            node.start(NodePlan(cluster, server.environment(), self._seats[node.rank]))
        return generation

    def _places(self, node: int) -> list[int]:
        """Returns the places of a node that work in the next generation."""
        most = self._options.workers.most
        places = self._local.places if node == self._local.rank else range(most)
        rested = [place for place in places if (node, place) not in self._sitting_out]
        return rested if len(rested) >= self._options.workers.least else list(places)

    def _watch(self, generation: Generation) -> None:
        """Lets a generation run until it is over."""
        while not generation.over:
            self._check_lease()
            self._show_status(generation)
            self._log.wait_for_room(0.02)
            self._loop.wait(generation.kill_at, often=self._local.needs_polling)
            self._local.reap()
            # What the server has said comes first: one that left for another is not to blame.
            self._loop.run_calls()
            exits, self._exits = self._exits, []
            for rank, status in exits:
                generation.exited(rank, status)
            self._obey(generation)

    def _obey(self, generation: Generation) -> None:
        """Tells the workers to end if the launcher was told to."""
        told = self._loop.told_to_end
        if self._log.reader_is_gone:
            told, self._loop.hurry = signal.SIGPIPE, True
            self._loop.told_to_end = told
        if told is None:
            return
        if not generation.told_to_end:
            number, seconds = self._how_to_end(told)
            if told == signal.SIGTERM:
                self.say(f"told to end (SIGTERM): the workers have {seconds:g} s to save and leave")
            else:
                self.say(f"{signal.Signals(told).name}: ending all workers")
            generation.end_within(seconds)
            self._signal_all(number)
        if self._loop.hurry:
            generation.end_within(0)

    def _end(self, generation: Generation) -> int | None:
        """Ends what is left of a generation; returns the exit status, or None to start another."""
        server = self._server
        if generation.report:
            self.say(generation.report)
        self.cause = cause = generation.cause
        first = 0 if cause is None or cause.worker is None else cause.worker
        self._signal_all(signal.SIGKILL)
        self.outcome = self._local.outcome(first)
        if server is not None:
            server.stop()
        self._server = None
        told = self._loop.told_to_end
        result = generation.result
        if told is not None:
            return self._end_as_told(generation, told)
        if result is Result.FINISHED:
            hung = sorted(set(range(generation.workers)) - generation.exits.keys())
            if hung:
                self.say(f"worker {in_short(hung)} finished, but did not shut down: killed")
            return 0
        if result is Result.PREEMPTED:
            return self._after_preemption(generation)
        return self._after_failure(generation)

    def _end_as_told(self, generation: Generation, told: int) -> int:
        if told == signal.SIGTERM and generation.result is Result.PREEMPTED:
            self.say(f"the workers have saved and left; exit status {RESTART_STATUS}")
            return RESTART_STATUS
        if told == signal.SIGTERM and generation.result is Result.FINISHED:
            return 0
        return 128 + told

    def _after_preemption(self, generation: Generation) -> int | None:
        quick = time.monotonic() - generation.started < _QUICK_PREEMPTION
        self._quick_preemptions = self._quick_preemptions + 1 if quick else 0
        if self._quick_preemptions >= _MOST_QUICK_PREEMPTIONS:
            self.say(
                f"workers left with status {RESTART_STATUS} (start me again) "
                f"{self._quick_preemptions} times in a row, each within {_QUICK_PREEMPTION:g} s: "
                "giving up"
            )
            return RESTART_STATUS
        self._sitting_out = set()
        self.say("the workers were preempted and have saved; starting them again")
        return None

    def _after_failure(self, generation: Generation) -> int | None:
        cause = generation.cause or Failure(None, "workers left with different statuses", 1)
        who = "" if cause.worker is None else f"worker {cause.worker} "
        text = cause.text if cause.text.startswith(who) else who + cause.text
        self._quick_preemptions = 0
        self._sitting_out = self._lost_places(generation)
        most = self._options.max_restarts
        if self._restarts >= most:
            more = f" after {most} restart{'s' * (most > 1)}" if most else ""
            self.say(f"{text}; all workers are ended{more}, exit status {cause.status}")
            return cause.status
        self._restarts += 1
        self.say(f"{text}; restart {self._restarts} of {most}")
        return None

    def _lost_places(self, generation: Generation) -> set[tuple[int, int]]:
        """Returns the places that sit out the next generation: of killed workers, if they may."""
        if self._options.nodes.most > 1:
            return set()
        lost = [place for place, rank in self._seats[0] if rank in generation.lost]
        spare = self._options.workers.most - self._options.workers.least
        return {(0, place) for place in lost[:spare]}

    # --- what happens meanwhile ------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Adds a line to the log of every node."""
        self._log.say(text)
        if self._others is not None:
            self._others.say(text)

    def note_exit(self, rank: int, status: int) -> None:
        """Notes that a worker process, here or on another node, has ended on its own."""
        generation, server = self._generation, self._server
        if generation is None or server is None:
            return
        self._exits.append((rank, status))
        server.process_ended(rank, status)

    def lose_node(self, rank: int, text: str) -> None:
        """Notes that another node's launcher is gone, and its workers with it."""
        generation, server = self._generation, self._server
        if generation is None or server is None:
            return
        for _, worker in self._seats.get(rank, []):
            if worker not in generation.exits:
                self.lose_worker(worker, text)

    def lose_worker(self, rank: int, text: str) -> None:
        """Notes that a worker is gone with its machine."""
        if self._generation is not None:
            self._generation.lose(rank, f"is lost: {text}")

    def _heard(self, number: int, event: Event) -> None:
        generation = self._generation
        if generation is not None and generation.number == number:
            generation.heard(event)

    def _signal_all(self, number: int) -> None:
        for node in list(self._nodes.values()):
            node.signal(number)

    def _show_status(self, generation: Generation) -> None:
        if self._log.has_status:
            self._log.status(self._status_of(generation))

    def whereabouts(self) -> str:
        """Returns what the workers are doing, in a line."""
        generation = self._generation
        return "not started yet" if generation is None else self._status_of(generation)

    def _status_of(self, generation: Generation) -> str:
        states: list[WorkerPlace] = []
        for each in [] if self._server is None else self._server.status():
            ended = generation.exits.get(each.worker)
            phase = each.phase or "starting"
            if ended is not None:
                phase = "done" if ended == 0 else f"ended ({ended})"
            states.append(WorkerPlace(phase, each.step, each.calls))
        seconds = time.monotonic() - self._started
        return status_line(
            states, generation.number, seconds, self._restarts, self._options.max_restarts
        )


def _workers(number: int, nodes: int) -> str:
    workers = f"{number} worker{'s' if number > 1 else ''}"
    return f"{workers} on {nodes} nodes" if nodes > 1 else workers
