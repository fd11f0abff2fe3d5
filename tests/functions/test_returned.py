"""Structures of users' own classes: what replicas return is merged, and no tracer gets out."""

import collections
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from tests.replicas import context, parts_of, two_replicas


class Outputs(dict):  # type: ignore[type-arg]
    pass


class Pair(collections.namedtuple("Pair", ["a", "b"])):
    def __new__(cls, both: Any) -> Any:
        return super().__new__(cls, *both)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda x: Outputs(a=x, b=x + 1),
    "user_dict": lambda x: collections.UserDict(a=x, b=x + 1),
    "named_tuple": lambda x: Pair((x, x + 1)),
}


@pytest.mark.parametrize("kind", MAKERS)
@two_replicas
def test_what_replicas_return_is_merged(strategy: Any, executor: Any, kind: str):
    def replica_fn(given: Any) -> Any:
        (first, *_) = given.values() if kind != "named_tuple" else given
        return MAKERS[kind](first + context().replica_id_in_sync_group)

    given = MAKERS[kind](np.float32(1.0))
    merged = executor.run(strategy, replica_fn, (given,))
    assert type(merged) is type(given)
    a, b = merged.values() if kind != "named_tuple" else merged
    assert [*parts_of(strategy, a), *parts_of(strategy, b)] == [1.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", MAKERS)
def test_no_tracer_leaves_a_function(kind: str):
    step = rx.function(MAKERS[kind])
    for x in (1.0, 5.0):
        result = step(x)
        values = result if kind == "named_tuple" else result.values()
        assert [float(value) for value in values] == [x, x + 1]
        assert all(isinstance(value, jax.Array) for value in values)
