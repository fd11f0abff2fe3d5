"""Wrong programs: each must end in an error that says what was wrong and what to do.

The rows are in `tests/misuse/`, a file for each area. After every one the same strategy must still
work, and nothing may be left behind.
"""

import re
import threading
from typing import Any

import pytest

from replicax._src.context import thread_state
from replicax._src.executors._threads import NAME_PREFIX, pool
from tests.misuse import MISUSES
from tests.misuse.table import Misuse, context, replica_id, rx, two_replicas
from tests.old_names import with_old_names


@with_old_names
@pytest.mark.parametrize("row", MISUSES, ids=lambda row: row.name)
def test_misuse_is_refused_with_a_remedy(row: Misuse) -> None:
    strategy = two_replicas()
    with pytest.raises(row.error) as caught:
        row.do(strategy)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert re.search(row.wrong, text, re.DOTALL), f"what was wrong is not in: {text}"
    assert re.search(row.remedy, text, re.DOTALL), f"the remedy is not in: {text}"
    assert_healthy(strategy)


def test_the_table_is_complete() -> None:
    assert len(MISUSES) >= 200
    assert len({row.name for row in MISUSES}) == len(MISUSES)


def assert_healthy(strategy: Any) -> None:
    """The strategy still works, and no context, world or busy thread is left."""
    assert not rx.distribute.has_strategy()
    assert not rx.distribute.in_cross_replica_context()
    assert thread_state.frames == thread_state.creators == []
    assert thread_state.world is None

    def step() -> Any:
        return context().all_reduce("SUM", replica_id() + 1.0)

    assert float(strategy.reduce("MEAN", strategy.run(step), axis=None)) == 3.0
    kept = [thread for thread in threading.enumerate() if thread.name.startswith(NAME_PREFIX)]
    assert len(pool._free) == len(kept)
