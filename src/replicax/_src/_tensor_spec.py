"""`TensorSpec`: what an array looks like, for the `input_signature` of a function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, SupportsInt

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from replicax._src._arrays import STRING, is_string
from replicax._src._typing import DTypeLike

Shape = tuple[int | None, ...]
"""The sizes of dimensions; None stands for any size."""


class HasShape(Protocol):
    """An array, or the spec of one."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


class TensorSpec:
    """The shape and dtype of an array; None in the shape stands for any size.

    >>> import replicax as rx
    >>> rx.TensorSpec([None, 3], "float32")
    TensorSpec(shape=(None, 3), dtype=float32, name=None)

    Args:
      shape: the sizes of the dimensions, or None if even their number may vary.
      dtype: anything that JAX takes for a dtype.
      name: for error messages.
    """

    def __init__(
        self,
        shape: Iterable[SupportsInt | None] | None = None,
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ):
        if shape is not None:
            try:
                shape = tuple(None if size is None else int(size) for size in shape)
            except (TypeError, ValueError):
                raise TypeError(
                    f"The shape of a TensorSpec is a list of sizes, with None for any; got "
                    f"{shape!r}. For a scalar write []."
                ) from None
            if any(size is not None and size < 0 for size in shape):
                raise ValueError(
                    f"The shape of a TensorSpec has no negative sizes; got {shape}. None stands "
                    "for any size."
                )
        self._shape = shape
        try:
            self._dtype = _on_device(dtype)
        except TypeError:
            raise TypeError(
                f"The dtype of a TensorSpec is one of JAX, such as 'float32', or rx.string; got "
                f"{dtype!r}."
            ) from None
        self._name = name

    @classmethod
    def on_host(cls, shape: Iterable[SupportsInt | None] | None, dtype: DTypeLike) -> TensorSpec:
        """Returns the spec of a NumPy array, with its own dtype: JAX has 64 bits only if asked."""
        spec = cls(shape)
        spec._dtype = np.dtype(dtype)
        return spec

    @classmethod
    def from_tensor(cls, tensor: ArrayLike, name: str | None = None) -> TensorSpec:
        """Returns the spec of an array."""
        return cls(jnp.shape(tensor), jnp.result_type(tensor), name)

    @classmethod
    def from_spec(cls, spec: HasShape, name: str | None = None) -> TensorSpec:
        """Returns the spec of anything with `shape` and `dtype`."""
        return cls(spec.shape, spec.dtype, name or getattr(spec, "name", None))

    @property
    def shape(self) -> Any:
        """A tuple of sizes, or None."""
        return self._shape

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def name(self) -> str | None:
        return self._name

    def is_compatible_with(self, spec_or_tensor: HasShape | ArrayLike) -> bool:
        """Returns whether an array, or all arrays of a narrower spec, fit."""
        other: Any = spec_or_tensor
        shape = other.shape if hasattr(other, "shape") else jnp.shape(other)
        dtype = other.dtype if hasattr(other, "dtype") else jnp.result_type(other)
        if _on_device(self._dtype) != _on_device(dtype):
            return False
        if self._shape is None or shape is None:
            return True
        return len(shape) == len(self._shape) and all(
            mine is None or theirs is None or mine == theirs
            for mine, theirs in zip(self._shape, shape)
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self._shape == other._shape
            and self._dtype == other._dtype
        )

    def __hash__(self) -> int:
        return hash((self._shape, self._dtype))

    def __repr__(self) -> str:
        dtype = "string" if self._dtype == STRING else self._dtype
        return f"TensorSpec(shape={self._shape}, dtype={dtype}, name={self._name!r})"


def _on_device(dtype: DTypeLike) -> Any:
    """Returns the dtype that JAX makes of `dtype`."""
    if is_string(dtype):
        return STRING
    return jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
