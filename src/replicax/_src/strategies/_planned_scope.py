"""The scope of a strategy on planned devices, in which nothing is computed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, final

from replicax._src._planned_arrays import shapes_only
from replicax._src._typing import Device, override
from replicax._src.context import StrategyScope


@final
class PlannedScope(StrategyScope):
    """As any scope; operations inside give shapes and no values."""

    def __init__(self, strategy: Any, device: Device):
        super().__init__(strategy)
        self._device = device
        self._inside: list[AbstractContextManager[Any]] = []

    @override
    def __enter__(self) -> Any:
        strategy = super().__enter__()
        inside = shapes_only(self._device)
        inside.__enter__()
        self._inside.append(inside)
        return strategy

    @override
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._inside:
            self._inside.pop().__exit__(exc_type, exc, traceback)
        super().__exit__(exc_type, exc, traceback)
