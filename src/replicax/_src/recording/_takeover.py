"""A script that is replayed: it runs up to the first call of the recorded function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, final

from replicax._src import _tree
from replicax._src._errors import DataLossError
from replicax._src.checkpoints import Checkpoint
from replicax._src.data import delivery_watchers
from replicax._src.functions import Function, Proceed, observe
from replicax._src.recording._inputs import Elements
from replicax._src.recording._probe import Probe
from replicax._src.recording._recorded import Recorded
from replicax._src.recording._replay import Replay
from replicax._src.recording._session import replaying
from replicax._src.values import is_leaf


class ScriptTakenOver(BaseException):
    """Ends a script where the replay has taken over, past its handlers of errors."""


@final
class Takeover:
    """Waits for the recorded function to be called, and replays in its place."""

    def __init__(
        self,
        recorded: Recorded,
        replay: Callable[[Replay, Proceed, Any], None],
        same_layout: bool | None = None,
    ):
        """
        Args:
          recorded: the capsule.
          replay: is given the replay, what makes a call, and the function that is compiled.
          same_layout: whether it runs on as many replicas and in as many processes; None: on as
            many replicas.
        """
        self._same_layout = same_layout
        self._recorded = recorded
        self._replay = replay
        self._checkpoint: Checkpoint | None = None
        self.checkpoint: Checkpoint
        """Of the script."""
        self._probe: Probe | None = None
        self._elements = Elements(rows=False)

    def take_over(self, checkpoint: Checkpoint, function: Function[..., Any], probe: Probe) -> None:
        """Called where the script begins to record."""
        name = getattr(function.python_function, "__name__", "function")
        expected = self._recorded.descriptions[0].get("function")
        known = expected.get("name") if isinstance(expected, dict) else None
        if known != name:
            raise DataLossError(
                f"The capsule {self._recorded.path} is of a function {known!r}, and this script "
                f"records {name!r}. Name the script that was recorded."
            )
        self._checkpoint, self._probe = checkpoint, probe
        observe(function, self)

    def called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Takes the first call of the function; returns its result."""
        probe = self._probe
        assert self._checkpoint is not None and probe is not None
        leaves = _tree.leaves_of((args, kwargs), is_leaf)
        replay = Replay(
            self._recorded,
            self._checkpoint,
            lambda args, kwargs: probe.seen(proceed, body, args, kwargs),
            lambda args, kwargs: probe.variables(proceed, body, args, kwargs),
            (args, kwargs),
            [self._elements.iterator_of(leaf) for leaf in leaves],
            self._same_layout,
        )
        self.checkpoint = self._checkpoint
        self._replay(replay, proceed, body)
        raise ScriptTakenOver

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """Around the script."""
        delivery_watchers.append(self._elements.delivered)
        try:
            with replaying(self):
                yield
        finally:
            delivery_watchers.remove(self._elements.delivered)
