"""`rx.experimental.Optional`: a value that may not be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replicax._src.data._elements import Element, ElementSpec, as_element
from replicax._src.data._node import spec_of


class Optional:
    """A value, or nothing: what `iterator.get_next_as_optional()` returns.

    >>> import replicax as rx
    >>> optional = rx.experimental.Optional.from_value(42)
    >>> optional.has_value(), optional.get_value()
    (True, 42)
    >>> rx.experimental.Optional.empty(None).has_value()
    False
    """

    _NOTHING = object()

    def __init__(self, value: Element, spec: Callable[[], Any]):
        self._value = value
        self._spec = spec  # asked when somebody wants it: it may have to be read

    @classmethod
    def from_value(cls, value: Element) -> Optional:
        """Returns an Optional that has this value."""
        return cls(value, lambda: spec_of(as_element(value)))

    @classmethod
    def empty(cls, element_spec: ElementSpec) -> Optional:
        """Returns an Optional without a value; `element_spec` is what that would look like."""
        return cls(cls._NOTHING, lambda: element_spec)

    def has_value(self, name: str | None = None) -> bool:
        """Whether there is a value."""
        return self._value is not self._NOTHING

    def get_value(self, name: str | None = None) -> Any:
        """Returns the value; raises a `ValueError` if there is none."""
        if not self.has_value():
            raise ValueError("The Optional has no value: ask has_value() first.")
        return self._value

    @property
    def element_spec(self) -> Any:
        """What the value looks like."""
        return self._spec()

    def __repr__(self) -> str:
        return f"Optional({self._value!r})" if self.has_value() else "Optional.empty"
