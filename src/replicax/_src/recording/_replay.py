"""Replaying: from the checkpoint of a capsule along its recorded inputs to a step, and that again.

The program is the user's own: its function, its objects, its data. What is taken from the capsule
are values: of variables, positions and arguments.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._errors import CheckpointError, DataLossError
from replicax._src.checkpoints import Checkpoint
from replicax._src.data import PositionedIterator, live_iterators
from replicax._src.recording._compared import Replayed, compared, largest
from replicax._src.recording._inputs import bits_of, put_together
from replicax._src.recording._probe import (
    WHOLE,
    strategy_of,
    unsaved_among,
    variables_by_name,
)
from replicax._src.recording._recorded import Recorded
from replicax._src.values import PerReplica, is_leaf
from replicax._src.variable import SyncOnReadVariable, Variable, VariableAggregation

_write = Checkpoint.write  # a script that is replayed writes none

Call = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, dict[str, np.ndarray]]]
"""Calls a function with arguments; returns the result, and what traps see."""

Variables = Callable[
    [tuple[Any, ...], dict[str, Any]], tuple[Sequence[Variable], Sequence[Variable]]
]
"""Returns which variables such a call would change, and which it would read alone."""


@final
class Replay:
    """Runs the steps of a capsule with the objects of a program."""

    def __init__(
        self,
        recorded: Recorded,
        checkpoint: Checkpoint,
        call: Call,
        variables: Variables,
        template: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        sources: Sequence[PositionedIterator | None] = (),
        same_layout: bool | None = None,
    ):
        """
        Args:
          recorded: the capsule.
          checkpoint: the program's.
          call: calls the function of the program that was recorded.
          variables: says which variables such a call would change, and which it would read alone.
          template: arguments that the program itself has passed to it, if it has.
          sources: the iterator that each of these arguments came from, as far as it is known.
          same_layout: whether it runs on as many replicas in as many processes; None: if one
            worker has recorded it.
        """
        self._recorded = recorded
        self._checkpoint = checkpoint
        self._call = call
        self._variables = variables
        self._template = template
        self.measures_changes = False
        self.assumed: dict[int, str] = {}
        """Arguments that are not in the capsule: those of the program's own call were passed."""
        self.figures: dict[str, np.ndarray] = {}
        """What traps saw of the last step, and its gradients by replica."""
        self._same_layout = same_layout
        strategy = strategy_of(checkpoint)
        self._replicas = 1 if strategy is None else len(strategy.extended.worker_devices)
        self._sources = sources
        self._live = live_iterators()  # the script may make no more, and they are to be kept
        self._unsaved: tuple[list[Variable], list[Variable]] | None = None
        self._kept: list[tuple[int, str, str | None]] = []
        self._iterators: dict[int, PositionedIterator] = {}
        self._elements: dict[int, tuple[int, list[Any]]] = {}
        """The last element of each iterator, with its position."""
        workers = len(recorded.workers)
        each_has = self._replicas // workers
        self._shares: list[int] | None = None
        if workers > 1 and each_has > 1 and self._replicas == recorded.layout["replicas"]:
            self._shares = [i * workers + w for w in range(workers) for i in range(each_has)]
        self._prepared: tuple[int, tuple[str, ...]] = 0, ()
        self.at: int | None = None  # the last step that the state of the program has

    def go_to(self, step: int) -> list[Replayed]:
        """Restores, and runs all steps before this one; returns them."""
        if not self._recorded.after < step <= self._recorded.step:
            raise DataLossError(
                f"Step {step} is not in the capsule {self._recorded.path}: it has steps "
                f"{self._recorded.after + 1} to {self._recorded.step}."
            )
        self.at, self._prepared = None, (0, ())
        self._iterators.clear()
        self._elements.clear()
        recorded = self._recorded
        states = [(recorded.after, recorded.checkpoint, recorded.unsaved), *self._kept]
        known = (each for each in states if each[0] < step)
        after, checkpoint, unsaved = max(known, key=lambda each: each[0])
        self._checkpoint.read(checkpoint)
        if unsaved is not None:
            self._read_unsaved(unsaved)
        self.at = after
        return [self.run_next() for _ in range(step - 1 - self.at)]

    def keep(self) -> None:
        """Writes down the state, so that `go_to` need not run the steps up to here again."""
        assert self.at is not None
        if self.at == self._recorded.after:
            return
        folder = tempfile.mkdtemp(prefix="replicax-kept-")
        path = _write(self._checkpoint, os.path.join(folder, "checkpoint"))
        unsaved = None
        if self._recorded.has_unsaved:
            variables, _ = self._not_in_checkpoint()
            unsaved = _write(Checkpoint(variables=variables), os.path.join(folder, "unsaved"))
        self._kept.append((self.at, path, unsaved))

    def _read_unsaved(self, path: str) -> None:
        """Restores what the step changes and the checkpoint does not have."""
        unsaved, _ = self._not_in_checkpoint()
        try:
            status = Checkpoint(variables=unsaved).read(path)
            status.assert_consumed()
        except (CheckpointError, AssertionError, ValueError, TypeError) as error:
            raise DataLossError(
                f"The step of this program changes other variables than the recorded one: {error}"
            ) from None

    def _not_in_checkpoint(self) -> tuple[list[Variable], list[Variable]]:
        """Returns what the step changes, and reads alone, and the checkpoint does not have."""
        if self._unsaved is None:
            changed, read = self._variables(*self.inputs_of(self._recorded.after + 1))
            self._unsaved = (
                unsaved_among(changed, self._checkpoint),
                unsaved_among(read, self._checkpoint),
            )
        return self._unsaved

    def _set_outside(self, step: int) -> list[str]:
        """Sets variables as something else has set them before a step; returns what, in words."""
        steps = self._recorded.of(step)
        by_worker = [{name: value for name, value in each.outside} for each in steps]
        names = list(dict.fromkeys(name for each in by_worker for name in each))
        if not names:
            return []
        known: dict[str | int, Variable] = {**variables_by_name(self._checkpoint)}
        if any(isinstance(name, int) for name in names):
            known |= enumerate(itertools.chain(*self._not_in_checkpoint()))
        return [
            self._set_one(name, known.get(name), [each.get(name) for each in by_worker])
            for name in names
        ]

    def _set_one(
        self, name: str | int, variable: Variable | None, values: Sequence[list[Any] | None]
    ) -> str:
        """Sets a variable to what each worker has recorded of it; returns what was done."""
        if variable is None:
            return f"a variable {name!r} was changed, which this program does not have"
        workers = self._recorded.workers
        had = [worker for worker, each in zip(workers, values, strict=True) if each is not None]
        if len(had) < len(workers):
            which = ", ".join(map(str, had))
            return f"{variable.name} was changed on worker {which} alone, and here it was not"
        parts: list[Any] = []
        for worker, value in zip(workers, values, strict=True):
            if value is None or value[0] == "left out":
                why = "" if value is None else f": {value[1]}"
                return f"{variable.name} was changed, and its value was not recorded{why}"
            parts += self._recorded.kept(worker, value)[1]
        look = tuple(variable.shape), str(variable.dtype)
        if any((np.shape(each), str(each.dtype)) != look for each in parts):
            return f"{variable.name} was changed, and has another shape or dtype in this program"
        _set_copies(variable, parts)
        if len({bits_of(each).tobytes() for each in parts}) == 1:
            return f"{variable.name} was changed to {_shortly(parts[0])}"
        return f"{variable.name} was changed, on each replica to another value"

    def inputs_of(self, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of a step."""
        first = self._recorded.of(step)[0]
        template = None
        if self._template is not None:
            template = list(_tree.leaves_of(self._template, is_leaf))
            if len(template) != len(first.inputs):
                template = None
        leaves = [
            self._leaf(step, index, described, template)
            for index, described in enumerate(first.inputs)
        ]
        if first.structure is not None:
            args, kwargs = put_together(first.structure, iter(leaves))
            return args, kwargs
        if template is None:
            raise DataLossError(
                f"The arguments of step {step} have a structure that a capsule cannot hold. Give "
                "the script: it passes such arguments itself."
            )
        found = iter(leaves)
        return _tree.map_structure(lambda _: next(found), self._template, is_leaf)

    def place_of_row(self, step: int, index: int, replica: int, row: int) -> str:
        """Returns which row of the program's data a row of an argument is, as far as it is known.

        Args:
          step: the number of the step.
          index: of the argument.
          replica: whose share has the row.
          row: in that share.
        """
        steps = self._recorded.of(step)
        args = list(_tree.leaves_of(self.inputs_of(step), is_leaf))
        if index >= len(args) or index >= len(steps[0].inputs):
            return ""
        shares = getattr(args[index], "values", None) or [args[index]]
        sizes = [np.shape(each)[0] if np.ndim(each) else 0 for each in shares]
        value = np.asarray(shares[replica])[row]
        before = sizes[:replica]
        match steps[0].inputs[index]:
            case ["element", int(iterator), int(position), _]:
                order = self._shares or list(range(len(sizes)))
                row += sum(size for size, i in zip(sizes, order) if i < order[replica])
                text = f"row {row} of element {position} of the data (rows from 0)"
                source = self._iterators.get(iterator)
                return text + _whence([source], value, position, row, len(shares))
        each_has = max(len(shares) // len(steps), 1)
        worker = replica // each_has
        position = steps[worker].positions.get(str(index)) if worker < len(steps) else None
        if position is None:
            return ""
        row += sum(before[worker * each_has :])
        job = each_has, len(steps), worker
        return (
            f"row {row} of element {position} of the data of worker "
            f"{self._recorded.workers[worker]} (rows from 0)"
            + _whence([*self._sources, *self._live], value, position, row, *job)
        )

    def run_next(self) -> Replayed:
        """Runs the next step, and compares what it gives with what was recorded."""
        assert self.at is not None
        step = self.at + 1
        args, kwargs = self.inputs_of(step)
        outside = self.prepare(step)
        before = values_of(self._checkpoint) if self.measures_changes else {}
        result, self.figures = self._call(args, kwargs)
        self.at = step
        after = values_of(self._checkpoint) if before else {}
        changes = {
            name: (largest(list(gradients)), largest(after[name], before[name]))
            for name in after
            if (gradients := self.figures.get(f"{WHOLE}{name}")) is not None
        }
        found = compared(step, result, self.figures, self._recorded.of(step), self._same_layout)
        return dataclasses.replace(found, changes=changes, outside=outside)

    def prepare(self, step: int) -> tuple[str, ...]:
        """Does what something else than the function did before a step; returns it in words."""
        if self._prepared[0] != step:
            self._prepared = step, tuple(self._set_outside(step))
        return self._prepared[1]

    def _leaf(self, step: int, index: int, described: object, template: list[Any] | None) -> Any:
        match described:
            case ["element", int(iterator), int(position), int(leaf)]:
                leaves = self._element(step, index, iterator, position)
                if leaf >= len(leaves):
                    raise DataLossError(
                        f"Argument {index} of step {step} was leaf {leaf} of an element of the "
                        f"data, and the elements of this program's data have {len(leaves)}."
                    )
                return leaves[leaf]
            case ["iterator", int(iterator), int(position)]:
                return self._at(step, index, iterator, position)
            case ["value", value] if value is None or isinstance(value, bool | int | str):
                return value
            case ["float", str(text)]:
                return float.fromhex(text)
            case ["complex", str(real), str(imaginary)]:
                return complex(float.fromhex(real), float.fromhex(imaginary))
            case ["bytes", str(text)]:
                return bytes.fromhex(text)
            case ["object", str(what)]:
                if template is None:
                    raise DataLossError(
                        f"Argument {index} of step {step} is an object ({what}), which is not in "
                        "the capsule. Give the script: it passes such arguments itself."
                    )
                self.assumed[index] = what
                return template[index]
        return self._recorded.argument(step, index, self._replicas)

    def _element(self, step: int, index: int, number: int, position: int) -> list[Any]:
        known = self._elements.pop(number, None)
        if known is None or known[0] != position:
            try:
                element = next(self._at(step, index, number, position - 1))
            except StopIteration:
                raise DataLossError(
                    f"The step was given element {position} of its data, and the data of this "
                    "program ends before it. Read the same data."
                ) from None
            leaves = _tree.leaves_of(element, is_leaf)
            known = position, [self._as_in_the_job(leaf) for leaf in leaves]
        self._elements[number] = known
        return known[1]

    def _as_in_the_job(self, leaf: object) -> Any:
        """Gives each replica the share of a batch that it had among the others' workers.

        There the shares went to the workers in turns; in one process they go to the replicas in
        their order.
        """
        if not isinstance(leaf, PerReplica) or self._shares is None:
            return leaf
        return PerReplica([jnp.asarray(np.asarray(leaf.values[i])) for i in self._shares])

    def _at(self, step: int, index: int, number: int, position: int) -> PositionedIterator:
        """Returns the iterator that was recorded under a number, at a position.

        Pipelines over other data may look the same: what the program's own first call was given as
        this argument comes first, and one iterator is not two of the same step.
        """
        recorded = self._recorded.of(step)[0]
        state = recorded.states.get(number)
        if state is None:
            raise DataLossError(f"The capsule {self._recorded.path} has no iterator {number}.")
        state = state | {"position": position}
        known = self._iterators.get(number)
        if known is not None and known.position == position and known.get_state() == state:
            return known
        of_step = {each[1] for each in recorded.inputs if each[0] in ("element", "iterator")}
        taken = {self._iterators.get(each) for each in of_step if each != number}
        first = self._sources[index] if index < len(self._sources) else None
        reasons: list[str] = []
        for candidate in (known, first, *self._sources, *self._live):
            if candidate is None or candidate in taken:
                continue
            try:
                candidate.set_state(state)
            except (ValueError, TypeError) as error:
                reasons.append(str(error))
                continue
            self._iterators[number] = candidate
            return candidate
        raise DataLossError(
            "The data that the step was given cannot be found in this program: it has no iterator "
            "over such a data set. Make the same pipeline over the same data before the recorded "
            f"function is first called.{' ' + reasons[0] if reasons else ''}"
        )


def _whence(
    sources: Sequence[PositionedIterator | None], value: np.ndarray, position: int, *job: int
) -> str:
    """Returns which record of which file a row of the data is, as far as that can be told."""
    for source in dict.fromkeys(each for each in sources if each is not None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = source.whence(position, *job)
        except Exception:  # whatever the pipeline raises: it is a remark on the side
            continue
        rows = [np.asarray(each, value.dtype) for each in found.leaves if each.dtype.kind in "biuf"]
        if found.text and any(
            each.shape == value.shape and each.tobytes() == value.tobytes() for each in rows
        ):
            return f": {found.text}"
    return ""


def _set_copies(variable: Variable, parts: Sequence[Any]) -> None:
    """Gives a variable a value: one for all replicas, or a part for each."""
    copies = getattr(variable, "values", (variable,))
    if isinstance(variable, SyncOnReadVariable) and len(copies) == len(parts):
        for copy, part in zip(copies, parts, strict=True):
            copy.assign(part)
    elif isinstance(variable, SyncOnReadVariable) and len(parts) > 1:
        total: Any = np.sum([np.asarray(each) for each in parts], axis=0)
        is_mean = variable.aggregation is VariableAggregation.MEAN
        for copy in copies:
            copy.assign(total / len(parts) if is_mean else total / len(copies))
    else:
        variable.assign(parts[0])


def _shortly(array: Any) -> str:
    array = bits_of(array)
    return f"{array.item():.7g}" if array.size == 1 else f"{array.dtype}{list(array.shape)}"


def values_of(checkpoint: Checkpoint) -> dict[str, list[np.ndarray]]:
    """Returns a copy of all variables: what each replica has of them."""
    return {name: _copies(each) for name, each in variables_by_name(checkpoint).items()}


def _copies(variable: Variable) -> list[np.ndarray]:
    parts: Any = getattr(variable, "values", None)
    parts = (variable,) if parts is None else parts
    arrays = [part.read_value() if isinstance(part, Variable) else part for part in parts]
    return [np.array(each) for each in arrays if not _is_key(each)]


def _is_key(array: object) -> bool:
    return isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
