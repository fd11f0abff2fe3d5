"""The strategies and executors that the `strategy` and `executor` fixtures run a test over.

A new strategy or executor is a new line here: every test that takes the fixture then covers it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import replicax as rx


def cpus(count: int) -> list[str]:
    """Returns the names of the first `count` virtual CPU devices."""
    return [f"CPU:{index}" for index in range(count)]


STRATEGIES: dict[str, Callable[[], Any]] = {
    "default": rx.distribute.get_strategy,
    "one_device": lambda: rx.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored_1": lambda: rx.distribute.MirroredStrategy(cpus(1)),
    "mirrored_2": lambda: rx.distribute.MirroredStrategy(cpus(2)),
    "mirrored_3": lambda: rx.distribute.MirroredStrategy(cpus(3)),
    "mirrored_8": lambda: rx.distribute.MirroredStrategy(cpus(8)),
    "central_storage_2": lambda: rx.distribute.experimental.CentralStorageStrategy(
        cpus(2), parameter_device="CPU:0"
    ),
}


class Executor(Protocol):
    """One way to run a replica function; all ways must give the same numbers."""

    name: str

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any: ...

    def step(self, strategy: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what runs `fn` as often as it is called, and is compiled once if at all."""
        ...


class Eager:
    """`strategy.run` as it stands: one Python call per replica."""

    name = "eager"

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return strategy.run(fn, args=tuple(args), kwargs=dict(kwargs or {}))

    def step(self, strategy: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: strategy.run(fn, args=args)


class Compiled:
    """`strategy.run` inside `rx.function`: one program for all replicas."""

    name = "compiled"

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        @rx.function
        def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return strategy.run(fn, args=args, kwargs=kwargs)

        return step(tuple(args), dict(kwargs or {}))

    def step(self, strategy: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        return rx.function(lambda *args: strategy.run(fn, args=args))


EXECUTORS: dict[str, Callable[[], Executor]] = {"eager": Eager, "compiled": Compiled}
