"""What stands for the strategy in functions on workers: one replica, which is the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, final

from replicax._src._errors import WrongContextError
from replicax._src._typing import ArrayInput, override
from replicax._src.strategies import Strategy, StrategyExtended
from replicax._src.variable import Variable


class LooksUp(Protocol):
    """A worker, as far as its strategy knows it."""

    index: int

    def look_up(self, table: Variable, ids: ArrayInput) -> Any:
        """Returns rows of a table."""
        ...


@final
class WorkerExtended(StrategyExtended):
    """One replica on the default device of the worker."""

    def __init__(self, container_strategy: Strategy, worker: LooksUp):
        super().__init__(container_strategy)
        self._worker = worker

    @override
    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        raise WrongContextError(
            f"The variable {kwargs.get('name') or 'Variable'!r} is made in a function on a worker. "
            "Variables live on parameter servers, and are made in the program that schedules: "
            "make it there, inside `with strategy.scope():`, and use it in the function. A Keras "
            "model gets its variables from a keras.Input, or when it is called there once."
        )

    @property
    @override
    def _sharing_worker(self) -> int | None:
        return self._worker.index

    def look_up(self, table: Variable, ids: ArrayInput) -> Any:
        """Returns rows of a table."""
        return self._worker.look_up(table, ids)


@final
class WorkerStrategy(Strategy):
    """The `ParameterServerStrategy`, as functions on a worker see it."""

    def __init__(self, worker: LooksUp):
        super().__init__(WorkerExtended(self, worker))
        self.worker_index = worker.index
