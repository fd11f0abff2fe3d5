"""What a scenario may use: one interface over TensorFlow and replicax.

A scenario sees strategies, variables and a handful of array functions through `Library`, and
reports through `observe` and `outcome`. `_tensorflow.py` and `_replicax.py` implement it; both
import their library only when built, so this module loads without either.
"""

from __future__ import annotations

import abc
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._observation import Observation, Seen, describe_array, describe_structure

AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
"""The names of `VariableAggregation`."""


class Library(abc.ABC):
    """The programming model of `tf.distribute` as one of the two libraries offers it."""

    distribute: Any
    experimental: Any
    v1: Any  # `compat.v1`
    Variable: Any
    VariableSynchronization: Any
    VariableAggregation: Any
    variable_creator_scope: Any
    IndexedSlices: Any
    nn: Any
    metrics: Any
    data: Any
    io: Any
    train: Any
    image: Any
    function: Any
    TensorSpec: Any
    string: Any

    # Strategies and replicas.

    def strategy(self, label: str) -> Any:
        """Returns a new strategy for a label such as "mirrored3", "one_device" or "default"."""
        kind, replicas = re.fullmatch(r"([a-z_]+)(\d*)", label).groups()  # type: ignore[union-attr]
        devices = [f"CPU:{index}" for index in range(int(replicas or 1))]
        older = self.v1.distribute
        match kind:
            case "older_one_device":
                return older.OneDeviceStrategy("CPU:0")
            case "older_mirrored":
                return older.MirroredStrategy(devices)
            case "older_central":
                return older.experimental.CentralStorageStrategy(devices, "CPU:0")
            case "default":
                return self.distribute.get_strategy()
            case "one_device":
                return self.distribute.OneDeviceStrategy("CPU:0")
            case "mirrored":
                return self.mirrored(devices)
            case "central":
                return self.experimental.CentralStorageStrategy(devices, "CPU:0")
        raise ValueError(f"no strategy is called {label!r}")

    def mirrored(self, devices: Any, **options: Any) -> Any:
        """Returns a new `MirroredStrategy`."""
        return self.distribute.MirroredStrategy(devices, **options)

    @abc.abstractmethod
    def run(
        self,
        strategy: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls `strategy.run` the way the executor under test wants it called."""

    def call(self, fn: Callable[[], Any]) -> Any:
        """Calls a function that runs replicas, the way the executor under test wants it called."""
        return fn()

    def replica_id(self) -> Any:
        """Returns this replica's number as an int32 array."""
        return self.cast(self.distribute.get_replica_context().replica_id_in_sync_group, "int32")

    def replica_number(self) -> Any:
        """Returns one plus this replica's number, as a float32 array."""
        return self.cast(self.replica_id(), "float32") + 1.0

    def per_replica(self, strategy: Any, components: Sequence[Any], dtype: str = "float32") -> Any:
        """Returns a distributed value with the given components."""
        return strategy.experimental_distribute_values_from_function(
            lambda context: self.constant(components[context.replica_id_in_sync_group], dtype)
        )

    def variable(
        self,
        initial_value: Any,
        synchronization: str = "AUTO",
        aggregation: str = "NONE",
        **options,
    ) -> Any:
        """Makes a variable from the names of its synchronization and aggregation."""
        return self.Variable(
            initial_value,
            synchronization=self.VariableSynchronization[synchronization],
            aggregation=self.VariableAggregation[aggregation],
            **options,
        )

    def make_numpy_dataset(self, strategy: Any, arrays: Any) -> Any:
        """Calls `experimental_make_numpy_dataset` where the library has it."""
        return strategy.experimental_make_numpy_dataset(arrays)

    # Arrays.

    @abc.abstractmethod
    def constant(self, value: Any, dtype: str = "float32") -> Any:
        """Returns a new array."""

    @abc.abstractmethod
    def cast(self, value: Any, dtype: str) -> Any:
        """Returns `value` as an array of another type."""

    @abc.abstractmethod
    def reduce_sum(self, value: Any, axis: int | None = None) -> Any:
        """Sums the elements."""

    @abc.abstractmethod
    def reduce_mean(self, value: Any, axis: int | None = None) -> Any:
        """Averages the elements."""

    @abc.abstractmethod
    def matmul(self, left: Any, right: Any) -> Any:
        """Multiplies two matrices."""

    # Training.

    @abc.abstractmethod
    def value_and_grad(self, loss: Callable[[], Any], variables: Sequence[Any]) -> tuple[Any, Any]:
        """Evaluates `loss()` and differentiates it with respect to `variables`."""

    @abc.abstractmethod
    def grad(self, function: Callable[[Any], Any], at: Any) -> Any:
        """Differentiates a scalar function of one array."""

    @abc.abstractmethod
    def sgd(self, learning_rate: float, momentum: float = 0.0) -> Any:
        """Returns an optimizer with `apply_gradients`."""

    @abc.abstractmethod
    def adam(self, learning_rate: float) -> Any:
        """Returns an optimizer with `apply_gradients`."""

    # Observing.

    @abc.abstractmethod
    def kind(self, value: Any) -> str | None:
        """Names the kind of a value: "PerReplica", "array", ...; None for plain Python."""

    def copies(self, variable: Any) -> Sequence[Any]:
        """Returns the components of a distributed variable."""
        return variable.values

    @abc.abstractmethod
    def device(self, value: Any) -> str:
        """Returns the device of a one-device array or variable, as "CPU:0"."""

    @abc.abstractmethod
    def error_class(self, error: Exception) -> type[BaseException]:
        """Returns the builtin class under which a user would catch `error`."""

    def device_name(self, device: Any) -> str:
        """Reduces any spelling of a device to "CPU:0"."""
        kind, index = re.findall(r"(\w+):(\d+)", str(device))[-1]
        return f"{kind.upper()}:{index}"

    def observe(self, value: Any) -> Observation:
        """Describes a value in the same words for both libraries, at this moment."""
        match kind := self.kind(value):
            case None:
                return describe_structure(value, self.observe)
            case "array" | "Variable":
                return Seen(kind=kind, **describe_array(self.to_numpy(value)))
            case "MirroredVariable" | "SyncOnReadVariable" | "AggregatingVariable":
                copies = [describe_array(self.to_numpy(copy)) for copy in self.copies(value)]
                return Seen(kind=kind, copies=copies)
            case _:
                return Seen(kind=kind, values=[self.observe(item) for item in value.values])

    def spec(self, spec: Any) -> Observation:
        """Describes the spec of an element, with texts such as "int64[?, 3]" for its arrays."""
        if isinstance(spec, Mapping | tuple):
            return describe_structure(spec, self.spec)
        return self.describe_spec(spec)

    @abc.abstractmethod
    def describe_spec(self, spec: Any) -> Observation:
        """Describes a spec that is no structure: of an array, a data set, one for each replica."""

    def outcome(self, action: Callable[[], Any]) -> Observation:
        """Observes what an action returns, or the class of the error that it raises."""
        try:
            return self.observe(action())
        except Exception as error:
            return Seen(raises=self.error_class(error).__name__)

    def refuses(self, action: Callable[[], Any]) -> bool:
        """Says whether an action raises, where it does not matter which error."""
        try:
            action()
        except Exception:
            return True
        return False

    @abc.abstractmethod
    def to_numpy(self, value: Any) -> np.ndarray:
        """Returns the contents of an array or of one copy of a variable."""

    @abc.abstractmethod
    def on_host(self, value: Any) -> Any:
        """Returns an element of a data set as NumPy has it, in its own width; texts as bytes."""


def nothing(*_: Any) -> None:
    """Drops the result of what was called for its effect."""


def nearest_builtin(error_class: type[BaseException]) -> type[BaseException]:
    """Returns the first class in the method resolution order that Python itself defines."""
    for base in error_class.__mro__:
        if base.__module__ == builtins.__name__:
            return base
    raise TypeError(f"{error_class} is not an exception class")
