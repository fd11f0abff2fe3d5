"""Contexts: which strategy, which replica, on which thread."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import replicax as rx
from tests.replicas import context, mirrored, several_replicas

where = rx.distribute


def here() -> tuple[Any, bool, bool]:
    """The current strategy, whether it is not the default, and whether in cross-replica context."""
    return where.get_strategy(), where.has_strategy(), where.in_cross_replica_context()


def in_a_thread(fn: Callable[[], Any]) -> Any:
    result = []
    thread = threading.Thread(target=lambda: result.append(fn()))
    thread.start()
    thread.join()
    return result[0]


def test_the_default_context():
    default, other, cross = here()
    assert not other and not cross
    assert default.num_replicas_in_sync == 1
    replica = context()
    assert replica.replica_id_in_sync_group == 0 and replica.strategy is default


def test_scope_run_merge_and_update(strategy: Any, executor: Any):
    not_default = strategy is not where.get_strategy()
    with strategy.scope():
        assert here() == (strategy, not_default, not_default)
        v = rx.Variable(0.0)
    seen = []

    def merge(merging: Any) -> None:
        assert merging is strategy
        seen.append(here())
        merging.extended.update(v, lambda _: seen.append(here()))

    def step() -> None:
        seen.append(here())
        context().merge_call(merge)
        seen.append(here())

    executor.run(strategy, step)
    assert {each[0] for each in seen} == {strategy}
    crossed = [each[2] for each in seen]
    count = strategy.num_replicas_in_sync
    copies = len(strategy.experimental_local_results(v))
    if executor.name == "compiled":  # one trace speaks for all
        count = copies = 1
    assert crossed == [False] * count + [True] * (1 + copies) + [False] * count
    assert not where.has_strategy()


def test_each_replica_knows_itself(strategy: Any):
    seen = []

    def step() -> None:
        replica = context()
        seen.append((replica.replica_id_in_sync_group, replica.devices, replica.strategy))
        assert replica.num_replicas_in_sync == strategy.num_replicas_in_sync

    strategy.run(step)
    devices = strategy.extended.worker_devices
    assert seen == [(index, (device,), strategy) for index, device in enumerate(devices)]


def test_a_scope_nests_in_itself():
    strategy = mirrored(2)
    scope = strategy.scope()
    with scope, scope, strategy.scope():
        assert where.get_strategy() is strategy
    assert not where.has_strategy()


def test_another_strategy_inside_a_scope_is_an_error():
    with mirrored(2).scope():
        with pytest.raises(RuntimeError, match="mixing different strategies"):
            with mirrored(2).scope():
                pass
        with pytest.raises(RuntimeError, match="mixing different strategies"):
            mirrored(2).run(lambda: None)


def test_the_default_strategys_scope_changes_nothing():
    default = where.get_strategy()
    with default.scope():
        assert not where.has_strategy() and not where.in_cross_replica_context()
    with mirrored(2).scope(), pytest.raises(RuntimeError):
        default.scope().__enter__()


def test_a_scope_is_left_when_its_block_raises():
    strategy = mirrored(2)
    with pytest.raises(KeyError), strategy.scope():
        raise KeyError
    with pytest.raises(KeyError):
        strategy.run(lambda: {}["missing"])
    assert not where.has_strategy()


def test_a_scope_is_of_its_thread_alone():
    strategy = mirrored(2)
    with strategy.scope():
        assert in_a_thread(where.has_strategy) is False
        assert in_a_thread(lambda: context().replica_id_in_sync_group) == 0


def test_a_thread_started_in_a_replica_sees_the_default():
    assert mirrored(2).run(lambda: in_a_thread(where.has_strategy)) is False


def test_a_scope_left_on_another_thread_is_an_error():
    scope = mirrored(2).scope()
    scope.__enter__()

    def leave() -> Any:
        try:
            scope.__exit__(None, None, None)
        except RuntimeError as error:
            return str(error)

    assert "another thread" in in_a_thread(leave)
    scope.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="more often"):
        scope.__exit__(None, None, None)


def test_setting_a_strategy_without_a_block():
    first, second = mirrored(2), mirrored(3)
    where.experimental_set_strategy(first)
    try:
        assert here() == (first, True, True)
        assert in_a_thread(where.has_strategy) is False
        where.experimental_set_strategy(second)
        assert where.get_strategy() is second
        with second.scope(), pytest.raises(RuntimeError, match="inside a strategy scope"):
            where.experimental_set_strategy(None)
        assert second.run(lambda: where.in_cross_replica_context()) is False
    finally:
        where.experimental_set_strategy(None)
    assert not where.has_strategy()


@several_replicas
def test_a_replica_context_used_outside_its_function(strategy: Any):
    kept = []
    strategy.run(lambda: kept.append(context()))
    for use in (
        lambda: kept[0].merge_call(lambda s: None),
        lambda: kept[0].all_reduce("SUM", 1.0),
        lambda: kept[0].all_gather([1.0], axis=0),
    ):
        with pytest.raises(RuntimeError, match="outside its replica function"):
            use()


@several_replicas
def test_what_needs_cross_replica_context_says_so_in_a_replica(strategy: Any):
    uses = {
        "scope": lambda: strategy.scope().__enter__(),
        "run": lambda: strategy.run(lambda: None),
        "reduce": lambda: strategy.reduce("SUM", 1.0, axis=None),
        "gather": lambda: strategy.gather([1.0], axis=0),
    }
    for name, use in uses.items():
        with pytest.raises(rx.errors.WrongContextError, match=f"strategy.{name}"):
            strategy.run(use)


def test_a_replica_context_made_by_hand():
    strategy = mirrored(2)
    with where.ReplicaContext(strategy, 1) as replica:
        assert where.get_replica_context() is replica
        assert replica.replica_id_in_sync_group == 1
        with pytest.raises(RuntimeError, match="no other replicas"):
            replica.merge_call(lambda s: None)
    assert not where.has_strategy()
