"""Data sets on the host: the laws of shuffled orders, and options."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._library import Library
from .._pipelines import HOST_ONLY, elements, with_policy
from .._registry import scenario


def _range(lib: Library, *arguments: Any, **options: Any) -> Any:
    return lib.data.Dataset.range(*arguments, **options)


def _slices(lib: Library, tensors: Any) -> Any:
    return lib.data.Dataset.from_tensor_slices(tensors)


def _pairs(lib: Library, count: int = 5) -> Any:
    return _slices(lib, (np.arange(count), np.arange(count, dtype="float32") * 10))


def _columns(lib: Library, count: int = 5) -> Any:
    return _slices(lib, {"a": np.arange(count), "b": np.arange(count * 2).reshape(count, 2)})


# Shuffling: laws, not orders.


def _order(dataset: Any) -> list[int]:
    return [int(item) for item in dataset]


@scenario(
    buffer=(2, 5, 30, 100), seed=(None, 7), reshuffle=(None, True, False), eager_only=HOST_ONLY
)
def shuffle_over_iterations(lib: Library, buffer: int, seed: int | None, reshuffle: Any) -> Any:
    def make() -> Any:
        return _range(lib, 30).shuffle(buffer, seed, reshuffle_each_iteration=reshuffle)

    dataset = make()
    first, second = _order(dataset), _order(dataset)
    return {
        "is a permutation": sorted(first) == sorted(second) == list(range(30)),
        "changes the order": first != list(range(30)),
        "same in the next iteration": first == second,
        "same in a new data set": seed is not None and _order(make()) == first,
        "no further than the buffer": all(
            item - position < buffer for position, item in enumerate(first)
        ),
    }


@scenario(seed=(None, 7), reshuffle=(None, True, False), eager_only=HOST_ONLY)
def shuffle_then_repeat(lib: Library, seed: int | None, reshuffle: Any) -> Any:
    def make() -> Any:
        shuffled = _range(lib, 30).shuffle(30, seed=seed, reshuffle_each_iteration=reshuffle)
        return shuffled.repeat(3)

    dataset = make()
    order = _order(dataset)
    epochs = [order[start : start + 30] for start in (0, 30, 60)]
    return {
        "whole epochs": all(sorted(epoch) == list(range(30)) for epoch in epochs),
        "different epochs": len({tuple(epoch) for epoch in epochs}),
        "same in the next iteration": _order(dataset) == order,
        "same in a new data set": seed is not None and _order(make()) == order,
    }


@scenario(seed=(None, 7), eager_only=HOST_ONLY)
def repeat_then_shuffle(lib: Library, seed: int | None) -> Any:
    order = _order(_range(lib, 20).repeat(2).shuffle(40, seed=seed))
    return {
        "every row twice": sorted(order) == sorted([*range(20), *range(20)]),
        "whole epochs": sorted(order[:20]) == list(range(20)),
    }


@scenario(eager_only=HOST_ONLY)
def shuffle_then_cache(lib: Library) -> Any:
    dataset = _range(lib, 30).shuffle(30).cache()
    return {"same in the next iteration": _order(dataset) == _order(dataset)}


@scenario(eager_only=HOST_ONLY)
def shuffle_with_other_seeds(lib: Library) -> Any:
    orders = {tuple(_order(_range(lib, 30).shuffle(30, seed=seed))) for seed in (1, 2, 3)}
    return {"different orders": len(orders)}


@scenario(case=("pairs", "columns", "rows", "strings"), eager_only=HOST_ONLY)
def shuffle_of_structures(lib: Library, case: str) -> Any:
    makers = {
        "pairs": lambda: _pairs(lib, 8),
        "columns": lambda: _columns(lib, 8),
        "rows": lambda: _slices(lib, np.arange(16).reshape(8, 2)),
        "strings": lambda: _slices(lib, [f"text {index}" for index in range(8)]),
    }
    shuffled = elements(lib, lambda: makers[case]().shuffle(8, seed=3))
    return sorted(shuffled, key=str)


@scenario(eager_only=HOST_ONLY)
def shuffle_of_batches(lib: Library) -> Any:
    batches = elements(lib, lambda: _range(lib, 20).batch(3).shuffle(10, seed=3))
    return {"batches": sorted(batches, key=str)}


# Options.


@scenario(eager_only=HOST_ONLY)
def options(lib: Library) -> Any:
    policies = lib.data.experimental.AutoShardPolicy

    def policy(dataset: Any) -> str:
        return policies(dataset.options().experimental_distribute.auto_shard_policy).name

    plain = lib.data.Dataset.range(3)
    off = with_policy(lib, plain, "OFF")
    return {
        "policies": {each.name: each.value for each in policies},
        "default": policy(plain),
        "set": policy(off),
        "the first data set": policy(plain),
        "after batch": policy(off.batch(2)),
        "after zip": policy(lib.data.Dataset.zip((plain, off))),
        "after concatenate": policy(plain.concatenate(off)),
        "the later wins": policy(with_policy(lib, off, "DATA")),
        "empty options keep it": policy(off.with_options(lib.data.Options())),
        "elements": elements(lib, lambda: off),
        "spec": lib.spec(off.element_spec),
        "SHARD_HINT": lib.data.experimental.SHARD_HINT,
        "AUTOTUNE": lib.data.AUTOTUNE,
        "INFINITE_CARDINALITY": int(lib.data.INFINITE_CARDINALITY),
        "UNKNOWN_CARDINALITY": int(lib.data.UNKNOWN_CARDINALITY),
    }


@scenario(
    case=("an unknown field", "an unknown inner field", "a policy of another type", "a number"),
    eager_only=HOST_ONLY,
)
def options_refused(lib: Library, case: str) -> Any:
    def act() -> None:
        chosen = lib.data.Options()
        match case:
            case "an unknown field":
                chosen.nonsense = 1
            case "an unknown inner field":
                chosen.experimental_distribute.nonsense = 1
            case "a policy of another type":
                chosen.experimental_distribute.auto_shard_policy = "OFF"
            case "a number":
                chosen.experimental_distribute = 3

    return lib.outcome(act)


@scenario(eager_only=HOST_ONLY)
def options_compared(lib: Library) -> Any:
    one, two = lib.data.Options(), lib.data.Options()
    equal = one == two
    one.experimental_distribute.auto_shard_policy = lib.data.experimental.AutoShardPolicy.OFF
    return {"equal": equal, "after a change": one == two}
