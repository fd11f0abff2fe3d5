"""`TensorSpec`: what an array looks like, for the `input_signature` of a function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


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

    def __init__(self, shape: Any = None, dtype: Any = jnp.float32, name: str | None = None):
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
        self._dtype = jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
        self._name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """The spec of an array."""
        return cls(jnp.shape(tensor), jnp.result_type(tensor), name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """The spec of anything with `shape` and `dtype`."""
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

    def is_compatible_with(self, other: Any) -> bool:
        """Whether an array, or all arrays of a narrower spec, fit."""
        shape = other.shape if hasattr(other, "shape") else jnp.shape(other)
        dtype = other.dtype if hasattr(other, "dtype") else jnp.result_type(other)
        if self._dtype != jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True):
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
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype}, name={self._name!r})"
