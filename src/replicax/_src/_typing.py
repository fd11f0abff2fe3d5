"""Types that annotations share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
from jax.core import Tracer as Tracer
from jax.typing import DTypeLike as DTypeLike

if TYPE_CHECKING:
    from jax.extend.core import Literal, Var
    from jax.typing import ArrayLike
    from typing_extensions import override as override

    class Device:
        """`jax.Device`, of which type checkers know nothing: what we use of it."""

        id: int
        platform: str
        device_kind: str
        process_index: int
        client: Any
        coords: tuple[int, ...]
        core_on_chip: int
        slice_index: int

        def memory_stats(self) -> dict[str, int] | None: ...
else:
    Device = jax.Device
    if sys.version_info >= (3, 12):
        from typing import override as override
    else:

        def override(method: Any) -> Any:
            """Marks a method that overrides one of a base class, as `typing.override` does."""
            return method


class HasArray(Protocol):
    """An object that stands for an array, as variables and values of replicas do."""

    def __jax_array__(self) -> jax.Array:
        """Returns the array."""
        ...


ArrayInput: TypeAlias = "ArrayLike | HasArray | Sequence[Any]"
"""What becomes an array: an array, a number, a variable, or a nested list of numbers."""
KeyPath: TypeAlias = tuple[Any, ...]
"""Where a leaf is in a structure: the keys of `jax.tree_util`, from the root."""
Atom: TypeAlias = "Var | Literal"
"""An operand of an operation of a traced program."""
PyTree: TypeAlias = Any
"""A nested structure of containers that JAX or `_tree.py` knows, with any leaves."""
