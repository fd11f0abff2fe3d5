"""What `rx.function` is for one object whose method it decorates."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from replicax._src.functions._function import Function

P = ParamSpec("P")
R = TypeVar("R")


class BoundFunction(Generic[P, R]):
    """A compiled method of one object."""

    def __init__(self, function: Function[P, R], instance: object, unbound: Function[..., R]):
        self._function = function
        self.__self__ = instance
        self.__func__ = unbound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature | None:
        return self._function._parameters

    @property
    def __name__(self) -> str:
        return self._function._name

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._function.__doc__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundFunction) and other._function is self._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> Any:
        return _bind, (self.__func__, self.__self__)


def _bind(function: Any, instance: object) -> Any:
    return function.__get__(instance, type(instance))


def without_self(fn: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a method, as seen by those who call it on an object."""
    signature = inspect.signature(fn)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
