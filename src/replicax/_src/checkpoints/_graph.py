"""What a program has to save: its objects, from the root along names to the things with a value.

As TensorFlow's walk over trackable objects: attributes of users' objects, items of dictionaries,
lists and tuples lead further; variables, the positions of iterators and, where they are given to
the checkpoint itself, arrays and numbers are what there is to save. An object that is reached by
two names is one object.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import numpy as np

from replicax._src._arrays import is_number
from replicax._src.context import has_strategy, let_libraries_join
from replicax._src.training import Metric, Optimizer, slots_of
from replicax._src.variable import Variable, root_of

_OPAQUE = frozenset(sys.stdlib_module_names) | {
    *{"builtins", "jax", "jaxlib", "ml_dtypes", "numpy", "optax", "replicax", "tensorstore"}
}

CALL_COUNTER = "checkpointed_runs"  # of preemption handlers; TensorFlow's name in a checkpoint


@final
class Kind(enum.StrEnum):
    """What a thing is to a checkpoint; the texts are in `objects.json`."""

    OBJECT = "object"  # leads to others, and has no value of its own
    VARIABLE = "variable"
    ARRAY = "array"
    NUMBER = "number"
    STATE = "state"  # that of an object with `get_state` and `set_state`, such as an iterator


@final
@dataclasses.dataclass
class Slot:
    """A variable of an optimizer's state."""

    owner: int | None  # the node of the variable it belongs to, if that is in the graph
    position: int | None  # of that variable among those of the optimizer
    label: str  # which part of the state
    node: int


@final
@dataclasses.dataclass
class GraphNode:
    """An object of the program, or something in it that has a value."""

    kind: Kind
    value: Any
    path: str
    children: dict[str, int] = dataclasses.field(default_factory=dict)
    slots: list[Slot] = dataclasses.field(default_factory=list)
    put: Callable[[Any], None] | None = None  # sets another where it cannot be changed itself

    @property
    def is_leaf(self) -> bool:
        return self.kind != Kind.OBJECT


class Spelling:
    """How what lies below an object is called in a checkpoint: here, as we write them."""

    def children_of(self, value: object) -> Iterator[tuple[str, Any, Callable[[Any], None] | None]]:
        """Yields what is directly below an object: name, child, how to put another in its place."""
        return children_of(value)

    def slots_of(
        self, value: object
    ) -> list[tuple[Variable | None, int | None, str, Variable]] | None:
        """Returns each part of an optimizer's state, as `training.slots_of`; None of others."""
        return slots_of(value) if isinstance(value, Optimizer) else None

    def labels_of(self, label: str) -> tuple[str, ...]:
        """Returns what a part of an optimizer's state may be called."""
        return (label,)

    def may_lack(self, label: str) -> bool:
        """Returns whether a part of an optimizer's state need not be there."""
        return False

    def is_same_dtype(self, mine: str, theirs: str) -> bool:
        """Returns whether a value of the one can be that of the other."""
        return mine == theirs


OURS = Spelling()


def walk(root: object, spelling: Spelling = OURS) -> list[GraphNode]:
    """Returns the nodes reachable from `root`, which is the first; nearer ones come first."""
    # A Keras model may be the first that we see of Keras.
    let_libraries_join(in_time=not has_strategy())
    nodes = [GraphNode(Kind.OBJECT, root, "")]
    known: dict[int, int] = {id(root): 0}
    alive: list[Any] = []  # what was made on the way keeps its identity until we are done
    given: list[GraphNode] = []  # objects in the checkpoint itself
    # `plain`: only dictionaries and lists lie between the checkpoint and here.
    queue = deque([(0, isinstance(root, dict | list) or _is_checkpoint(root))])
    while queue:
        index, plain = queue.popleft()
        parent = nodes[index]
        for name, child, put in spelling.children_of(parent.value):
            kind = kind_of(child, plain)
            if kind is None:
                continue
            alive.append(child)
            if kind == Kind.VARIABLE:
                child = root_of(child)
            identity = id(child)
            # What cannot be changed has no identity.
            one_of_many = kind == Kind.NUMBER or isinstance(child, jax.Array)
            if one_of_many or identity not in known:
                path = f"{parent.path}/{_escaped(name)}" if parent.path else _escaped(name)
                known[identity] = len(nodes)
                nodes.append(GraphNode(kind, child, path, put=put))
                if kind == Kind.OBJECT:
                    inner = plain and isinstance(child, dict | list) or _is_checkpoint(child)
                    queue.append((known[identity], inner))
                    given += [nodes[-1]] if plain else []
            parent.children[name] = known[identity]
    _add_slots(nodes, known, spelling)
    kept = _without_empty_branches(nodes)
    paths = {node.path for node in kept}
    for node in given:
        if node.path not in paths:
            require_no_arrays(f"`{node.path}`", node.value)
    return kept


def variables_in(root: object) -> list[Variable]:
    """Returns the variables that a checkpoint of `root` would save."""
    return [variable for _, variable in named_variables_in(root)]


def named_variables_in(root: object) -> list[tuple[str, Variable]]:
    """Returns the same, each with its path from `root`."""
    return [(node.path, node.value) for node in walk(root) if node.kind == Kind.VARIABLE]


