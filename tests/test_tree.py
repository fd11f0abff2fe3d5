"""Walking nested structures: None is a leaf, dicts keep their order, dataclasses are nodes."""

import collections
import dataclasses
from typing import Any

import jax.numpy as jnp
import pytest

from replicax import _tree


@dataclasses.dataclass(frozen=True)
class Box:
    a: Any
    b: Any = None


def test_flatten_and_rebuild():
    tree = {"z": [1, None], 3: (Box(2, Box(3)), collections.OrderedDict(k=4))}
    leaves, rebuild = _tree.flatten(tree)
    assert leaves == [1, None, 2, 3, None, 4]
    assert rebuild(leaves) == tree
    assert list(rebuild("abcdef")) == ["z", 3]


def test_map_together_needs_equal_structures():
    assert _tree.map_together(lambda a, b: a + b, [{"x": 1, "y": 2}, {"y": 20, "x": 10}]) == {
        "x": 11,
        "y": 22,
    }
    for other in ({"x": 1}, [1, 2], {"x": 1, "y": [2]}, None):
        with pytest.raises(_tree.StructureMismatch):
            _tree.map_together(lambda a, b: a, [{"x": 1, "y": 2}, other])


def test_descriptions_are_short():
    tree = {"x": jnp.ones((2, 3)), "y": [1, None, "s"], "z": (object(),)}
    assert _tree.describe(tree) == "{'x': float32[2,3], 'y': [1, None, 's'], 'z': (object,)}"
    assert _tree.describe(Box(1.5)) == "Box(1.5, None)"


def test_a_stop_at_leaves():
    seen = _tree.map_structure(
        lambda leaf: type(leaf), [(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)
    )
    assert seen == [tuple, int]
