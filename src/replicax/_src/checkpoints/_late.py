"""What a checkpoint still has for variables that the program makes after `restore`.

`variable/_late_values.py` says when to look. To look is cheap: only along names on which something
is missing. Nothing of the program is kept alive for it, nor need the user keep the `Checkpoint`:
`rx.train.Checkpoint(model=model).restore(path)` is enough for a model that is built later.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

from replicax._src.checkpoints import _restoring
from replicax._src.checkpoints._graph import GraphNode, Kind, kind_of, walk
from replicax._src.checkpoints._problems import UnmatchedError
from replicax._src.checkpoints._saved import Saved
from replicax._src.training import Optimizer
from replicax._src.variable import Variable, late_value_sources, root_of, stop_looking

if TYPE_CHECKING:
    from replicax._src.checkpoints._checkpoint import Checkpoint
    from replicax._src.checkpoints._status import CheckpointLoadStatus

_MISSING = object()


@final
class LateValues:
    """The saved values of one restored checkpoint that have no variable yet."""

    def __init__(self, root: Checkpoint, status: CheckpointLoadStatus, saved: Saved):
        """
        Args:
          root: the `Checkpoint` that was restored.
          status: what `restore` returned; is told of what is restored later.
          saved: the checkpoint on the disk.
        """
        self._checkpoint = weakref.ref(root)
        self._status = weakref.ref(status)
        self._saved = saved
        inner = root._checkpoint_root
        self._inner = _weak(inner) if inner is not None else None
        self._children = {
            name: _weak(child)
            for name, child in root._tracked.items()
            if kind_of(child, False) == Kind.OBJECT
        }
        self._awaited: set[int] = set()
        self._on_the_way: set[int] = set()
        self._unbuilt: set[int] = set()
        self._left: set[int] = set()

    def leave(self, values: Iterable[object]) -> None:
        """Gives nothing to these: a newer checkpoint, which is being restored, has their values."""
        self._left = {id(each) for each in values}

    def await_all_but(self, placed: set[int], unbuilt: Iterable[int] | None = None) -> None:
        """Sets which saved objects have a place in the program; the other variables are awaited.

        Args:
          placed: those with a place.
          unbuilt: the optimizers that will start from what was saved of theirs; None: as before.
        """
        objects = self._saved.objects
        self._unbuilt = self._unbuilt if unbuilt is None else set(unbuilt)
        # The state of an optimizer, unless it has names as other variables have.
        slots = {node for each in objects for *_, node in each.get("slots", [])}
        slots -= {child for each in objects for child in each.get("children", {}).values()}
        slots |= {node for index in self._unbuilt for *_, node in objects[index]["slots"]}
        self._awaited = {
            index
            for index, each in enumerate(objects)
            if each["kind"] == Kind.VARIABLE
            and not (index in placed or index in slots or _restoring.is_counter(each["path"]))
        }
        self._on_the_way = set(self._awaited)
        grows = True
        while grows:  # by a level each time
            found = {
                index
                for index, each in enumerate(objects)
                if not self._on_the_way.isdisjoint(each.get("children", {}).values())
            }
            grows = not found <= self._on_the_way
            self._on_the_way |= found
        if self._awaited and self not in late_value_sources:
            late_value_sources.append(self)
        elif not self._awaited:
            self.close()

    def close(self) -> None:
        """Waits no more."""
        if self in late_value_sources:
            late_value_sources.remove(self)

    def __call__(self, used: object) -> None:
        """Gives their saved values to the variables that have a place by now.

        Args:
          used: the variable that is about to be used, which may be another library's. If its saved
            value does not fit, that is an error; others will be refused when they are used
            themselves.
        """
        top = self._top()
        if top is None:
            self.close()
            return
        pairs, optimizers = self._found_below(top, used)
        status = self._status()
        if optimizers and status is not None:
            status._update()  # their slots will be made from what was saved
            return
        if not pairs:
            return
        fitting = []
        for variable, index in pairs:
            node = GraphNode(Kind.VARIABLE, variable, self._saved.objects[index]["path"])
            difference = _restoring.difference(node, self._saved, index)
            if difference is None:
                fitting.append((node, index))
            elif variable is used:
                raise UnmatchedError(_does_not_fit(difference, self._saved.path))
        _restoring.PreparedValues(fitting, self._saved).commit()
        for node, index in fitting:
            stop_looking(node.value)
            if status is not None:
                status._note(node.value, index)
        placed = {index for _, index in fitting}
        if placed:
            everything = set(range(len(self._saved.objects)))
            self.await_all_but(everything - self._awaited | placed)

    def _top(self) -> dict[str, Any] | None:
        """Returns what the checkpoint holds, by name; None if all of it is gone."""
        checkpoint = self._checkpoint()
        if checkpoint is not None:
            return checkpoint._checkpoint_children(self._saved.spelling)
        inner = None if self._inner is None else self._inner()
        children = {name: child() for name, child in self._children.items()}
        alive = {name: child for name, child in children.items() if child is not None}
        if inner is None:
            return alive or None
        nodes = walk(inner, self._saved.spelling)
        return {name: nodes[index].value for name, index in nodes[0].children.items()} | alive

    def _found_below(
        self, top: dict[str, Any], used: object
    ) -> tuple[list[tuple[Variable, int]], list[Any]]:
        """Returns awaited variables with their saved objects, and optimizers on the way."""
        pairs: list[tuple[Variable, int]] = []
        optimizers: list[Any] = []
        seen = {0}
        queue: list[tuple[Any, int]] = [(top, 0)]
        for value, index in queue:
            wanted = self._saved.objects[index].get("children", {})
            here = {name: child for name, child, _ in self._saved.spelling.children_of(value)}
            for name, target in wanted.items():
                child = here.get(name, _MISSING)
                if child is _MISSING or target in seen or target not in self._on_the_way:
                    continue
                seen.add(target)
                if id(root_of(child) if isinstance(child, Variable) else child) in self._left:
                    continue
                if isinstance(child, Optimizer):
                    optimizers.append(child)
                elif target not in self._awaited:
                    if kind_of(child, False) == Kind.OBJECT:
                        queue.append((child, target))
                elif isinstance(child, Variable):
                    pairs.append((root_of(child), target))
                elif child is used:
                    raise UnmatchedError(_not_of_a_strategy(used, self._saved, target))
        return pairs, optimizers


def _does_not_fit(difference: str, path: str) -> str:
    return (
        f"A variable was made after the checkpoint {path} was restored, which does not fit it: "
        f"{difference}. If it is to start from its new value, restore only the other parts of the "
        "model: rx.train.Checkpoint(part=model.part).restore(path)."
    )


def _not_of_a_strategy(used: object, saved: Saved, target: int) -> str:
    name = getattr(used, "path", used)
    return (
        f"{saved.objects[target]['path']} of the checkpoint {saved.path} was to be restored when "
        f"the model makes it; but {name!r} was made outside of a strategy's scope. Make the "
        "model inside `with strategy.scope():` (rx.distribute.OneDeviceStrategy will do)."
    )


def _weak(value: object) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # dictionaries, lists: these are found while the checkpoint itself exists
        return lambda: None
