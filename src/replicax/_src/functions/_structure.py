"""The structure of arguments and results: their leaves, how they are put back, and a key for it.

A call asks for the leaves and the key alone, so that the usual structures (tuples, lists and dicts
of arrays and values) are walked through by hand.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, final

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._jax_internals import ConcreteArray
from replicax._src._typing import PyTree
from replicax._src.functions._keys import constant_key
from replicax._src.values import Mirrored, PerReplica, is_leaf

Flat = tuple[list[Any], Callable[[Sequence[Any]], Any], Any]
_LEAF = object()
_USUAL_LEAVES = frozenset({ConcreteArray, np.ndarray, PerReplica, Mirrored, bool, int, float, str})


class _NotUsual(Exception):
    """Internal: a structure with something else in it."""


def flatten_call(tree: PyTree) -> Flat:
    """`flatten` for a call, which needs little more than the leaves and the key."""
    leaves: list[Any] = []
    try:
        structure = _usual_structure(tree, leaves)
    except _NotUsual:
        return flatten(tree)
    return leaves, _LateRebuild(tree), structure


@final
class _LateRebuild:
    """Puts leaves in their places; prepared when it is first called, which most calls never do."""

    __slots__ = ("_rebuild", "_tree")

    def __init__(self, tree: PyTree):
        self._tree = tree
        self._rebuild: Callable[[Sequence[Any]], Any] | None = None

    def __call__(self, leaves: Sequence[Any]) -> Any:
        if self._rebuild is None:
            self._rebuild = flatten(self._tree)[1]
        return self._rebuild(leaves)


def _usual_structure(tree: Any, leaves: list[Any]) -> Hashable:
    """Returns a key for the structure; appends the leaves in the order in which `flatten` has them.

    Raises:
      _NotUsual: there is another kind of structure in it.
    """
    kind = type(tree)
    if kind in _USUAL_LEAVES:
        leaves.append(tree)
        return _LEAF
    if kind is tuple or kind is list:
        return (kind, *[_usual_structure(child, leaves) for child in tree])
    if kind is dict:
        if not tree:  # most calls have no arguments by name
            return (kind,)
        if any(type(name) is not str for name in tree) or not _is_sorted(tree):
            raise _NotUsual
        return (kind, *tree, *[_usual_structure(child, leaves) for child in tree.values()])
    if kind is NoneType:
        return kind
    if _tree.one_level(tree, is_leaf) is not None:
        raise _NotUsual
    leaves.append(tree)
    return _LEAF


def flatten(tree: PyTree, is_leaf: Callable[[Any], bool] = is_leaf) -> Flat:
    """Returns all leaves, a function that puts others in their places, and a key for the structure.

    JAX's own walk, which is fast, where it sees what ours does: it sorts dicts.
    """
    in_order = True
    names: list[Any] = []  # of dicts with other keys than text: to JAX, 1 is True

    def stop(value: object) -> bool:
        nonlocal in_order
        if isinstance(value, dict):
            in_order = in_order and _is_sorted(value)
            if any(type(name) is not str for name in value):
                names.append(_names_key(value))
        elif _tree.is_made_otherwise(value):
            in_order = False
        return is_leaf(value) or isinstance(value, Iterator)

    try:
        leaves, structure = jax.tree_util.tree_flatten(tree, is_leaf=stop)
    except (TypeError, ValueError):  # a dict whose keys do not sort
        leaves = None
    else:
        if in_order and not any(map(_is_node_of_ours, leaves)):
            return leaves, structure.unflatten, (structure, *names) if names else structure
    leaves = list(_tree.leaves_of(tree, is_leaf))
    skeleton = _tree.map_structure(lambda _: _HOLE, tree, is_leaf)  # it may outlive the leaves
    return leaves, _tree.flatten(skeleton)[1], _structure_key(skeleton)


_HOLE = object()


def _is_node_of_ours(leaf: object) -> bool:
    return dataclasses.is_dataclass(leaf) or isinstance(leaf, Mapping)


def _is_sorted(mapping: dict[Any, Any]) -> bool:
    if len(mapping) < 2:
        return True
    keys = list(mapping)
    try:
        return all(map(operator.le, keys, keys[1:]))
    except TypeError:
        return False


def _structure_key(skeleton: PyTree) -> Any:
    level = _tree.one_level(skeleton)
    if level is None:
        return None
    kind = level[2]
    if isinstance(skeleton, Mapping):
        kind = (_names_key(skeleton), getattr(skeleton, "default_factory", None))
    return (type(skeleton), kind, *(_structure_key(child) for child in level[0]))


def _names_key(mapping: Mapping[Any, Any]) -> Any:
    return tuple(map(constant_key, mapping))