def children_of(value: object) -> Iterator[tuple[str, Any, Callable[[Any], None] | None]]:
    """Yields what is directly below an object: name, child, how to put another in its place."""
    own = getattr(type(value), "_checkpoint_children", None)
    if own is not None:
        put = getattr(type(value), "_checkpoint_put", setattr)
        for name, child in own(value).items():
            yield name, child, lambda new, name=name: put(value, name, new)
    elif isinstance(value, dict):
        names: dict[str, Any] = {}
        for key, child in list(value.items()):
            name = str(key)
            if names.setdefault(name, key) is not key and names[name] != key:
                raise ValueError(
                    f"A dictionary has the keys {names[name]!r} and {key!r}, which are the same "
                    "in a checkpoint. Rename one of them."
                )
            yield name, child, lambda new, key=key: value.__setitem__(key, new)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield str(index), child, lambda new, index=index: value.__setitem__(index, new)
    elif isinstance(value, tuple):
        fields = getattr(value, "_fields", None) or map(str, range(len(value)))
        for name, child in zip(fields, value):
            yield name, child, None
    else:
        for name, child in _attributes(value):
            yield name, child, lambda new, name=name: setattr(value, name, new)


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def kind_of(value: object, plain: bool) -> Kind | None:
    """Returns what a value is to a checkpoint; None if there is nothing to save in it."""
    if isinstance(value, Variable):
        return Kind.VARIABLE
    if isinstance(value, jax.Array | np.ndarray):
        return Kind.ARRAY if plain and (isinstance(value, jax.Array) or is_number(value)) else None
    if is_number(value):
        return Kind.NUMBER if plain else None
    if has_state(value):
        return Kind.STATE
    if isinstance(value, dict | list | tuple | Optimizer | Metric | types.SimpleNamespace):
        return Kind.OBJECT
    if hasattr(type(value), "_checkpoint_children"):
        return Kind.OBJECT
    return Kind.OBJECT if _is_users(value) else None


def has_state(value: object) -> bool:
    """Returns whether an object says its state itself, as iterators over data sets do."""
    kind = type(value)
    return callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None))


def is_trackable(value: object) -> bool:
    """Returns whether a value can be given to a checkpoint."""
    return kind_of(value, True) is not None


def _is_users(value: object) -> bool:
    kind = type(value)
    if isinstance(value, type | types.ModuleType):
        return False
    if kind.__module__.partition(".")[0] in _OPAQUE:  # functions are of `builtins`
        return False
    return hasattr(value, "__dict__") or hasattr(kind, "__slots__")


def _is_checkpoint(value: object) -> bool:
    return bool(getattr(type(value), "_is_checkpoint", False))


def _escaped(name: str) -> str:
    return name.replace(".", "..").replace("/", ".S")


def _add_slots(nodes: list[GraphNode], known: dict[int, int], spelling: Spelling) -> None:
    for node, slots in [(each, spelling.slots_of(each.value)) for each in nodes]:
        for owner, position, label, variable in slots or ():
            owned_by = None if owner is None else known.get(id(owner))
            named = position if owned_by is None else nodes[owned_by].path
            path = f"{node.path}/{label}" + ("" if named is None else f"/{named}")
            slot = known.setdefault(id(variable), len(nodes))
            if slot == len(nodes):
                nodes.append(GraphNode(Kind.VARIABLE, variable, path))
            node.slots.append(Slot(owned_by, position, label, slot))


def require_no_arrays(name: str, value: object) -> None:
    """Refuses trees of JAX, and modules of PyTorch, of which nothing would be saved."""
    if isinstance(value, dict | list):
        return
    if callable(getattr(value, "load_state_dict", None)):
        raise ValueError(
            f"{name} of a checkpoint is a {type(value).__name__}, which has a state_dict() and no "
            "variables. Nothing of it would be saved: save its state_dict() beside the checkpoint."
        )
    leaves = jax.tree_util.tree_leaves(value)
    if any(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves):
        raise ValueError(
            f"{name} of a checkpoint is a {type(value).__name__}, whose arrays cannot be saved, "
            "because they are not variables. Make them variables, with `rx.variables(tree)` in the "
            "strategy's scope, or keep them in dictionaries and lists, which the checkpoint can "
            "change."
        )


def _without_empty_branches(nodes: list[GraphNode]) -> list[GraphNode]:
    """Drops objects that lead to nothing; the root stays."""
    parents: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for child in node.children.values():
            parents.setdefault(child, []).append(index)
    wanted = {0}
    pending = [
        index
        for index, node in enumerate(nodes)
        if node.is_leaf or isinstance(node.value, Optimizer)
    ]
    while pending:
        index = pending.pop()
        if index not in wanted:
            wanted.add(index)
            pending += parents.get(index, ())
    new = {old: position for position, old in enumerate(sorted(wanted))}
    kept = []
    for old in sorted(wanted):
        node = nodes[old]
        node.children = {n: new[c] for n, c in node.children.items() if c in new}
        for slot in node.slots:
            slot.owner = None if slot.owner is None else new[slot.owner]
            slot.node = new[slot.node]
        kept.append(node)
    return kept
