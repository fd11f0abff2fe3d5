"""Regrouping: one structure per replica to one of values, and back."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src import _tree
from replicax._src.values import is_leaf, regroup, select_replica
from tests.replicas import mirrored, several_replicas


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Box:
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class FrozenBox:
    first: Any
    second: Any


@dataclasses.dataclass(slots=True)
class SlottedBox:
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Registered:
    """A node that JAX knows, with something that is no child."""

    def __init__(self, child: Any, label: str):
        self.child, self.label = child, label

    def tree_flatten(self) -> tuple[Any, str]:
        return (self.child,), self.label

    @classmethod
    def tree_unflatten(cls, aux: str, children: Any) -> Any:
        return cls(children[0], aux)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registered) and (self.child, self.label) == (
            other.child,
            other.label,
        )


PAIRS: list[Callable[[Any, Any], Any]] = [Point, Box, FrozenBox, SlottedBox]
KEYS = st.sampled_from([0, 1, "a", "b", None, (1, 2), 2.5])
LEAVES = st.sampled_from(["leaf", None])


def _extend(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(KEYS, children, max_size=3),
        st.dictionaries(st.sampled_from("xyz"), children, max_size=3).map(collections.OrderedDict),
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(PAIRS), children, children),
        children.map(lambda child: Registered(child, "label")),
    )


STRUCTURES = st.recursive(LEAVES, _extend, max_leaves=8)


def replica_view(template: Any, index: int) -> Any:
    """The template with every "leaf" replaced by something that only this replica has."""
    number = iter(range(1000))
    return _tree.map_structure(
        lambda leaf: None if leaf is None else f"replica {index}, leaf {next(number)}", template
    )


@given(STRUCTURES, st.integers(2, 4))
def test_selecting_a_replica_undoes_regrouping(template: Any, count: int):
    views = [replica_view(template, index) for index in range(count)]
    merged = regroup(views)
    for index, view in enumerate(views):
        assert select_replica(index, merged) == view


@given(STRUCTURES)
def test_regrouping_one_and_the_same_structure_keeps_its_leaves(template: Any):
    view = replica_view(template, 0)
    merged = regroup([view, view, view])
    assert merged == view
    ours, _ = _tree.flatten(merged, is_leaf)
    theirs, _ = _tree.flatten(view, is_leaf)
    assert all(a is b for a, b in zip(ours, theirs, strict=True))


@given(STRUCTURES)
def test_local_results_transpose_a_structure(template: Any):
    strategy = mirrored(2)
    views = [replica_view(template, index) for index in range(2)]
    merged = regroup(views)
    if _tree.one_level(merged, is_leaf) is not None:
        assert strategy.experimental_local_results(merged) == tuple(views)


@given(STRUCTURES, STRUCTURES)
def test_structures_that_differ_are_refused_and_listed(first: Any, second: Any):
    if _shape_of(first) == _shape_of(second):
        return
    views = [replica_view(first, 0), replica_view(second, 1)]
    with pytest.raises(ValueError, match="different structures") as caught:
        regroup(views)
    assert "replica 0" in str(caught.value) and "replica 1" in str(caught.value)


def _shape_of(tree: Any) -> Any:
    level = _tree.one_level(tree)
    if level is None:
        return "leaf"
    children, _, signature = level
    if isinstance(tree, dict) and type(tree) is dict:
        return ("dict", {key: _shape_of(child) for key, child in tree.items()})
    return (type(tree), str(signature), [_shape_of(child) for child in children])


def test_identity_decides_not_equality():
    one, other = np.array(1.0), np.array(1.0)
    assert regroup([one, one]) is one
    merged = regroup([one, other])
    assert isinstance(merged, rx.distribute.PerReplica)
    assert merged.values[0] is one and merged.values[1] is other


def test_always_wrapping_wraps_what_is_the_same_everywhere():
    one = object()
    merged = regroup([one, one], always_wrap=True)
    assert isinstance(merged, rx.distribute.PerReplica) and merged.values == (one, one)


def test_dicts_in_another_order_are_one_structure():
    first, second = {"a": "a0", "b": "b0"}, {"b": "b1", "a": "a1"}
    merged = regroup([first, second])
    assert list(merged) == ["a", "b"]
    assert merged["a"].values == ("a0", "a1") and merged["b"].values == ("b0", "b1")


@pytest.mark.parametrize("make", [list, tuple, dict, collections.OrderedDict])
def test_empty_containers_stay_what_they_are(make: Callable[[], Any]):
    merged = regroup([make(), make()])
    assert merged == make() and type(merged) is make


def test_components_of_a_variable_become_the_variable():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0)
    assert regroup(list(v.values)) is v
    swapped = regroup(list(reversed(v.values)))
    assert isinstance(swapped, rx.distribute.PerReplica)


def test_a_subclass_of_dict_that_jax_does_not_know_is_merged_by_item():
    class Odd(dict):
        pass

    merged = regroup([Odd(a=1), Odd(a=2)])
    assert type(merged) is Odd
    assert isinstance(merged["a"], rx.distribute.PerReplica)


def test_registered_nodes_with_different_labels_differ():
    with pytest.raises(ValueError, match="different structures"):
        regroup([Registered(1, "a"), Registered(2, "b")])


# --- through strategy.run -------------------------------------------------------------------------


@several_replicas
def test_run_hands_each_replica_its_part_of_any_structure(strategy: Any, executor: Any):
    count = strategy.num_replicas_in_sync

    def part(index: int) -> Any:
        return {
            1: np.float32(index),
            "a": [Point(np.float32(index + 1), None), FrozenBox((), np.float32(index + 2))],
        }

    values = strategy.experimental_distribute_values_from_function(
        lambda each: part(each.replica_id_in_sync_group)
    )

    def step(tree: Any, scale: float) -> Any:
        return {"again": tree, "sum": scale * (tree[1] + tree["a"][0].x + tree["a"][1].second)}

    result = executor.run(strategy, step, (values,), {"scale": 2.0})
    for index, each in enumerate(strategy.experimental_local_results(result)):
        assert each["again"] == part(index)
        assert each["sum"] == 2.0 * (3 * index + 3)
    assert len(strategy.experimental_local_results(result)) == count


def test_run_gives_back_none_as_none(strategy: Any, executor: Any):
    assert executor.run(strategy, lambda: None) is None
    assert executor.run(strategy, lambda: (None, {"a": None})) == (None, {"a": None})


@several_replicas
def test_replicas_that_return_different_structures(strategy: Any):
    def step() -> Any:
        replica = rx.distribute.get_replica_context()
        assert replica
        return [1.0] * (1 + replica.replica_id_in_sync_group)

    with pytest.raises(rx.errors.ReplicaMismatchError, match="replica 1: "):
        strategy.run(step)
