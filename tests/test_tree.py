"""Walking nested structures: None is a leaf, dicts keep their order, dataclasses are nodes."""

import collections
import dataclasses
import types
from typing import Any

import jax.numpy as jnp
import pytest

from replicax._src import _tree


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


def test_a_defaultdict_keeps_its_order_its_factory_and_keys_that_do_not_sort():
    tree = collections.defaultdict(list, {"b": 1, 7: 2, "a": [3]})
    leaves, rebuild = _tree.flatten(tree)
    assert leaves == [1, 2, 3]
    again = rebuild([4, 5, 6])
    assert list(again.items()) == [("b", 4), (7, 5), ("a", [6])]
    assert type(again) is collections.defaultdict and again["new"] == []
    assert list(tree.values()) == [1, 2, [3]]
    other = collections.defaultdict(list, {7: 20, "a": [30], "b": 10})
    summed = _tree.map_together(lambda a, b: a + b, [tree, other])
    assert list(summed.items()) == [("b", 11), (7, 22), ("a", [33])]


class Tagged(dict):  # type: ignore[type-arg]
    """A dict with its own constructor, and more than its items."""

    def __init__(self, tag: str, **items: Any):
        super().__init__(items)
        self.tag = tag


def test_mappings_of_other_classes_are_nodes():
    tree = {"own": Tagged("t", b=1, a=2), "user": collections.UserDict(x=3)}
    tree["count"] = collections.Counter("aab")
    tree["proxy"] = types.MappingProxyType({"k": 4})
    leaves, rebuild = _tree.flatten(tree)
    assert leaves == [1, 2, 3, 2, 1, 4]
    again = rebuild([10, 20, 30, 50, 60, 40])
    assert [type(value) for value in again.values()] == [type(value) for value in tree.values()]
    assert (again["own"].tag, list(again["own"].items())) == ("t", [("b", 10), ("a", 20)])
    assert (again["user"]["x"], again["proxy"]["k"], again["count"]["a"]) == (30, 40, 50)
    assert tree["own"] == {"b": 1, "a": 2}
    summed = _tree.map_together(
        lambda a, b: a + b, [Tagged("t", b=1, a=2), Tagged("u", a=20, b=10)]
    )
    assert list(summed.items()) == [("b", 11), ("a", 22)]
    with pytest.raises(_tree.StructureMismatch):
        _tree.map_together(lambda *_: None, [Tagged("t", a=1), {"a": 1}])


class Halves(collections.namedtuple("Halves", ["left", "right"])):
    """A named tuple that is made of one thing."""

    origin: str

    def __new__(cls, both: Any) -> Any:
        new = super().__new__(cls, both[0], both[1])
        new.origin = "one thing"
        return new


def test_a_named_tuple_with_its_own_new_is_put_together_from_its_fields():
    leaves, rebuild = _tree.flatten(Halves("ab"))
    assert leaves == ["a", "b"]
    again = rebuild(["c", "d"])
    assert type(again) is Halves and again == ("c", "d")
    assert again.origin == "one thing"


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
