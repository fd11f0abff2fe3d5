"""asyncio: each task sees the scopes that it entered, or was made in, and no other task's."""

import asyncio
from typing import Any

import pytest

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import mirrored


def current() -> Any:
    return rx.distribute.get_strategy()


def test_a_task_does_not_get_the_scope_of_another():
    strategies = mirrored(2), mirrored(3)
    default = current()
    seen: list[Any] = []

    async def work(strategy: Any, entered: asyncio.Event, other: asyncio.Event) -> None:
        with strategy.scope():
            entered.set()
            await other.wait()
            assert current() is strategy
            with strategies[0].scope() if strategy is strategies[0] else strategy.scope():
                await asyncio.sleep(0)
                assert rx.Variable(1.0).distribute_strategy is strategy
            assert strategy.run(lambda: current()) is strategy
        assert current() is default

    async def look(first: asyncio.Event, second: asyncio.Event) -> None:
        await first.wait()
        await second.wait()
        seen.append(current())
        assert rx.Variable(1.0).distribute_strategy is not strategies[0]
        assert rx.distribute.in_cross_replica_context() is False

    async def main() -> None:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(
            work(strategies[0], a, b), work(strategies[1], b, a), look(a, b), look(a, b)
        )

    asyncio.run(main())
    assert seen == [default, default] and thread_state.frames == []


def test_scopes_that_interleave_are_left_in_any_order():
    first, second = mirrored(2), mirrored(2)

    async def hold(strategy: Any, enter: asyncio.Event, leave: asyncio.Event) -> None:
        await enter.wait()
        with strategy.scope():
            leave_next.set()
            await leave.wait()
            assert current() is strategy

    async def main() -> None:
        now, later = asyncio.Event(), asyncio.Event()
        now.set()
        one = asyncio.create_task(hold(first, now, leave_next))
        two = asyncio.create_task(hold(second, leave_next, later))
        await one
        later.set()
        await two

    leave_next = asyncio.Event()
    asyncio.run(main())
    assert thread_state.frames == []


def test_a_task_sees_the_scope_that_it_was_made_in():
    strategy = mirrored(2)
    default = current()

    async def see() -> Any:
        await asyncio.sleep(0)
        return current()

    async def main() -> None:
        with strategy.scope():
            inside = asyncio.create_task(see())
            assert await inside is strategy
            late = asyncio.create_task(see())
        assert await late is default  # the scope is no longer entered
        assert await see() is default

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail(strategy))
    asyncio.run(main())
    with strategy.scope():  # around the event loop: all tasks are in it
        assert asyncio.run(see()) is strategy
    assert thread_state.frames == []


async def fail(strategy: Any) -> None:
    with strategy.scope():
        await asyncio.sleep(0)
        raise ZeroDivisionError
