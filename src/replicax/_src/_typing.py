"""Types that annotations share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer as Tracer
from jax.typing import DTypeLike as DTypeLike

if TYPE_CHECKING:
    from jaxlib._jax import Device as Device  # jax.Device is a variable to type checkers
    from typing_extensions import override as override
else:
    Device = jax.Device
    if sys.version_info >= (3, 12):
        from typing import override as override
    else:

        def override(method: Any) -> Any:
            """Marks a method that overrides one of a base class, as `typing.override` does."""
            return method


PyTree = Any
"""A nested structure of containers that JAX or `_tree.py` knows, with any leaves."""
