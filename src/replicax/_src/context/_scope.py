"""Entering and leaving a strategy: `strategy.scope()` and `experimental_set_strategy`."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from typing import Any

from replicax._src._errors import WrongContextError
from replicax._src.context import _queries, _stack
from replicax._src.context._forks import require_threads
from replicax._src.context._libraries import let_libraries_join
from replicax._src.context._strategy import StrategyLike


class StrategyScope:
    """What `strategy.scope()` returns: makes the strategy current, in cross-replica context.

    May be entered again inside itself. Per thread: a thread started inside sees the default
    strategy.
    """

    def __init__(self, strategy: StrategyLike):
        self._strategy = strategy
        self._entered: list[bool] = []

    def __enter__(self) -> Any:
        strategy, frame = self._strategy, _stack.current_frame()
        if strategy is _stack.default_strategy():
            # The default strategy is what is current without any scope; entering it does nothing.
            if frame.strategy is not strategy:
                raise _queries._mixed(frame.strategy, strategy, "strategy.scope()")
            self._entered.append(False)
            return strategy
        _queries.require_cross_replica(
            strategy,
            "strategy.scope()",
            "Inside strategy.run the strategy is current already: leave the scope out there.",
        )
        require_threads("strategy.scope() or strategy.run")
        let_libraries_join()
        _stack.thread_state.frames.append(_stack.Frame(strategy, task_scope=_new_task_scope()))
        self._entered.append(True)
        return strategy

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._entered:
            raise WrongContextError(
                "This scope was left more often than it was entered. Use `with strategy.scope():`, "
                "which leaves it once."
            )
        if not self._entered.pop():
            return
        frames, frame = _stack.thread_state.frames, _stack.current_frame()
        if not frames or frame.strategy is not self._strategy:
            self._entered.append(True)
            raise WrongContextError(
                "A strategy scope was left on another thread or in another order than it was "
                "entered. Use `with strategy.scope():`, which nests by itself."
            )
        frames[:] = [each for each in frames if each is not frame]
        let_libraries_join(in_time=False)


def _new_task_scope() -> object:
    """Marks a scope as this asyncio task's own; None where no event loop runs."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return None
    mark = object()
    _stack.scopes_of_task.set((*_stack.scopes_of_task.get(), mark))
    return mark


def experimental_set_strategy(strategy: StrategyLike | None) -> None:
    """Makes `strategy` current on this thread without a `with` block, until it is set again.

    Args:
      strategy: the strategy, or None to go back to the default one.

    Raises:
      RuntimeError: called inside a `strategy.scope()` or a replica function.
    """
    state = _stack.thread_state
    expected = 1 if state.set_strategy is not None else 0
    if _stack.depth() != expected:
        raise WrongContextError(
            "experimental_set_strategy was called inside a strategy scope. Call it at the top "
            "level of the program, or use `with strategy.scope():`."
        )
    if strategy is not None and not hasattr(strategy, "scope"):
        raise TypeError(
            f"experimental_set_strategy takes a strategy or None; got {strategy!r}. "
            "Pass for example rx.distribute.MirroredStrategy()."
        )
    if state.set_strategy is not None:
        state.set_strategy.__exit__(None, None, None)
        state.set_strategy = None
    if strategy is not None and strategy is not _stack.default_strategy():
        scope = strategy.scope()
        scope.__enter__()
        state.set_strategy = scope
