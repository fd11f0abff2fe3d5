"""Somebody who sees each call of a compiled function: a recorder, or a replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from replicax._src._typing import override
from replicax._src.variable import Variable, set_storage, settled_storage


@final
@dataclasses.dataclass(frozen=True)
class Examined:
    """A program, and what a call would give it.

    Attributes:
      program: as it was traced; replicas meet on the axis `REPLICA_AXIS`.
      replicas: how many there are here.
      inputs: for each input of the program what each replica has, or one array for all.
      input_names: what they are.
      output_names: what its results are.
    """

    program: ClosedJaxpr
    replicas: int
    inputs: list[list[Any]]
    input_names: list[str]
    output_names: list[str]


class Proceed(Protocol):
    """A call that an observer is to carry out."""

    @property
    def by_run(self) -> bool:
        """Whether it is `strategy.run` of the function."""
        ...

    def __call__(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Makes the call: with the function that is compiled, and the arguments."""
        ...

    def examined(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Examined | str:
        """Returns the program of the call and its inputs; or why it is none."""
        ...

    def variables(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Variable], Sequence[Variable]] | None:
        """Returns what the program of the call changes, and reads alone; None if there is none."""
        ...


class Observer(Protocol):
    """Is asked to carry out each call that is no part of another program."""

    def called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Returns what the caller gets.

        Args:
          proceed: makes the call.
          body: what is compiled. `proceed` may be given a `Substitute` in its place, always of the
            same function, since a program is kept by its arguments alone.
          args: of the call.
          kwargs: of the call.
        """
        ...


class Substitute:
    """A function that an observer has compiled in the place of the user's."""

    def __init__(self, body: Callable[..., Any], owner: object):
        """
        Args:
          body: the function, which refers to `owner`.
          owner: programs of substitutes of the same owner are the same.
        """
        self._body = body
        self.key = id(owner)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._body(*args, **kwargs)

    def as_python(self, *args: object, **kwargs: object) -> Any:
        """Calls it where no program is made."""
        return self._body(*args, **kwargs)


@final
class Discarding(Substitute):
    """A function that returns with its result whether its updates of variables are discarded.

    Called, it returns a tuple, whose last item is an array of one truth value that is the same on
    all replicas. Where it is true, the program leaves all variables as they were.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        owner: object,
        variables: Callable[[], Sequence[Variable]],
    ):
        """
        Args:
          body: the function, which refers to `owner`.
          owner: programs of substitutes of the same owner are the same.
          variables: those that it may change, for calls that run as Python.
        """
        super().__init__(body, owner)
        self._variables = variables

    @override
    def as_python(self, *args: object, **kwargs: object) -> Any:
        before = [(each, settled_storage(each)) for each in self._variables()]
        copies = [
            (each, stored.kind.holding(stored.mesh, jnp.copy(stored.assembled)))
            for each, stored in before
        ]
        found = self._body(*args, **kwargs)
        flag = found[-1]
        if bool(flag.values[0] if hasattr(flag, "values") else flag):
            for variable, storage in copies:
                set_storage(variable, storage)
        return found


def as_python(body: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what is called in the place of a program of `body`."""
    return body.as_python if isinstance(body, Substitute) else body
