"""`Succession`: a launcher that leads the job or follows its leader, whichever is its turn.

With a folder that all hosts see (`_lease.py`), the loss of the leader is the loss of one host: the
others end their workers, one of them gets the lease and leads, and the rest follow it. The job is
begun by node 0. Only a launcher that has been in the job takes over, and one that has given up the
lead lets the others try first.
"""

import dataclasses
import time
from typing import final

from replicax._src._typing import override
from replicax._src.cli._launch import Launch
from replicax._src.cli._lease import Lease, Term
from replicax._src.cli._member import Member
from replicax._src.cli._node import Launcher, OwnNode, free_addresses
from replicax._src.cli._options import LaunchOptions

# How long one that has given up the lead leaves it to the others.
_SECONDS_FOR_OTHERS = 20.0
# A leader that too few others have joined has given up by then.
_SHORT_TERM_SECONDS = 10.0
# Between two attempts to follow the same leader.
_RETRY_SECONDS = 1.0


@final
class Succession(Launcher):
    """Takes part in a job, and leads it when it must."""

    def __init__(self, options: LaunchOptions) -> None:
        assert options.shared_folder is not None
        super().__init__(options)
        self._lease = Lease(options.shared_folder, options.node_rank)
        self._host = options.coordinator_address()[0]
        """The address by which the others reach this host, once that is known."""
        self._took_part = False
        self._not_before = 0.0
        """When this launcher may ask for the lead."""

    @override
    def take_part(self, local: OwnNode) -> int:
        """Runs until the job ends; returns its exit status."""
        try:
            return self._run(local)
        finally:
            self._lease.close()

    def _run(self, local: OwnNode) -> int:
        deadline = time.monotonic() + self._options.join_timeout
        while True:
            term = self._wait_for_leader(deadline)
            if term is None:
                return self._give_up()
            if term.status is not None:
                self._log.say(f"the job has ended with exit status {term.status}")
                return term.status
            began = time.monotonic()
            if self._lease.is_held:
                status = self._lead(term, local)
            else:
                status = self._follow(term, local, deadline)
            if status is not None:
                return status
            # Those who lead and give up in turns, before anything has started, come to an end.
            if time.monotonic() - began > _SHORT_TERM_SECONDS:
                deadline = time.monotonic() + self._options.join_timeout
            self._pause()

    def _wait_for_leader(self, deadline: float) -> Term | None:
        """Returns the term of a leader, or that in which the job ended; None if none comes."""
        lease, told = self._lease, False
        while time.monotonic() < deadline and self._loop.told_to_end is None:
            term = lease.term
            if lease.is_held or (term is not None and lease.is_alive):
                return term
            if term is not None and term.status is not None and self._took_part:
                return term
            if lease.is_vacant:
                self._claim()
            elif not told:
                told = True
                who = "somebody" if term is None else f"node {term.node} ({term.address})"
                self._log.say(f"looking whether {who} still leads the job, in {lease.folder}")
            self._loop.wait(deadline)
        return None

    def _claim(self) -> None:
        if self._took_part and time.monotonic() >= self._not_before:
            self._lease.claim(free_addresses(self._host, 1)[0], new_job=False)
        elif not self._took_part and self._options.node_rank == 0:
            assert self._options.coordinator is not None
            self._lease.claim(self._options.coordinator, new_job=True)

    def _lead(self, term: Term, local: OwnNode) -> int | None:
        if self._took_part:
            self._log.say(f"node {local.rank} leads the job now, at {term.address}")
        self._took_part = True
        options = dataclasses.replace(self._options, coordinator=term.address)
        launch = Launch(options, self._log, self._environment, self._loop, self._lease)
        status = launch.take_part(local)
        self._not_before = time.monotonic() + _SECONDS_FOR_OTHERS
        return status

    def _follow(self, term: Term, local: OwnNode, deadline: float) -> int | None:
        left = max(1.0, deadline - time.monotonic())
        options = dataclasses.replace(
            self._options, coordinator=term.address, join_timeout=round(left, 1)
        )

        def still_leads() -> bool:
            newest = self._lease.term
            is_same = newest is None or newest.number == term.number
            return is_same and not self._lease.is_vacant

        member = Member(
            options,
            self._log,
            self._environment,
            self._loop,
            leader=term.node,
            still_leads=still_leads,
            took_part=self._took_part,
        )
        status = member.take_part(local)
        if member.is_in:
            self._took_part = True
            self._host = member.host
        return status

    def _pause(self) -> None:
        end = time.monotonic() + _RETRY_SECONDS
        while time.monotonic() < end and self._loop.told_to_end is None:
            self._loop.wait(end)

    def _give_up(self) -> int:
        told = self._loop.told_to_end
        if told is not None:
            return 128 + told
        lease, seconds = self._lease, self._options.join_timeout
        term = lease.term
        if lease.trouble:
            why = f"--shared-folder {lease.trouble}. See that all hosts can read and write it"
        elif term is None or lease.is_vacant:
            who = "no other host came" if self._took_part else "node 0 has not begun"
            why = (
                f"nobody leads the job in {lease.folder}: {who}. Start its launcher, or wait longer"
            )
        else:
            why = f"node {term.node} ({term.address}) leads the job and cannot be reached from here"
        self._log.say(f"{why} (waited {seconds:g} s, --join-timeout)")
        return 1
