"""Arrays that have a shape and no value, and computations with them that find out shapes alone.

A strategy on devices that are not here has nothing to compute with. In its scope this thread's
operations go to `ShapesOnly`, a trace of JAX's in which every operation gives `PlannedArray`s: so
initializers of any library cost nothing, however large their arrays are. What is small and known,
such as a random key or a number of steps, is computed as ever.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, final

import jax
import numpy as np
from jax._src import array as _array
from jax._src import core as _core
from jax._src import dtypes as _dtypes
from jax._src.interpreters import pxla as _pxla
from jax.extend.linear_util import WrappedFun
from jax.sharding import Sharding, SingleDeviceSharding

from replicax._src._errors import PlannedValueError
from replicax._src._typing import Device, DTypeLike, override

_SMALL = 1 << 14  # bytes: what is computed nevertheless, if everything it needs is known
_READABLE = 1 << 26  # bytes: what a program that is only followed may read


@final
class PlannedArray(jax.Array):
    """An array on devices that are not here: a shape, a dtype and a place.

    Attributes:
      aval: JAX's word for the shape and the dtype.
      sharding: how it would lie on the devices.
    """

    __slots__ = ("aval", "sharding")
    aval: Any
    sharding: Any
    committed: Any = False
    _committed = False  # or JAX would make arrays like it where it is
    is_fully_addressable: Any = False
    __array_priority__ = 1000  # numbers of NumPy let its operators come first

    def __init__(self, aval: _core.ShapedArray, sharding: Sharding):
        self.aval = aval
        self.sharding = sharding

    @classmethod
    def like(cls, value: object, sharding: Sharding) -> PlannedArray:
        """Returns a planned array like an array, a number or a `jax.ShapeDtypeStruct`."""
        return cls(_core.typeof(value), sharding)

    @classmethod
    def of_shape(cls, shape: Sequence[int], dtype: DTypeLike, sharding: Sharding) -> PlannedArray:
        """Returns an array of this shape and dtype."""
        return cls(_core.ShapedArray(tuple(shape), dtype), sharding)

    @classmethod
    def on(cls, value: object, device: Device) -> Any:
        """Returns what an array looks like on a device; if that is here, the array itself."""
        if not is_planned(device):
            return value
        return cls.like(value, SingleDeviceSharding(device))

    @property
    def home(self) -> Device:
        """The first of its devices."""
        return min(self.sharding.device_set, key=lambda device: device.id)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return math.prod(self.aval.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        return getattr(self.aval, "weak_type", False)

    @property
    def device(self) -> Any:
        devices = self.sharding.device_set
        return next(iter(devices)) if len(devices) == 1 else self.sharding

    def devices(self) -> set[Device]:
        return set(self.sharding.device_set)

    def is_deleted(self) -> bool:
        return False

    def delete(self) -> None:
        pass

    def block_until_ready(self) -> PlannedArray:
        return self

    def copy_to_host_async(self) -> None:
        pass

    @property
    def addressable_shards(self) -> list[Any]:
        return []

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter([self[index] for index in range(len(self))])

    def __repr__(self) -> str:
        return f"PlannedArray({self.dtype}{list(self.shape)})"

    def __format__(self, _: str) -> str:
        return repr(self)

    def __hash__(self) -> int:  # as that of JAX's arrays would be an error
        raise TypeError("unhashable type: 'PlannedArray'")

    def _no_value(self, *_: object, **__: object) -> NoReturn:
        raise no_value(f"the value of an array, {self.dtype}{list(self.shape)},")

    @property
    def _value(self) -> NoReturn:
        raise no_value(f"the value of an array, {self.dtype}{list(self.shape)},")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        is_number = jax.numpy.issubdtype(self.dtype, jax.numpy.floating)
        if not _nan_for_values[0] or not is_number or self.nbytes > _READABLE:
            self._no_value()
        return np.full(self.shape, np.nan, dtype or self.dtype)

    def __float__(self) -> float:
        return float(self.__array__())

    def item(self, *args: int) -> Any:
        return self.__array__().item(*args)

    def tolist(self) -> Any:
        return self.__array__().tolist()

    __bool__ = __int__ = __index__ = __complex__ = _no_value
    tobytes = addressable_data = __dlpack__ = __reduce__ = _no_value


_planned: set[Device] = set()


def note_planned(devices: Iterable[Device]) -> None:
    """Notes devices that are not here."""
    _planned.update(devices)


def is_planned(device: Device | None) -> bool:
    """Returns whether a device is not here."""
    return device in _planned


def no_value(what: str) -> PlannedValueError:
    """Returns the error where something needs a value that is not there."""
    return PlannedValueError(
        f"{what} was asked for, and there is none: the strategy is on planned devices, which are "
        "not here. Variables, data and results have shapes alone there, and functions are "
        "compiled and not run. Make the strategy on real devices to compute; `fn.explain(...)` "
        "tells what is known of the plan."
    )


_nan_for_values = [False]


@contextlib.contextmanager
def reading_nan() -> Iterator[None]:
    """Inside the block, small arrays of floats that have no values are read as not-a-number.

    For a program that is only followed: it prints its losses, and goes on.
    """
    before, _nan_for_values[0] = _nan_for_values[0], True
    try:
        yield
    finally:
        _nan_for_values[0] = before


@final
class ShapesOnly(_core.Trace):
    """A trace in which operations give shapes."""

    def __init__(self, device: Device, small: int):
        super().__init__()
        self._place = SingleDeviceSharding(device)
        self.small = small

    @override
    def process_primitive(
        self, primitive: _core.Primitive, args: Sequence[Any], params: dict[str, Any], /
    ) -> Any:
        planned = [each for each in args if isinstance(each, PlannedArray)]
        with _core.set_current_trace(_core.eval_trace):
            avals = [_core.typeof(each) for each in args]
            results, _ = primitive.abstract_eval(*avals, **params)
            outputs = results if primitive.multiple_results else [results]
            targets = [_target(to) for to in params.get("devices", ())]
            is_put = any(each is not None and _is_elsewhere(each) for each in targets)
            if not planned and not is_put and sum(map(_bytes, outputs)) <= self.small:
                with _on_something_here():
                    return _core.eval_trace.process_primitive(primitive, args, params)
        place = planned[0].sharding if len(planned) == 1 else self._place
        if primitive.name == "device_put":
            made = [PlannedArray(aval, to or place) for aval, to in zip(outputs, targets)]
        else:
            made = [PlannedArray(aval, place) for aval in outputs]
        return made if primitive.multiple_results else made[0]

    def stage_value(self, val: object) -> Any:
        """Returns an array from a value of Python or NumPy."""
        if isinstance(val, PlannedArray):
            return val
        aval = _core.typeof(val)
        if _bytes(aval) <= self.small:
            with _on_something_here():
                return _core.eval_trace.stage_value(val)
        return PlannedArray(aval, self._place)

    @override
    def process_custom_jvp_call(
        self, _: object, fun: WrappedFun, jvp: object, tracers: Sequence[Any], /, **__: object
    ) -> Any:
        with _core.set_current_trace(self):
            return fun.call_wrapped(*tracers)

    @override
    def process_custom_vjp_call(
        self, _: object, fun: WrappedFun, *given: Sequence[Any], **__: object
    ) -> Any:
        with _core.set_current_trace(self):
            return fun.call_wrapped(*given[-1])

    @override
    def process_call(
        self, _: object, f: WrappedFun, tracers: Sequence[Any], params: object, /
    ) -> Any:
        with _core.set_current_trace(self):
            return f.call_wrapped(*tracers)


def _bytes(aval: _core.ShapedArray) -> int:
    return math.prod(getattr(aval, "shape", ())) * getattr(aval.dtype, "itemsize", 8)


def _target(to: object) -> Sharding | None:
    if to is None or isinstance(to, Sharding):
        return to
    return SingleDeviceSharding(to) if isinstance(to, Device) else None


def _is_elsewhere(place: Sharding) -> bool:
    return any(map(is_planned, place.device_set))


def _on_something_here() -> contextlib.AbstractContextManager[Any]:
    """Returns a context manager: what is computed in it all the same is so on a device here."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(chosen, Device) and is_planned(chosen):
        return jax.default_device(jax.local_devices()[0])
    return contextlib.nullcontext()


