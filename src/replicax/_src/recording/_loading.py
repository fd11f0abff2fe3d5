"""`load`: a capsule in a notebook."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any, final

import numpy as np

from replicax._src.checkpoints import Checkpoint, CheckpointManager
from replicax._src.functions import Function, Proceed, as_function, observe
from replicax._src.recording._compared import Replayed, recorded_results
from replicax._src.recording._probe import Probe, gradients_in, strategy_of
from replicax._src.recording._recorded import Recorded
from replicax._src.recording._replay import Replay, values_of
from replicax._src.recording._report import contents_of, heading
from replicax._src.recording._traps import Traps
from replicax._src.variable import Variable


def load(capsule: str | os.PathLike[str]) -> Capsule:
    """Opens a capsule that an `rx.debug.Recorder` has made. It is checked, and nothing is run.

        capsule = rx.debug.load("recording/capsules/step-41327")
        capsule.attach(manager, train_step)   # of the program that was recorded
        capsule.run()                         # the step again
        capsule.before["kernel:0"], capsule.after["kernel:0"], capsule.inputs

    Args:
      capsule: its path.

    Returns:
      The capsule, from which a step is run with `attach` and `run`.

    Raises:
      rx.errors.DataLossError: there is none, it is damaged, or it is something else.
    """
    return Capsule(Recorded(os.fspath(capsule)))


@final
class Capsule:
    """A recorded step, and what is needed to run it again; what `rx.debug.load` returns.

    Attributes:
      inputs: the arguments of the step that `run` ran last: `(args, kwargs)`.
      before: the values of all variables before that step, by name, or by their path in the
        checkpoint where names are not unique; for each what each replica has.
      after: the same after it.
      gradients: by trainable variable, what each replica gave for it to an `rx.Optimizer`, before
        the replicas' gradients met.
    """

    def __init__(self, recorded: Recorded):
        self._recorded = recorded
        self._program: tuple[Checkpoint, Function[..., Any], Probe] | None = None
        self.inputs: Any = None
        self.before: dict[str, list[np.ndarray]] = {}
        self.after: dict[str, list[np.ndarray]] = {}
        self.gradients: dict[str, list[np.ndarray]] = {}

    @property
    def step(self) -> int:
        """The number of the step that it was made for."""
        return self._recorded.step

    @property
    def steps(self) -> range:
        """The steps that can be run again."""
        return range(self._recorded.after + 1, self._recorded.step + 1)

    @property
    def trap(self) -> str | None:
        """What a trap has found; None if the program itself has saved it."""
        return None if self._recorded.trap is None else str(self._recorded.trap.get("text"))

    @property
    def contents(self) -> dict[str, str]:
        """What each file of it holds, in words: look at it before it is given to others."""
        return contents_of(self._recorded)

    def recorded_results(self, step: int | None = None) -> list[Any]:
        """Returns the small arrays that a step returned: for each one array, or one by replica."""
        found = recorded_results(self._recorded.of(self.step if step is None else step)) or []
        return [parts[0] if len(parts) == 1 else parts for parts in found]

    def attach(
        self,
        manager: CheckpointManager | Checkpoint,
        function: Callable[..., Any],
        traps: Traps | None = None,
    ) -> None:
        """Names the objects to replay with: those that the recorder was given.

        Args:
          manager: the checkpoints of the program, or one.
          function: the `rx.function` that makes a step.
          traps: as the recorder had them, to compare what they saw.
        """
        found = as_function(function)
        if found is None:
            raise TypeError(f"attach takes an rx.function; got {function!r}.")
        checkpoint = manager.checkpoint if isinstance(manager, CheckpointManager) else manager
        probe = Probe(traps or Traps(), checkpoint, discards=False, is_replay=True)
        self._program = checkpoint, found, probe

    def run(self, step: int | None = None) -> Replayed:
        """Restores, runs the steps before, and then the step; its iterators must be made already.

        The variables and iterators of the program are changed: they are those of the step.

        Args:
          step: its number; by default the one that the capsule was made for.

        Returns:
          What the step has computed, next to what was recorded of it.
        """
        if self._program is None:
            raise RuntimeError(
                "The capsule knows no program yet. Call capsule.attach(manager, train_step) first, "
                "with the objects that the Recorder was given."
            )
        checkpoint, function, probe = self._program
        number = self.step if step is None else step
        through = _Through(probe)
        by_run = self._recorded.descriptions[0].get("by_run") is True
        strategy = strategy_of(checkpoint) if by_run else None

        def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if strategy is not None:
                return strategy.run(function, args, kwargs)
            return function(*args, **kwargs)

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return called(args, kwargs), through.seen

        def variables(
            args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[list[Variable], list[Variable]]:
            with through.asking():
                return called(args, kwargs)

        replay = Replay(self._recorded, checkpoint, call, variables)
        before = observe(function, through, keeps_programs=True)
        try:
            replay.go_to(number)
            self.inputs = replay.inputs_of(number)
            replay.prepare(number)
            self.before = values_of(checkpoint)
            replayed = replay.run_next()
        finally:
            observe(function, before, keeps_programs=True)
        self.after = values_of(checkpoint)
        self.gradients = gradients_in(through.seen)
        return replayed

    def __str__(self) -> str:
        return heading(self._recorded, self.step)


@final
class _Through:
    """Sees the calls of a function as a recorder does, and records nothing."""

    def __init__(self, probe: Probe):
        self._probe = probe
        self._is_asking = False
        self.seen: dict[str, np.ndarray] = {}
        """What traps saw of the last call."""

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Inside the block, a call is not made: it returns the variables that it would use."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._is_asking:
            return self._probe.variables(proceed, body, args, kwargs)
        result, self.seen = self._probe.seen(proceed, body, args, kwargs)
        return result
