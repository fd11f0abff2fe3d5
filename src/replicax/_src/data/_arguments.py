"""Checks of what users pass to the operations of a data set, where they pass it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replicax._src._arrays import STRING, is_string
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import PyTree
from replicax._src.data._binding import bound_now
from replicax._src.data._elements import ElementSpec, Structure, leaves_with_names, map_leaves
from replicax._src.data._node import Node


def as_count(value: object, where: str, least: int | None = None) -> int:
    """Returns `value` as an integer; raises an error if it is none, or below `least`."""
    try:
        item = getattr(value, "item", None)
        exact: Any = value if item is None else item()
        number = operator.index(exact)
    except (TypeError, ValueError):
        raise TypeError(f"{where} takes an integer; got {value!r}.") from None
    if least is not None and number < least:
        raise ValueError(f"{where} takes an integer of at least {least}; got {number}.")
    return number


def as_range(limits: Sequence[object]) -> range:
    """Returns `range(*limits)`, whose numbers have 64 bits."""
    if not 1 <= len(limits) <= 3:
        raise ValueError(
            "Dataset.range takes `stop`, `start, stop` or `start, stop, step`; got "
            f"{len(limits)} arguments."
        )
    whole = [as_count(limit, "range") for limit in limits]
    if len(whole) == 3 and whole[2] == 0:
        raise ValueError("Dataset.range takes a step that is not 0.")
    numbers = range(*whole)
    most = abs(numbers.stop - numbers.start) // abs(numbers.step)
    if any(not -(2**63) <= limit < 2**63 for limit in whole) or most >= 2**63:
        raise ValueError(
            f"Dataset.range takes integers of 64 bits, and yields fewer than 2**63; got "
            f"{numbers}. For numbers without end use Dataset.range(n).repeat()."
        )
    return numbers


def as_shard(num_shards: object, index: object) -> tuple[int, int]:
    """Returns the number of shards and which of them it is."""
    shards, number = as_count(num_shards, "shard()"), as_count(index, "shard()")
    if not (shards == number == -1) and not 0 <= number < shards:
        raise ValueError(
            f"shard(num_shards, index) needs an index from 0 to num_shards - 1; got "
            f"shard({num_shards}, {index})."
        )
    return shards, number


def as_sizes(batch_size: int | Sequence[int] | np.ndarray) -> tuple[int, ...]:
    """Returns the sizes of batches that come in turn."""
    given = batch_size if isinstance(batch_size, list | tuple | np.ndarray) else [batch_size]
    sizes = tuple(as_count(size, "rebatch()", 0 if len(given) > 1 else 1) for size in given)
    if not any(sizes):
        raise ValueError(f"rebatch() needs a size above 0; got {batch_size!r}.")
    return sizes


def as_seed(seed: object, where: str) -> int | None:
    """Returns a seed as an integer; None for one that is to be drawn."""
    return None if seed is None else as_count(seed, f"{where}(seed=...)")


def as_weights(weights: object, count: int, where: str) -> list[float]:
    """Returns how often each of `count` data sets is drawn; equally often for None."""
    if weights is None:
        return [1.0] * count
    given = np.asarray(weights)
    if given.dtype.kind != "f":
        raise TypeError(f"{where} takes weights that are floats; got {weights!r}.")
    if given.shape != (count,):
        raise ValueError(
            f"{where} takes a weight for each of the {count} data sets; got {weights!r}."
        )
    if not np.isfinite(given).all():
        raise ValueError(f"{where} takes weights that are finite; got {weights!r}.")
    return given.tolist()


def as_shares(shares: object, where: str, count: int | None = None) -> tuple[float, ...]:
    """Returns the shares of classes."""
    given = np.asarray(shares)
    if given.dtype.kind not in "fiu" or given.ndim != 1 or len(given) == 0:
        raise TypeError(
            f"{where} takes the share of each class, such as [0.5, 0.5]; got {shares!r}."
        )
    if count is not None and len(given) != count:
        raise ValueError(
            f"{where} takes as many shares as target_dist has, {count}; got {len(given)}."
        )
    if not np.isfinite(given).all() or (given < 0).any() or given.sum() <= 0:
        raise ValueError(f"{where} takes shares that are 0 or more, not all 0; got {shares!r}.")
    return tuple((given / given.sum()).tolist())


def as_function(fn: object, where: str, example: str) -> Callable[..., Any]:
    """Returns a user's function, bound to what it sees now."""
    if not callable(fn):
        raise TypeError(f"{where} takes a function of an element, such as {example}; got {fn!r}.")
    return bound_now(fn)


