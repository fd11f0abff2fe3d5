"""TensorFlow behind the `Library` interface: the oracle. Only `record.py` loads it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._library import Library, nearest_builtin
from ._observation import Observation, Seen, describe_spec

VIRTUAL_DEVICES = 8
_COLLECTIVE_KEYS = 1000

# JAX computes in 32 bits unless asked otherwise, so the width of a result is not compared.
_NARROWER = {"float64": "float32", "int64": "int32"}


class TensorFlowLibrary(Library):
    """TensorFlow in eager mode, on virtual CPU devices."""

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
        tf: Any = importlib.import_module("tensorflow")
        tf.get_logger().setLevel("ERROR")
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * VIRTUAL_DEVICES,
        )
        self._tf = tf
        self._saw_an_op_error = False
        self.version: str = tf.__version__
        self.distribute = tf.distribute
        self.experimental = tf.distribute.experimental
        self.v1 = tf.compat.v1
        self.Variable = tf.Variable
        self.VariableSynchronization = tf.VariableSynchronization
        self.VariableAggregation = tf.VariableAggregation
        self.variable_creator_scope = tf.variable_creator_scope
        self.IndexedSlices = tf.IndexedSlices
        self.nn = tf.nn
        self.metrics = tf.keras.metrics
        self.data = tf.data
        self.io = tf.io
        self.train = tf.train
        self.image = tf.image
        self.function = tf.function
        self.TensorSpec = tf.TensorSpec
        self.string = tf.string

    def mirrored(self, devices: Any, **options: Any) -> Any:
        # Strategies of different sizes in one process would share the keys of their collectives,
        # and break them; this is the switch that TensorFlow's own tests use.
        self.distribute.MirroredStrategy._collective_key_base += _COLLECTIVE_KEYS
        return super().mirrored(devices, **options)

    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return strategy.run(fn, args=args, kwargs=kwargs)

    def make_numpy_dataset(self, strategy: Any, arrays: Any) -> Any:
        return strategy.extended.experimental_make_numpy_dataset(arrays)  # moved there

    def constant(self, value: Any, dtype: str = "float32") -> Any:
        return self._tf.constant(value, dtype=dtype)

    def cast(self, value: Any, dtype: str) -> Any:
        return self._tf.cast(value, dtype)

    def reduce_sum(self, value: Any, axis: int | None = None) -> Any:
        return self._tf.reduce_sum(value, axis=axis)

    def reduce_mean(self, value: Any, axis: int | None = None) -> Any:
        return self._tf.reduce_mean(value, axis=axis)

    def matmul(self, left: Any, right: Any) -> Any:
        return self._tf.matmul(left, right)

    def value_and_grad(self, loss: Callable[[], Any], variables: Sequence[Any]) -> tuple[Any, Any]:
        with self._tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, variables)

    def grad(self, function: Callable[[Any], Any], at: Any) -> Any:
        with self._tf.GradientTape() as tape:
            tape.watch(at)
            value = function(at)
        return tape.gradient(value, at)

    def sgd(self, learning_rate: float, momentum: float = 0.0) -> Any:
        return self._tf.keras.optimizers.SGD(learning_rate, momentum=momentum)

    def adam(self, learning_rate: float) -> Any:
        return self._tf.keras.optimizers.Adam(learning_rate, epsilon=1e-8)

    def kind(self, value: Any) -> str | None:
        if isinstance(value, self._tf.Variable):
            name = type(value).__name__
            return "Variable" if name == "ResourceVariable" else name
        if isinstance(value, self._tf.distribute.DistributedValues):
            return type(value).__name__
        return "array" if self._tf.is_tensor(value) else None

    def copies(self, variable: Any) -> Sequence[Any]:
        return getattr(variable, "values", None) or (variable,)  # central storage keeps no tuple

    def device(self, value: Any) -> str:
        return self.device_name(value.device)

    def error_class(self, error: Exception) -> type[BaseException]:
        errors = self._tf.errors
        self._saw_an_op_error |= isinstance(error, errors.OpError)
        translations = {
            errors.InvalidArgumentError: ValueError,
            errors.UnimplementedError: NotImplementedError,
            errors.OutOfRangeError: IndexError,
            errors.NotFoundError: FileNotFoundError,
            errors.DataLossError: ValueError,
            errors.OpError: RuntimeError,
            AssertionError: ValueError,  # TensorFlow asserts where a value is not as it should be
        }
        for theirs, builtin in translations.items():
            if isinstance(error, theirs):
                return builtin
        return nearest_builtin(type(error))

    def to_numpy(self, value: Any) -> np.ndarray:
        array = np.asarray(value.numpy())
        return array.astype(_NARROWER.get(array.dtype.name, array.dtype))

    def on_host(self, value: Any) -> Any:
        return value.numpy() if self._tf.is_tensor(value) else value

    def describe_spec(self, spec: Any) -> Observation:
        if isinstance(spec, self._tf.TensorSpec):
            dims = None if spec.shape.rank is None else spec.shape.as_list()
            return describe_spec(dims, spec.dtype.name)
        if isinstance(spec, self._tf.data.DatasetSpec):
            return Seen(dataset=self.spec(spec.element_spec))
        if type(spec).__name__ == "PerReplicaSpec":
            return Seen(per_replica=[self.spec(each) for each in spec._value_specs])
        return type(spec).__name__

    def is_sound(self) -> bool:
        """Says whether collectives still work: some errors abort them for the whole process."""
        if not self._saw_an_op_error:
            return True
        self._saw_an_op_error = False
        strategy = self.strategy("mirrored2")

        def replica_fn() -> Any:
            context = self.distribute.get_replica_context()
            return context.all_gather(context.all_reduce("SUM", self.constant([1.0])), axis=0)

        try:
            strategy.run(replica_fn)
        except self._tf.errors.OpError:
            return False
        return True
