"""How variables show themselves: as a text, and as a table in notebooks. None of it may fail."""

# Functions of JAX have types that say little.
# pyright: reportUnknownMemberType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _html
from replicax._src.devices import short_name

if TYPE_CHECKING:
    from replicax._src.variable._variable import Variable

Rows = list[tuple[Any, ...]]


def value_text(read: Callable[[], Any]) -> str:
    """Returns what `read()` gives, as a text; or why there is no value."""
    try:
        value = np.asarray(read())
    except Exception as error:
        return f"<unavailable: {type(error).__name__}>"
    return repr(value.item()) if value.ndim == 0 else repr(value)


def table(variable: Variable, rows: Rows) -> str:
    """Returns which device holds what, as HTML."""
    title = (
        f"{type(variable).__name__} {variable.name!r}: {variable.dtype}{list(variable.shape)}, "
        f"synchronization {variable.synchronization.name}, aggregation {variable.aggregation.name}"
    )
    layout = variable.layout
    what, where = ("copy", "") if layout.is_plain else ("part", f", {layout}")
    return _html.table(title + where, (what, "device", "value"), rows)


def copies(variable: Variable) -> Rows:
    """Returns a row for each copy of a variable."""
    rows: Rows = []
    for index, device in enumerate(variable._placement):
        try:
            value = _html.short(np.asarray(variable._settled().component(index)))
        except Exception as error:
            value = f"<unavailable: {type(error).__name__}>"
        rows.append((index, short_name(device), value))
    return rows


def parts(array: jax.Array) -> Rows:
    """Returns a row for each part of a variable's value that is here."""
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)

    def shown(part: Any) -> str:
        return _html.short(part if is_key else np.asarray(part))

    shards = array.addressable_shards
    return [(_place(each.index), short_name(each.device), shown(each.data)) for each in shards]


def _place(index: tuple[slice, ...]) -> str:
    """Returns which part of an array: "[0:4, :]"."""
    ends = [("" if i.start is None else i.start, "" if i.stop is None else i.stop) for i in index]
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in ends) + "]"
