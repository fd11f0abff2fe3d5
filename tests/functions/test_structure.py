"""The structure of a call's arguments, taken apart quickly and thoroughly."""

import collections
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.functions._structure import flatten, flatten_call


class Point(NamedTuple):
    x: Any
    y: Any


A, B = jnp.ones(2), np.ones(3)
BOTH = rx.distribute.PerReplica([1.0, 2.0])

TREES = {
    "tuple": ((A, B), {}),
    "lists": ([A, [B, BOTH]], ()),
    "none": ((None, A), {"x": None}),
    "dict": ({"a": A, "b": (B, 1)},),
    "unsorted dict": ({"b": A, "a": None, "c": B},),
    "dict in a list in a dict": ({"a": [{"z": A, "y": B}]},),
    "other keys": ({2: A, 1: B},),
    "keys of two kinds": ({1: A, "a": B},),
    "named tuple": (Point(A, None), {"p": Point(1, 2)}),
    "ordered dict": (collections.OrderedDict(b=A, a=B),),
    "numbers": (np.float32(1), 2, "text", b"text", 1j, True),
    "an object": (object(), A),
    "a specification": (jax.ShapeDtypeStruct((2,), jnp.float32),),
}


@pytest.mark.parametrize("name", TREES)
def test_a_call_is_taken_apart_as_everything_else_is(name: str):
    tree = TREES[name]
    leaves, rebuild, _ = flatten_call(tree)
    expected, rebuild_expected, _ = flatten(tree)
    assert [*map(id, leaves)] == [*map(id, expected)]
    numbers = list(range(len(leaves)))
    assert repr(rebuild(numbers)) == repr(rebuild_expected(numbers))


def test_structures_that_differ_have_different_keys():
    a, b = A, B
    structures = [
        (a, b), [a, b], (a, (b,)), ((a, b),), ((a,), b), {"a": a, "b": b}, {"b": a, "a": b},
        {"a": a, "c": b}, ({"a": a}, b), (a, b, None), (a, None, b), (a, "b", b), ({}, a, b),
        {"a": (a, b)}, {"a": [a, b]}, {"a": a, "b": {"a": b}}, {1: a, 2: b}, {1: a, "b": b},
    ]  # fmt: skip
    assert len({flatten_call(each)[2] for each in structures}) == len(structures)


def test_kinds_of_leaves_are_no_part_of_the_structure():
    keys = [
        flatten_call((leaf, {"a": leaf}))[2] for leaf in (A, B, np.float32(1), BOTH, 1, object())
    ]
    assert len(set(keys)) == 1
