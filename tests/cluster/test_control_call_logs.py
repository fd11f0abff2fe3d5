"""What workers have called is compared one by one, however it is told."""

from hypothesis import given
from hypothesis import strategies as st

from replicax._src.cluster.control._progress import WorkerProgress
from replicax._src.cluster.control._records import CallLogs, Difference

CALLS = st.lists(st.sampled_from(["step", "all_reduce of float32[3]", "gather of int32[]"]))


def tell(logs: CallLogs, calls: list[list[str]], order: list[int]) -> Difference | None:
    """Workers call and tell, in any order and in pieces of any size; the first difference."""
    told = [0] * len(calls)
    progress = [WorkerProgress() for _ in calls]
    for turn in [*order, *range(len(calls))]:
        worker = turn % len(calls)
        is_last = turn in range(len(calls)) and turn == worker
        end = len(calls[worker]) if is_last else min(told[worker] + turn, len(calls[worker]))
        for what in calls[worker][told[worker] : end]:
            progress[worker].called(what)
        told[worker] = max(told[worker], end)
        if (found := logs.add(worker, progress[worker].take_runs())) is not None:
            return found
    for worker, each in enumerate(calls):
        for what in each[told[worker] :]:
            progress[worker].called(what)
        if (found := logs.add(worker, progress[worker].take_runs())) is not None:
            return found
    return None


@given(CALLS, st.integers(1, 4), st.lists(st.integers(0, 20)))
def test_equal_calls_are_equal(calls: list[str], workers: int, order: list[int]):
    logs = CallLogs(workers)
    assert tell(logs, [calls] * workers, order) is None
    assert not any(logs._open)  # and forgotten


@given(CALLS, CALLS, st.lists(st.integers(0, 20)))
def test_the_first_difference_is_found(one: list[str], other: list[str], order: list[int]):
    common = next(
        (i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other))
    )
    found = tell(CallLogs(2), [one, other], order)
    if common < min(len(one), len(other)):
        assert found == Difference(common + 1, [one[common], other[common]])
    else:
        assert found is None
