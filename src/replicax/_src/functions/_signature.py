"""`input_signature`: what the arguments of a compiled function must look like."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import STRING
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import DTypeLike, PyTree
from replicax._src.values import DistributedValues, Mirrored, PerReplica, array_here, is_leaf
from replicax._src.variable import Variable


class Signature:
    """The specs of a function's arguments, in order."""

    def __init__(self, specs: PyTree, fn: Callable[..., Any]):
        if not isinstance(specs, list | tuple):
            raise TypeError(
                "`input_signature` is a list with one rx.TensorSpec, or a structure of them, for "
                f"each argument; got {specs!r}."
            )
        for leaf in _tree.leaves_of(tuple(specs), _is_spec):
            if not _is_spec(leaf):
                raise TypeError(
                    f"`input_signature` holds {_tree.describe(leaf)}, which is no spec. Use "
                    "rx.TensorSpec(shape, dtype), or the element_spec of a distributed data set."
                )
        self.specs = tuple(specs)
        self._fn = fn
        self._name = getattr(fn, "__qualname__", repr(fn))

    def checked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments in order, as arrays of the dtypes that the specs say."""
        if kwargs:
            try:
                bound = inspect.signature(self._fn).bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._name}: {error}.") from None
            args, kwargs = bound.args, bound.kwargs
        if len(args) != len(self.specs) or kwargs:
            raise TypeError(
                f"{self._name} has an input_signature of {len(self.specs)} argument(s), but was "
                f"called with {len(args) + len(kwargs)}."
            )
        try:
            new = self._matched(self.specs, tuple(args))
        except _tree.StructureMismatch:
            raise TypeError(
                f"{self._name} has the input_signature {list(self.specs)!r}, but was called with "
                f"{_tree.describe(tuple(args))}, which has another structure."
            ) from None
        return tuple(new), {}

    def _matched(self, specs: Any, values: PyTree) -> Any:
        """`values` with everything that stands where there is a spec made to fit it."""
        if _is_spec(specs):
            return self._fitting(specs, values)
        level, others = _tree.one_level(specs, _is_spec), _tree.one_level(values, is_leaf)
        if level is None or others is None or level[2] != others[2]:
            raise _tree.StructureMismatch([specs, values])
        if isinstance(specs, dict):
            return {key: self._matched(specs[key], values[key]) for key in specs}
        pairs = zip(level[0], others[0], strict=True)
        return others[1]([self._matched(spec, value) for spec, value in pairs])

    def _fitting(self, spec: Any, value: Any) -> Any:
        if isinstance(value, Variable):
            value = array_here(value)
        parts = value.values if isinstance(value, DistributedValues) else (value,)
        wanted = spec.component_specs(len(parts)) if hasattr(spec, "component_specs") else None
        try:
            new = [
                _as_input(part, (wanted[i] if wanted else spec).dtype)
                for i, part in enumerate(parts)
            ]
        except (TypeError, ValueError):
            raise self._refusal(spec, value) from None
        for index, part in enumerate(new):
            each = wanted[index] if wanted else spec
            if not each.is_compatible_with(part):
                raise self._refusal(each, part)
        if isinstance(value, PerReplica | Mirrored):
            return value
        if wanted is not None and len(wanted) > 1:
            raise self._refusal(spec, value)
        return new[0]

    def _refusal(self, spec: object, value: object) -> TypeError:
        return TypeError(
            f"{self._name}: the input_signature says {spec!r}, but the argument is "
            f"{_tree.describe(value)}. Convert the argument, or widen the signature (None stands "
            "for any size)."
        )


def _is_spec(value: object) -> bool:
    return isinstance(value, TensorSpec) or hasattr(value, "component_specs")


def _as_input(value: object, dtype: DTypeLike) -> Any:
    """Returns an array of this dtype, from what is none yet and keeps its kind."""
    if isinstance(value, DistributedValues | jax.Array):
        return value
    array = np.asarray(value)
    if dtype == STRING and array.dtype.kind in "OSU":  # text stays what it is, on the host
        return array
    if array.dtype == object or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError
    return jnp.asarray(array, dtype)
