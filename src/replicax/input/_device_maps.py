"""`map(fn, on_device=True)`: functions that run under jit, on the replicas' devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from replicax.data._batching import Batch
from replicax.data._elements import leaves_with_names
from replicax.data._mapping import ON_DEVICE, Map
from replicax.data._node import Node
from replicax.devices import replica_mesh
from replicax.input._options import InputLayout
from replicax.values import PerReplica, ReplicaBuffers, is_leaf, select_replica


def split_off(node: Node) -> tuple[Node, list[Callable[..., Any]]]:
    """The pipeline without the device functions at its end, and those, in order.

    A function before the last `batch` is one of single rows: it is mapped over the batch.
    """
    if node.label in ("PrefetchDataset", "OptionsDataset"):
        inner, functions = split_off(node.inputs[0])
        return (node.with_inputs([inner]) if functions else node), functions
    if isinstance(node, Map) and node.mode == ON_DEVICE:
        inner, functions = split_off(node.input)
        return inner, [*functions, node.fn]
    if isinstance(node, Batch) and isinstance(node.input, Map) and node.input.mode == ON_DEVICE:
        rows = node.input
        inner, functions = split_off(node.with_inputs([rows.input]))
        return inner, [*functions, jax.vmap(rows.fn)]
    return node, []


class DeviceFunctions:
    """Applies functions to the shares of a step, where these are."""

    def __init__(self, functions: list[Callable[..., Any]], layout: InputLayout):
        def composed(element: Any) -> Any:
            for fn in functions:
                element = fn(*element) if type(element) is tuple else fn(element)
                if isinstance(element, list):
                    element = tuple(element)
            return element

        self._devices = layout.devices
        self._one = jax.jit(composed)
        self._mesh = replica_mesh(layout.devices) if len(layout.devices) > 1 else None
        self._all = self._mesh.spmd(composed) if self._mesh is not None else None

    def __call__(self, value: Any) -> Any:
        """`value`: a structure of arrays, or of per-replica values."""
        for name, leaf in leaves_with_names(value):
            part = leaf._component(0) if isinstance(leaf, PerReplica) else leaf
            if not isinstance(part, jax.Array):
                raise TypeError(
                    f"map(on_device=True) was given element{name}, which is text and stays on the "
                    "host. Take it out before, in a map() on the host."
                )
        if self._mesh is None:
            return self._one(value)
        leaves = jax.tree.leaves(value, is_leaf=is_leaf)
        if all(isinstance(leaf, PerReplica) and leaf._buffers is not None for leaf in leaves):
            whole = jax.tree.map(lambda leaf: leaf._buffers.assembled, value, is_leaf=is_leaf)
            results = self._all(whole)  # type: ignore[misc]
            return jax.tree.map(self._per_replica, results)
        parts: list[Any] = []
        for replica, device in enumerate(self._devices):
            with jax.default_device(device):
                parts.append(self._one(select_replica(replica, value)))
        return jax.tree.map(lambda *each: PerReplica(each), *parts)

    def _per_replica(self, array: jax.Array) -> PerReplica:
        return PerReplica._from_buffers(ReplicaBuffers(self._mesh, assembled=array))  # type: ignore[arg-type]
