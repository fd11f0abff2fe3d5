"""Walking nested structures: what is a node, what is a leaf, and how to put it back together.

JAX's pytrees with four differences that `tf.distribute` programs rely on: `None` is a leaf (a
replica may return nothing), dicts keep their order and may have keys that do not sort, mappings of
other classes and dataclasses that nobody registered are nodes too, and named tuples are put
together by their `_make`.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from typing import Any, TypeVar, final

import jax

from replicax._src._typing import PyTree

IsLeaf = Callable[[Any], bool]
Rebuild = Callable[[Sequence[Any]], Any]
Level = tuple[Sequence[Any], Rebuild, tuple[Any, ...]]

_LEAF = jax.tree_util.tree_structure(0)


T = TypeVar("T")


def _never(_: object) -> bool:
    return False


def one_level(node: PyTree, is_leaf: IsLeaf = _never) -> Level | None:
    """Returns `(children, rebuild, signature)` of a node, or None for a leaf.

    Two nodes may be walked together if their signatures are equal.
    """
    if node is None or is_leaf(node) or isinstance(node, Iterator):
        return None
    kind = type(node)
    if kind is list:
        return node, list, (list, len(node))
    if kind is tuple:
        return node, tuple, (tuple, len(node))
    if kind is dict:
        keys = tuple(node)
        return list(node.values()), lambda new: dict(zip(keys, new, strict=True)), (dict, set(keys))
    if kind is collections.defaultdict:
        keys, factory = tuple(node), node.default_factory
        return (
            list(node.values()),
            lambda new: collections.defaultdict(factory, zip(keys, new, strict=True)),
            (kind, factory, set(keys)),
        )
    if isinstance(node, MappingView):  # dict.values() and the like, of which JAX warns
        return None
    children, treedef = jax.tree_util.tree_flatten(node, is_leaf=lambda part: part is not node)
    if treedef != _LEAF:
        rebuild = treedef.unflatten
        if _is_named_tuple(node) and all(map(operator.is_, node, children)):
            rebuild = functools.partial(_rebuild_named_tuple, node)
        # The type first: a PyTreeDef takes itself for equal to what is none.
        return children, rebuild, (kind, treedef)
    if isinstance(node, Mapping):
        keys = tuple(node)
        return (
            [node[key] for key in keys],
            lambda new: _rebuild_mapping(node, zip(keys, new, strict=True)),
            (kind, set(keys)),
        )
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = dataclasses.fields(node)
        names = tuple(field.name for field in fields if hasattr(node, field.name))
        return (
            [getattr(node, name) for name in names],
            lambda new: _rebuild_dataclass(node, names, new),
            (kind, names),
        )
    return None


def _is_named_tuple(node: object) -> bool:
    return isinstance(node, tuple) and hasattr(node, "_make")


def is_made_otherwise(node: object) -> bool:
    """Returns whether this is a named tuple that its class does not make from its fields.

    JAX takes it for one that is.
    """
    maker = getattr(type(node).__new__, "__module__", None) or ""
    return _is_named_tuple(node) and not maker.startswith("namedtuple_")


def _rebuild_named_tuple(node: Any, children: Sequence[Any]) -> Any:
    new = node._make(children)  # its `__new__` may have other parameters than fields
    if hasattr(node, "__dict__"):
        vars(new).update(vars(node))
    return new


def _rebuild_mapping(node: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    if isinstance(node, dict):  # whatever else it holds is kept
        new = copy.copy(node)
        for key, value in items:  # `update` of a Counter adds
            new[key] = value
        return new
    found = dict(items)
    try:
        return type(node)(found)
    except Exception as error:
        raise TypeError(
            f"A {type(node).__name__} with the keys {list(found)} cannot be put together again: "
            f"{type(node).__name__}(dict) fails ({error}). Use a dict, or register the class "
            "with jax.tree_util.register_pytree_node."
        ) from error


def _rebuild_dataclass(node: T, names: Sequence[str], children: Sequence[Any]) -> T:
    new = copy.copy(node)
    for name, child in zip(names, children, strict=True):
        object.__setattr__(new, name, child)  # also where the dataclass is frozen
    return new


@final
class Ordered(dict[Any, Any]):
    """A dict that JAX's transformations hand on in its own order; they sort plain ones."""


jax.tree_util.register_pytree_node(
    Ordered, lambda node: (node.values(), tuple(node)), lambda keys, new: Ordered(zip(keys, new))
)


def in_order(tree: PyTree) -> Any:
    """Returns `tree` with its dicts as JAX keeps their order."""
    if type(tree) is dict:
        return Ordered((key, in_order(value)) for key, value in tree.items())
    return _with_children(in_order, tree)


def as_dicts(tree: PyTree) -> Any:
    """Returns what `in_order` was made from."""
    if type(tree) is Ordered:
        return {key: as_dicts(value) for key, value in tree.items()}
    return _with_children(as_dicts, tree)