def current_shapes_only() -> ShapesOnly | None:
    """Returns the trace that operations of this thread go to, if that is one for shapes alone."""
    trace = _core.trace_ctx.trace
    return trace if isinstance(trace, ShapesOnly) else None


def shapes_only(device: Device, small: int = _SMALL) -> contextlib.AbstractContextManager[Any]:
    """Inside the block, operations of this thread give shapes; in a trace of JAX's, all is as ever.

    Args:
      device: a planned one, where results are said to be.
      small: so many bytes are computed nevertheless, if everything that they need is known.
    """
    trace = _core.trace_ctx.trace
    is_free = trace is _core.eval_trace or (isinstance(trace, ShapesOnly) and trace.small > small)
    if not is_free:
        return contextlib.nullcontext()
    return _core.set_current_trace(ShapesOnly(device, small))


def _of_shapes(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of JAX's arrays for planned ones, also outside of a strategy's scope."""

    @functools.wraps(method, assigned=("__module__", "__name__", "__qualname__"))
    def called(self: PlannedArray, *args: object, **kwargs: object) -> Any:
        with shapes_only(self.home):
            return method(self, *args, **kwargs)

    del called.__wrapped__  # may be a class, which tools that look for the source do not expect
    return called


def _register() -> None:
    """Makes JAX take planned arrays where it looks at shapes, and refuse them where it computes."""
    _core.pytype_aval_mappings[PlannedArray] = lambda array: array.aval
    _dtypes.register_canonicalize_value_handler(PlannedArray, None)

    def refuse(arrays: Sequence[PlannedArray], *_: object) -> NoReturn:
        arrays[0]._no_value()

    _pxla.shard_arg_handlers[PlannedArray] = refuse
    # JAX keeps the operators and methods of traced arrays with the type of these.
    for name, what in list(vars(_core.ShapedArray).items()):
        operator = f"__{name.removeprefix('_')}__"
        if isinstance(what, staticmethod) and operator in _OF_ARRAYS:
            if operator not in vars(PlannedArray):
                setattr(PlannedArray, operator, _of_shapes(what.__func__))
        elif name in _OF_ARRAYS and name not in vars(PlannedArray):
            if isinstance(what, _core.aval_method):
                setattr(PlannedArray, name, _of_shapes(what.fun))
            elif isinstance(what, _core.aval_property):
                setattr(PlannedArray, name, property(_of_shapes(what.fget)))


_OF_ARRAYS = frozenset(dir(_array.ArrayImpl))
_register()
