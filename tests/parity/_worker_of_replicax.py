"""replicax in one worker of a job: what is being tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import replicax as rx

from ..under_test import EXECUTORS, Executor
from ._layout import Layout
from ._replicax import ReplicaxLibrary
from ._worker import InJob


class ReplicaxInJob(ReplicaxLibrary, InJob):
    """replicax with the `MultiWorkerMirroredStrategy` that `TF_CONFIG` describes."""

    version = rx.__version__

    def __init__(self, layout: Layout, worker: int, strategy: Any = None) -> None:
        self.job_strategy = strategy or rx.distribute.MultiWorkerMirroredStrategy()
        self.layout, self.worker = layout, worker

    def under(self, executor: str) -> ReplicaxInJob:
        """Chooses the executor by which `run` is called in the next scenario."""
        # A step that is called again is compiled once, as a user's is.
        chosen = _CompiledOnce() if executor == "compiled" else EXECUTORS[executor]()
        ReplicaxLibrary.__init__(self, chosen)
        return self


class _CompiledOnce:
    """`strategy.run` inside an `rx.function` that is made once for each replica function."""

    name = "compiled"

    def __init__(self) -> None:
        self._steps: dict[Any, Any] = {}

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if fn not in self._steps:

            @rx.function
            def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                return strategy.run(fn, args=args, kwargs=kwargs)

            self._steps[fn] = step
        return self._steps[fn](tuple(args), dict(kwargs or {}))

    def step(self, strategy: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(strategy, fn, args, kwargs)


_: type[Executor] = _CompiledOnce
