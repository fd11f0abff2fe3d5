"""Who speaks for the job: the first worker, and in replica context its first replica."""

from __future__ import annotations

from replicax._src.cluster import current_membership
from replicax._src.context import get_replica_context, replica_id_of


def number_of_workers() -> int:
    """How many processes are at work on this; 1 before they have joined."""
    membership = current_membership()
    return 1 if membership is None else membership.workers


def worker_number() -> int:
    """Which of them this is."""
    membership = current_membership()
    return 0 if membership is None else membership.worker


def speaks_for_the_job() -> bool:
    """Whether what is shown or written here is not shown or written by somebody else as well."""
    context = get_replica_context()
    return worker_number() == 0 and (context is None or replica_id_of(context) == 0)
