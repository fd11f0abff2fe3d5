"""replicax behind the `Library` interface: what is being tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from replicax._src.data._node import DatasetSpec
from replicax._src.data.distributed._batch_sizes import PerReplicaSpec

from ..under_test import Executor
from ._library import Library, nearest_builtin
from ._observation import Observation, Seen, describe_spec


class ReplicaxLibrary(Library):
    """replicax under one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.distribute = rx.distribute
        self.experimental = rx.distribute.experimental
        self.v1 = rx.compat.v1
        self.Variable = rx.Variable
        self.VariableSynchronization = rx.VariableSynchronization
        self.VariableAggregation = rx.VariableAggregation
        self.variable_creator_scope = rx.variable_creator_scope
        self.IndexedSlices = rx.IndexedSlices
        self.nn = rx.nn
        self.metrics = rx.metrics
        self.data = rx.data
        self.io = rx.io
        self.train = rx.train
        self.image = rx.image
        self.function = rx.function
        self.TensorSpec = rx.TensorSpec
        self.string = rx.string

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._executor.run(strategy, fn, args, kwargs)

    def call(self, fn: Callable[[], Any]) -> Any:
        return rx.function(fn)() if self._executor.name == "compiled" else fn()

    def constant(self, value: Any, dtype: str = "float32") -> Any:
        return rx.constant(value, dtype=dtype)

    def cast(self, value: Any, dtype: str) -> Any:
        return jnp.asarray(value).astype(dtype)

    def reduce_sum(self, value: Any, axis: int | None = None) -> Any:
        return jnp.sum(value, axis=axis)

    def reduce_mean(self, value: Any, axis: int | None = None) -> Any:
        return jnp.mean(value, axis=axis)

    def matmul(self, left: Any, right: Any) -> Any:
        return jnp.matmul(left, right)

    def value_and_grad(self, loss: Callable[[], Any], variables: Sequence[Any]) -> tuple[Any, Any]:
        return rx.value_and_grad(loss, variables)

    def grad(self, function: Callable[[Any], Any], at: Any) -> Any:
        return jax.grad(function)(at)

    def sgd(self, learning_rate: float, momentum: float = 0.0) -> Any:
        return rx.Optimizer(optax.sgd(learning_rate, momentum=momentum or None))

    def adam(self, learning_rate: float) -> Any:
        return rx.Optimizer(optax.adam(learning_rate))

    def kind(self, value: Any) -> str | None:
        if isinstance(value, rx.Variable):
            return (
                type(value).__name__
                if isinstance(value, rx.distribute.DistributedValues)
                else "Variable"
            )
        if isinstance(value, rx.distribute.DistributedValues):
            return "Mirrored" if isinstance(value, rx.distribute.Mirrored) else "PerReplica"
        return "array" if isinstance(value, jax.Array) else None

    def device(self, value: Any) -> str:
        (device,) = (value.read_value() if isinstance(value, rx.Variable) else value).devices()
        return f"{device.platform}:{device.id}".upper()

    def describe_spec(self, spec: Any) -> Observation:
        if isinstance(spec, PerReplicaSpec):
            return Seen(per_replica=[self.spec(each) for each in spec._specs])
        if isinstance(spec, DatasetSpec):
            return Seen(dataset=self.spec(spec.element_spec))
        return describe_spec(spec.shape, "string" if spec.dtype == rx.string else spec.dtype.name)

    def on_host(self, value: Any) -> Any:
        return np.asarray(value) if isinstance(value, jax.Array) else value

    def error_class(self, error: Exception) -> type[BaseException]:
        return nearest_builtin(type(error))

    def to_numpy(self, value: Any) -> np.ndarray:
        return np.asarray(value)
