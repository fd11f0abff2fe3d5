"""Pipelines of `tf.data`."""

from __future__ import annotations

from typing import Any

from replicax._src._arrays import STRING
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._caching import WithOptions
from replicax._src.data._node import Node
from replicax._src.data._options import AutoShardPolicy, DistributeOptions, Options
from replicax._src.data.foreign._streams import Stream


def tensorflow_pipeline(source: Any) -> Node:
    node = Stream(
        source.as_numpy_iterator,
        signature=_tensorflow_spec(source.element_spec),
        size=int(source.cardinality()),
        source="tf.data pipeline",
        start_at=lambda count: source.skip(count).as_numpy_iterator(),
    )
    # Whether workers divide the data is said in its options; they cannot divide its files here.
    policy = source.options().experimental_distribute.auto_shard_policy.name
    if policy not in ("OFF", "DATA"):
        return node
    return WithOptions(node, Options(DistributeOptions(AutoShardPolicy[policy])))


def _tensorflow_spec(spec: Any, name: str = "") -> Any:
    if isinstance(spec, dict):
        return {key: _tensorflow_spec(spec[key], f"{name}[{key!r}]") for key in spec}
    if isinstance(spec, tuple):
        parts = [_tensorflow_spec(part, f"{name}[{index}]") for index, part in enumerate(spec)]
        return type(spec)(*parts) if hasattr(spec, "_fields") else tuple(parts)
    kind = type(spec).__name__
    if kind != "TensorSpec" or spec.dtype.name in ("variant", "resource"):
        remedy = {
            "RaggedTensorSpec": "Fill it up in the tf.data pipeline: map with .to_tensor().",
            "SparseTensorSpec": "Fill it up in the tf.data pipeline: map with tf.sparse.to_dense.",
            "DatasetSpec": "Batch the windows in the tf.data pipeline: flat_map.",
        }.get(kind, "Leave it out, or make an array of it, in the tf.data pipeline.")
        raise TypeError(
            f"element{name} of the tf.data.Dataset is no array, but a {kind}: {spec!r}. {remedy}"
        )
    shape = None if spec.shape.rank is None else tuple(spec.shape)
    return TensorSpec.on_host(
        shape, STRING if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype
    )
