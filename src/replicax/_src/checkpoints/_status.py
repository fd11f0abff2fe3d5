"""What `restore` returns: did everything find its place? And what is still to be restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, final

import jax

from replicax._src.checkpoints import _restoring
from replicax._src.checkpoints._graph import OURS, GraphNode, Kind, walk
from replicax._src.checkpoints._late import LateValues
from replicax._src.checkpoints._leaf import converted, spec_of
from replicax._src.checkpoints._problems import UnmatchedError
from replicax._src.checkpoints._saved import Saved
from replicax._src.training import Optimizer, reset_slots, slots_of, start_slots_from
from replicax._src.variable import Variable, outside_of_everything

if TYPE_CHECKING:
    from replicax._src.checkpoints._checkpoint import Checkpoint


class CheckpointLoadStatus:
    """What `Checkpoint.restore` and `read` return. Its methods raise, or return the status.

    The errors are `rx.errors.CheckpointError`, and `AssertionError` as in TensorFlow.
    """

    def __init__(self, root: Checkpoint, saved: Saved, partial: bool):
        self._root = root
        self._saved = saved
        self._partial = partial
        self._done: dict[Any, Any] = {}  # what was restored; held, so that identities stay
        self._late_values = LateValues(root, self, saved)
        self._found = _restoring.match(walk(root, saved.spelling), saved)
        _restoring.require_fit(self._found, saved, partial)
        self._prepared = _PreparedRestore(self, self._found)

    def _commit(self) -> None:
        """Restores; nothing but positions has been changed before."""
        self._prepared.commit()
        del self._prepared
        self._await_the_rest()

    def _restored_values(self) -> list[object]:
        """Returns the variables and other things that get saved values."""
        found = self._found
        return [*(node.value for node, _ in found.pairs), *(each for each, _ in found.unbuilt)]

    def _await_the_rest(self) -> None:
        found = self._found
        self._late_values.await_all_but(found.used, [index for _, index in found.unbuilt])

    def _undo(self) -> None:
        """Leaves everything as it was before."""
        self._prepared.undo()

    def _slots_of(self, index: int) -> _DeferredSlots:
        slots = self._saved.objects[index]["slots"]
        values = self._saved.arrays([node for *_, node in slots])
        return _DeferredSlots(self, slots, values)

    def _update(self) -> None:
        """Restores what the program has made since."""
        found = _restoring.match(walk(self._root, self._saved.spelling), self._saved)
        _restoring.require_fit(found, self._saved, partial=True)
        found.reset = []
        known = {id(optimizer) for optimizer, _ in self._found.unbuilt}
        found.unbuilt = [pair for pair in found.unbuilt if id(pair[0]) not in known]
        _PreparedRestore(self, found).commit()
        found.unbuilt += self._found.unbuilt
        self._found = found
        self._await_the_rest()

    def _note(self, variable: Variable, index: int) -> None:
        """Notes that a variable that was made later has been restored."""
        self._done[id(variable)] = variable
        self._found.bound[id(variable)] = index
        self._found.used.add(index)

    def _awaits(self, name: str) -> bool:
        """Returns whether the checkpoint has something of this name without a place here."""
        index = self._saved.objects[0].get("children", {}).get(name)
        return index is not None and index not in self._found.used

    def _late(self, nodes: list[GraphNode]) -> list[str]:
        """Returns variables that were made after restoring and have not got their saved values."""
        if self._partial:
            return []
        if self._saved.spelling is not OURS:
            nodes = walk(self._root, self._saved.spelling)
        late = [
            n for n, _ in _restoring.match(nodes, self._saved).pairs if _key(n) not in self._done
        ]
        return [node.path for node in late if not _restoring.is_counter(node.path)]

    def assert_consumed(self) -> Self:
        """Requires that all of the checkpoint, and all of the program, was restored."""
        self.assert_existing_objects_matched()
        unused = [i for i in self._saved.leaves() if i not in self._found.used]
        unused = [i for i in unused if not _restoring.is_counter(self._saved.objects[i]["path"])]
        if unused:
            lines = [f"{self._saved.objects[i]['path']}: {self._saved.describe(i)}" for i in unused]
            raise UnmatchedError(
                f"The checkpoint {self._saved.path} has values that the program has no place for:"
                "\n  " + "\n  ".join(lines[:40]) + "\nIf that is meant, do not call "
                "assert_consumed(): assert_existing_objects_matched() asks for less."
            )
        return self

    def assert_existing_objects_matched(self) -> Self:
        """Requires that everything that the program has by now was in the checkpoint.

        What the program has made since `restore` is restored first.
        """
        self._update()
        _restoring.require_fit(self._found, self._saved, partial=False)
        return self

    def assert_nontrivial_match(self) -> Self:
        """Requires that something was restored, apart from the save counter."""
        self._update()
        if all(_restoring.is_counter(node.path) for node, _ in self._found.pairs):
            raise UnmatchedError(
                f"Nothing of the checkpoint {self._saved.path} has a place in the program. Give "
                "the checkpoint the names that were saved: rx.train.Checkpoint(model=...)."
            )
        return self

    def expect_partial(self) -> Self:
        """Says that parts of the checkpoint will not be used, and that this is meant."""
        self._partial = True
        return self

    def initialize_or_restore(self, session: object = None) -> None:
        """Kept for ported code; everything is restored already."""

    run_restore_ops = initialize_or_restore


@final
class _PreparedRestore:
    """What is to be restored, all of it at hand."""

    def __init__(self, status: CheckpointLoadStatus, found: _restoring.Match):
        self._status, self._found = status, found
        done = status._done
        self._fresh = [(node, index) for node, index in found.pairs if _key(node) not in done]
        self._deferred = [(each, status._slots_of(index)) for each, index in found.unbuilt]
        self._values = _restoring.PreparedValues(self._fresh, status._saved)

    def commit(self) -> None:
        self._values.commit()
        for optimizer in self._found.reset:
            reset_slots(optimizer)
        for optimizer, slots in self._deferred:
            start_slots_from(optimizer, slots)
        for node, _ in self._fresh:
            self._status._done[_key(node)] = node.value

    def undo(self) -> None:
        self._values.undo()


class InitializationOnlyStatus:
    """What `restore(None)` returns: nothing is restored, and asking for more is an error."""

    def _refuse(self) -> Any:
        raise UnmatchedError("No checkpoint was given (None), so nothing was restored.")

    assert_consumed = _refuse
    assert_existing_objects_matched = _refuse
    assert_nontrivial_match = _refuse

    def expect_partial(self) -> Self:
        """Does nothing."""
        return self

    def initialize_or_restore(self, session: object = None) -> None:
        """Kept for ported code."""

    run_restore_ops = initialize_or_restore

    def _late(self, nodes: list[GraphNode]) -> list[str]:
        return []


@final
class _DeferredSlots:
    """The saved state of an optimizer, for when it makes its own."""

    def __init__(
        self, status: CheckpointLoadStatus, slots: list[list[Any]], values: Mapping[int, Any]
    ):
        self._status = status
        self._table = _restoring.SlotTable(slots, status._saved.spelling)
        self._values = values

    def __call__(
        self, owner: Variable | None, position: int | None, label: str, new: jax.Array
    ) -> Any:
        """Returns the value that a new slot starts from."""
        bound = self._status._found.bound
        if owner is not None and id(owner) not in bound:
            with outside_of_everything():  # it may be a program that is being traced
                self._status._update()  # its variable was made after restoring
            bound = self._status._found.bound
        owned_by = None if owner is None else bound.get(id(owner))
        index = self._table.find(owned_by, position, label)
        saved = self._status._saved
        what = f"{label} of {'the optimizer' if owner is None else owner.name}"
        if index is None:
            if self._status._partial or saved.spelling.may_lack(label):
                return new
            raise UnmatchedError(
                f"The checkpoint {saved.path} has no {what}, which the optimizer wants as "
                f"{spec_of(new)}. It was saved with another optimizer or other variables. To start "
                "that from new values, write restore(path, partial=True)."
            )
        wanted = spec_of(new)
        if not saved.fits(wanted, index):
            raise UnmatchedError(
                f"The checkpoint {saved.path} does not fit the optimizer: {what}: saved "
                f"{saved.describe(index)}, wanted {wanted}."
            )
        value = self._values[index]
        return value if saved.spec(index) == wanted else converted(value, wanted, what)

    def made(self, optimizer: Optimizer) -> None:
        """Called when the optimizer has its state; it counts as restored."""
        self._values = {}
        for _, _, _, variable in slots_of(optimizer):
            self._status._done[id(variable)] = variable


def _key(node: GraphNode) -> Any:
    """Returns what tells things of the program apart: identity, or for immutable ones the place."""
    return id(node.value) if node.kind == Kind.VARIABLE else node.path
