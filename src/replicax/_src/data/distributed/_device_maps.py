"""`map(fn, on_device=True)`: functions that run under jit, on the replicas' devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import STRING, strong
from replicax._src._typing import PyTree
from replicax._src.data._batching import Batch
from replicax._src.data._caching import Prefetch, WithOptions
from replicax._src.data._elements import Element, ElementSpec
from replicax._src.data._mapping import Map, MapMode, abstract_spec
from replicax._src.data._node import Node
from replicax._src.data._ordering import Repeat, Shard, Shuffle, Skip, Take
from replicax._src.data.distributed._options import InputLayout
from replicax._src.devices import ReplicaMesh, replica_mesh
from replicax._src.values import (
    PerReplica,
    ReplicaBuffers,
    is_leaf,
    per_replica_type,
    select_replica,
    storage_of,
    value_of_buffers,
)


def split_off(node: Node) -> tuple[Node, list[Callable[..., Any]]]:
    """Returns the pipeline without the device functions at its end, and those, in order.

    A function before the last `batch` is one of single rows: it is mapped over the batch.
    """
    # Which batches there are, and in which order, is the same before and after.
    if isinstance(node, Prefetch | WithOptions | Repeat | Take | Skip | Shard | Shuffle):
        inner, functions = split_off(node.inputs[0])
        return (node.with_inputs([inner]) if functions else node), functions
    if isinstance(node, Map) and node.mode is MapMode.ON_DEVICE:
        inner, functions = split_off(node.input)
        return inner, [*functions, node.fn]
    if isinstance(node, Batch):
        inner, functions = split_off(node.input)
        if functions:
            return node.with_inputs([inner]), [jax.vmap(fn) for fn in functions]
    return node, []


@final
class DeviceFunctions:
    """Applies functions to the shares of a step, where these are."""

    def __init__(self, functions: Sequence[list[Callable[..., Any]]], layout: InputLayout):
        """
        Args:
          functions: those of each replica of this worker, or one list for all.
          layout: who reads.
        """
        self._devices = layout.devices
        self._type = per_replica_type(layout.devices)
        self._each = [jax.jit(_composed(some)) for some in functions]
        one_for_all = len(functions) == 1 and len(layout.devices) > 1
        # Those of this worker alone: it reads at its own pace.
        self._mesh = replica_mesh(tuple(layout.devices)) if one_for_all else None
        composed = _composed(functions[0])
        if self._mesh is not None:
            # The last result tells that the program has ended.
            self._all = self._mesh.spmd(lambda element: (composed(element), jnp.zeros(())))

    def __call__(self, value: PyTree) -> Any:
        """Returns what the functions make of a structure of arrays or of per-replica values."""
        leaves = list(_tree.leaves_of(value, is_leaf))
        refuse_text(leaves)
        if len(self._devices) == 1 and not isinstance(leaves[0], PerReplica):
            with jax.default_device(self._devices[0]):
                return _tree.as_dicts(self._each[0](_tree.in_order(value)))
        mesh = self._mesh
        if mesh is not None and all(storage_of(leaf) is not None for leaf in leaves):
            whole = _tree.map_structure(lambda leaf: _over(mesh, leaf), value, is_leaf)
            return _tree.map_structure(
                lambda each: value_of_buffers(PerReplica, ReplicaBuffers(mesh, assembled=each)),
                _tree.as_dicts(self._all(_tree.in_order(whole))[0]),
            )
        parts: list[Any] = []
        for replica, device in enumerate(self._devices):
            function = self._each[replica % len(self._each)]
            with jax.default_device(device):
                given = _tree.in_order(select_replica(replica, value))
                parts.append(_tree.as_dicts(function(given)))
        return _tree.map_together(lambda *each: self._type(each), parts)


def _over(mesh: ReplicaMesh, value: PerReplica) -> jax.Array:
    buffers = storage_of(value)
    assert buffers is not None
    return buffers.assembled if buffers.mesh is mesh else mesh.assemble(buffers.components)


def _composed(functions: list[Callable[..., Any]]) -> Callable[[Any], Any]:
    def composed(element: Element) -> Any:
        element = _tree.as_dicts(element)
        for fn in functions:
            element = fn(*element) if type(element) is tuple else fn(element)
            if element is None:
                raise TypeError(
                    f"{getattr(fn, '__qualname__', fn)}, the function of map(on_device=True), "
                    "returned None. Return the new element."
                )
            if isinstance(element, list):
                element = tuple(element)
        strengthened = _tree.map_structure(lambda leaf: strong(jnp.asarray(leaf)), element)
        return _tree.in_order(strengthened)

    return composed


def spec_after(functions: list[Callable[..., Any]], spec: ElementSpec) -> Any:
    """Returns what the functions make of an element that looks like `spec`."""
    for fn in functions:
        spec = abstract_spec(fn, spec)
    return spec


def refuse_text(leaves: list[Any]) -> None:
    for leaf in leaves:
        on_host = isinstance(leaf, PerReplica) and storage_of(leaf) is None
        part = leaf.values[0] if on_host else leaf
        if isinstance(part, bytes) or (isinstance(part, np.ndarray) and part.dtype == STRING):
            raise TypeError(
                f"map(on_device=True) was given text, which stays on the host: {part!r}. Take it "
                "out before, in a map() on the host."
            )