def _with_children(fn: Callable[[Any], Any], tree: PyTree) -> Any:
    level = one_level(tree)
    return tree if level is None else level[1]([fn(child) for child in level[0]])


def map_structure(fn: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = _never) -> Any:
    """Returns `fn` of every leaf, in a structure of the same shape."""
    level = one_level(tree, is_leaf)
    if level is None:
        return fn(tree)
    children, rebuild, _ = level
    new = [map_structure(fn, child, is_leaf) for child in children]
    # What did not change is handed on as it is: a replica may keep its state in a dataclass.
    return tree if all(a is b for a, b in zip(new, children)) else rebuild(new)


def map_together(
    fn: Callable[..., Any],
    trees: Sequence[Any],
    is_leaf: IsLeaf = _never,
) -> Any:
    """Returns `fn(leaf of tree 0, leaf of tree 1, ...)` for all leaves.

    Raises:
      StructureMismatch: the trees differ.
    """
    levels = [one_level(tree, is_leaf) for tree in trees]
    first = levels[0]
    if first is None:
        if any(level is not None for level in levels):
            raise StructureMismatch(trees)
        return fn(*trees)
    if any(level is None or level[2] != first[2] for level in levels):
        raise StructureMismatch(trees)
    ordered = [_children_like(trees[0], tree, level) for tree, level in zip(trees, levels) if level]
    return first[1]([map_together(fn, group, is_leaf) for group in zip(*ordered, strict=True)])


def _children_like(first: PyTree, other: PyTree, level: Level) -> Sequence[Any]:
    # Mappings with equal keys in another order are the same structure.
    children, _, signature = level
    return [other[key] for key in first] if isinstance(signature[-1], set) else children


def leaves_of(tree: PyTree, is_leaf: IsLeaf = _never) -> Iterator[Any]:
    """Yields all leaves, in order."""
    level = one_level(tree, is_leaf)
    if level is None:
        yield tree
    else:
        for child in level[0]:
            yield from leaves_of(child, is_leaf)


def flatten(tree: PyTree, is_leaf: IsLeaf = _never) -> tuple[list[Any], Rebuild]:
    """Returns all leaves, and a function that puts new ones in their places."""

    def rebuild(new: Sequence[Any]) -> Any:
        replacements = iter(new)
        return map_structure(lambda _: next(replacements), tree, is_leaf)

    return list(leaves_of(tree, is_leaf)), rebuild


def flatten_sorted(tree: PyTree, is_leaf: IsLeaf = _never) -> tuple[list[Any], Rebuild, str]:
    """Works as `flatten`, with the items of dicts in an order of their own.

    The third item is a text for the structure: equal texts, equal meaning of the leaves.
    """
    places = list(_places(tree, "", is_leaf))
    order = sorted(range(len(places)), key=places.__getitem__)
    leaves, rebuild = flatten(tree, is_leaf)

    def rebuild_sorted(new: Sequence[Any]) -> Any:
        back = [None] * len(order)
        for position, value in zip(order, new, strict=True):
            back[position] = value
        return rebuild(back)

    return [leaves[i] for i in order], rebuild_sorted, " ".join(places[i] for i in order) or "it"


def _places(tree: PyTree, place: str, is_leaf: IsLeaf) -> Iterator[str]:
    """Yields for each leaf a text that says where it is."""
    level = one_level(tree, is_leaf)
    if level is None:
        yield place
        return
    keys = list(tree) if isinstance(tree, Mapping) else range(len(level[0]))
    if len(keys) != len(level[0]):
        keys = range(len(level[0]))
    kind = "" if type(tree) in (dict, list, tuple) else type(tree).__name__
    opening = "(" if isinstance(tree, tuple) else "["
    for key, child in zip(keys, level[0]):
        yield from _places(child, f"{place}{kind}{opening}{key!r}]", is_leaf)


class StructureMismatch(Exception):
    """Internal: trees that should be alike are not. The caller says whose they are."""

    def __init__(self, trees: Sequence[Any]):
        super().__init__("structures differ")
        self.trees = tuple(trees)


def describe(tree: PyTree) -> str:
    """Returns a short text for error messages: the structure, with arrays as dtype[shape]."""
    level = one_level(tree)
    if level is None:
        if hasattr(tree, "shape") and hasattr(tree, "dtype"):
            return f"{tree.dtype}[{','.join(map(str, tree.shape))}]"
        return repr(tree) if isinstance(tree, int | float | str | None) else type(tree).__name__
    children = level[0]
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {describe(c)}" for k, c in zip(tree, children)) + "}"
    body = ", ".join(describe(child) for child in children)
    if type(tree) is list:
        return f"[{body}]"
    if type(tree) is tuple:
        return f"({body},)" if len(children) == 1 else f"({body})"
    return f"{type(tree).__name__}({body})"