def as_signature(types: PyTree, shapes: PyTree, signature: ElementSpec) -> Any:
    """Returns what the elements of a generator look like, from the newer or the older arguments."""
    if signature is not None:
        if types is not None or shapes is not None:
            raise TypeError(
                "from_generator takes either output_signature, or the older output_types and "
                "output_shapes; got both."
            )
        for name, leaf in leaves_with_names(signature):
            if not isinstance(leaf, TensorSpec):
                raise TypeError(
                    f"output_signature{name} must be an rx.TensorSpec(shape, dtype); got {leaf!r}."
                )
        return map_leaves(lambda leaf: TensorSpec.on_host(leaf.shape, leaf.dtype), signature)
    if types is None:
        if shapes is not None:
            raise TypeError("from_generator takes output_shapes together with output_types.")
        return None
    structure = Structure(types)
    dtypes = structure.leaves(types)
    given = [None] * len(dtypes) if shapes is None else flat_shapes(shapes, len(dtypes))
    return structure.build(
        [
            TensorSpec.on_host(shape, STRING if is_string(dtype) else np.dtype(dtype))
            for shape, dtype in zip(given, dtypes)
        ]
    )


def flat_shapes(shapes: PyTree, count: int) -> list[Any]:
    """Returns one shape for each leaf; a shape is a list or tuple of numbers and Nones."""
    found: list[Any] = []

    def walk(value: PyTree) -> None:
        if value is None or _is_shape(value):
            found.append(None if value is None else _shape(value))
        elif isinstance(value, dict):
            for child in value.values():
                walk(child)
        elif isinstance(value, list | tuple):
            for child in value:
                walk(child)
        else:
            raise TypeError(f"A shape is a list of sizes, with None for any; got {value!r}.")

    walk(shapes)
    if len(found) != count:
        raise ValueError(
            f"There must be a shape for each of the {count} array(s) of an element; got {shapes!r}."
        )
    return found


def _is_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        size is None or isinstance(size, int | np.integer) for size in value
    )


def _shape(value: Sequence[int | None]) -> tuple[int | None, ...]:
    return tuple(None if size is None or size < 0 else int(size) for size in value)


def flat_padding(
    shapes: PyTree, values: PyTree, node: Node
) -> tuple[list[Any] | None, list[Any] | None]:
    """Returns `padded_shapes` and `padding_values` of `padded_batch`, one for each leaf."""
    if shapes is None and values is None:
        return None, None
    count = len(leaves_with_names(node.spec))
    flat = None if shapes is None else flat_shapes(_in_order_of(node.spec, shapes), count)
    if values is None:
        return flat, None
    if count > 1 and not isinstance(values, tuple | dict | list):
        return flat, [values] * count
    padding = [leaf for _, leaf in leaves_with_names(_in_order_of(node.spec, values))]
    if len(padding) != count:
        raise ValueError(
            f"There must be a padding value for each of the {count} array(s) of an element; got "
            f"{values!r}."
        )
    return flat, [value.encode() if isinstance(value, str) else value for value in padding]


def _in_order_of(spec: ElementSpec, given: PyTree) -> Any:
    """Returns `given` with the items of its dicts in the order of the elements'."""
    if isinstance(spec, dict) and isinstance(given, dict):
        if set(spec) != set(given):
            raise ValueError(
                f"The keys {sorted(map(str, given))} are not those of the elements, "
                f"{sorted(map(str, spec))}."
            )
        return {key: _in_order_of(spec[key], given[key]) for key in spec}
    if isinstance(spec, tuple) and isinstance(given, tuple) and len(spec) == len(given):
        return tuple(_in_order_of(a, b) for a, b in zip(spec, given))
    return given
