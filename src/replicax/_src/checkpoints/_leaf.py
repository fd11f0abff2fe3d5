"""Values of leaves on their way to and from the disk: safe copies, and setting them again."""

from __future__ import annotations

import base64
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._arrays import IntegersTooLargeError, as_array
from replicax._src.checkpoints._graph import GraphNode, Kind
from replicax._src.checkpoints._problems import UnmatchedError
from replicax._src.context import require_threads
from replicax._src.values import storage_of
from replicax._src.variable import (
    UPDATING,
    DistributedVariable,
    Variable,
    copies_differ,
    own_storage,
    whole_of,
)

_SHARED_OUT = 1 << 20  # bytes; larger copies are made by several threads


@final
@dataclasses.dataclass
class ArraySpec:
    """What an array is like: enough to tell whether a saved one fits."""

    dtype: str
    shape: tuple[int, ...]
    keys: str | None = None  # random keys: of which implementation

    def __str__(self) -> str:
        kind = self.dtype if self.keys is None else f"key<{self.keys}>"
        return f"{kind}[{','.join(map(str, self.shape))}]"


def spec_of(value: Variable | jax.Array | np.ndarray) -> ArraySpec:
    """Returns what a variable or array is like."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        array = whole_of(value) if isinstance(value, Variable) else value
        return ArraySpec("key", tuple(value.shape), str(jax.random.key_impl(array)))
    return ArraySpec(str(np.dtype(value.dtype)), tuple(value.shape))


# --- to the host ----------------------------------------------------------------------------------


def differing_copies(variable: object) -> list[Any]:
    """Returns the copies of this worker, for variables whose copies differ."""
    if isinstance(variable, DistributedVariable) and copies_differ(variable):
        return list(variable.values)
    return []


def has_parts_elsewhere(variable: object) -> bool:
    """Returns whether other workers may have something of a variable that this one has not."""
    return bool(differing_copies(variable)) or (
        isinstance(variable, Variable) and own_storage(variable).has_parts_elsewhere
    )


def host_copies(nodes: list[GraphNode]) -> list[np.ndarray]:
    """Returns the values of variables and arrays, on the host, where no later update reaches them.

    Compiled steps write their results into the buffers of the variables, so these cannot just be
    held. Nor are the variables read in the usual way, after which the next step would have to copy
    them, on all devices.
    """
    require_threads("A checkpoint")
    with UPDATING:
        arrays = [_bits(_on_device(node)) for node in nodes]
        for array in arrays:
            if isinstance(array, jax.Array):
                array.copy_to_host_async()
        return _copied(arrays)


def _on_device(node: GraphNode) -> jax.Array | np.ndarray:
    value = node.value
    if node.kind == Kind.ARRAY:
        return value
    if not isinstance(value, DistributedVariable):
        return whole_of(value)
    if copies_differ(value):
        return value.read_value()
    return storage_of(value).for_host()


def host_copy(variable: Variable) -> np.ndarray:
    """Returns the value of one copy of a variable."""
    return _copied([_bits(variable.read_value())])[0]


def _bits(array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def _copied(arrays: list[Any]) -> list[np.ndarray]:
    sources = [np.asarray(array) for array in arrays]
    results = [np.empty(source.shape, source.dtype) for source in sources]
    large = [i for i, source in enumerate(sources) if source.nbytes > _SHARED_OUT]
    for index in set(range(len(sources))) - set(large):
        np.copyto(results[index], sources[index])
    if large:
        with ThreadPoolExecutor(4, "rx.checkpoint.copy") as pool:
            list(pool.map(lambda i: np.copyto(results[i], sources[i]), large))
    return results


# --- from the host --------------------------------------------------------------------------------


def as_saved(array: np.ndarray, spec: ArraySpec) -> Any:
    """Returns a stored array, as what it was before; `ValueError` if it cannot have been that."""
    if spec.keys is not None:
        value = jax.random.wrap_key_data(jnp.asarray(array), impl=spec.keys)
    else:
        dtype = np.dtype(spec.dtype)
        value = array if array.dtype == dtype else array.view(dtype)
    if value.shape != spec.shape:
        raise ValueError(f"an array of the shape {list(value.shape)} is said to be {spec}")
    return value


def converted(array: Any, wanted: ArraySpec, path: str) -> Any:
    """Returns integers as others, if all of them fit; `UnmatchedError` if not."""
    try:
        return as_array(array, wanted.dtype)
    except IntegersTooLargeError as error:
        raise UnmatchedError(f"{path}: the saved value does not fit {wanted}: {error}") from None


def put_value(node: GraphNode, value: object, copies: list[Any] | None = None) -> None:
    """Gives a variable or array of the program a restored value."""
    if node.kind == Kind.VARIABLE:
        mine = differing_copies(node.value)
        if copies is not None and len(copies) == len(mine):
            for part, copy in zip(mine, copies, strict=True):
                part.assign(copy)
        else:
            node.value.assign(value)
    elif isinstance(node.value, np.ndarray) and node.value.flags.writeable:
        node.value[...] = value
    else:
        assert node.put is not None
        if isinstance(node.value, jax.Array):
            value = jax.device_put(value, node.value.sharding)
        node.put(value)


# --- numbers and states as JSON -------------------------------------------------------------------


def number_to_json(value: object) -> Any:
    """Returns a number, such that it comes back with its type and all its bits."""
    if isinstance(value, np.generic):
        raw = base64.b64encode(value.tobytes()).decode()
        return {"numpy": str(value.dtype), "bytes": raw}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def number_from_json(value: object) -> Any:
    if not isinstance(value, dict):
        return value
    if "complex" in value:
        return complex(*value["complex"])
    return np.frombuffer(base64.b64decode(value["bytes"]), np.dtype(value["numpy"]))[0]


def state_to_json(value: object) -> Any:
    """Returns a state as JSON: also with bytes, tuples and NumPy numbers."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"$tuple": [state_to_json(each) for each in value]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [state_to_json(each) for each in value]
    if isinstance(value, dict):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            items = [[state_to_json(k), state_to_json(v)] for k, v in value.items()]
            return {"$items": items}
        return {key: state_to_json(each) for key, each in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"get_state() of an object in a checkpoint gave a {type(value).__name__}. Return numbers, "
        "texts, bytes, None, and lists, tuples and dictionaries of them."
    )


def state_from_json(value: object) -> Any:
    if isinstance(value, list):
        return [state_from_json(each) for each in value]
    if isinstance(value, dict):
        if "$bytes" in value:
            return base64.b64decode(value["$bytes"])
        if "$tuple" in value:
            return tuple(state_from_json(each) for each in value["$tuple"])
        if "$items" in value:
            return {state_from_json(k): state_from_json(v) for k, v in value["$items"]}
        return {key: state_from_json(each) for key, each in value.items()}
    return value
