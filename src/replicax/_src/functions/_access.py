"""What other rooms may do with a compiled function, which users are not to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from replicax._src.context import StrategyLike
from replicax._src.functions._function import Function
from replicax._src.functions._observing import Observer


def run_on_replicas(
    function: Function[..., Any],
    strategy: StrategyLike,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns `strategy.run(body, args, kwargs)`, computed by one program of `function`.

    `body` is the Python function of `function`, or one that captures the same.
    """
    return function._run_on(strategy, body, args, kwargs)


def last_of_steps(
    function: Function[..., Any],
    inputs: Iterable[Any],
    count: int,
    body: Callable[..., Any] | None = None,
) -> Any:
    """Returns what the last call gives of `count` calls with the next items of `inputs`.

    `body` is called in the place of the Python function of `function`; it captures the same.
    """
    return function._many(inputs, count, last_only=True, body=body)


def observe(
    function: Function[..., Any], observer: Observer | None, keeps_programs: bool = False
) -> Observer | None:
    """Lets `observer` see each call of a function; returns who saw them before.

    Programs of the observer before are forgotten, unless it is to come back.
    """
    before, function._observer = function._observer, observer
    if not keeps_programs:
        function._programs.clear()
    return before


def observer_of(function: Function[..., Any]) -> Observer | None:
    """Returns who sees the calls of a function."""
    return function._observer
