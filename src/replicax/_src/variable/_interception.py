"""Who sees the reads and writes of variables before the variables do.

Differentiation puts a tracer in the place of a variable's value; compiling turns reads into inputs
and writes into outputs. Both push an interceptor on this thread's stack while the user's function
runs; the innermost is asked first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import jax

from replicax._src.context import thread_state

# JAX keeps what it traced by the function and this value. Where variables stand for other values
# than before, a value of its own makes JAX look again into jitted functions, bodies of loops and
# the like, which may read them: `with trace_stamp(object()):`.
trace_stamp = jax.make_user_context(None)


class Interceptor(Protocol):
    """What `value_and_grad` and compiled functions implement."""

    def read(self, variable: Any) -> Any | None:
        """The value to use in place of the variable's own, or None to ask the next one."""

    def write(self, variable: Any, kind: str, value: Any) -> bool:
        """True if the write was taken over; False to let it go on."""
        ...

    def written(self, variable: Any) -> None:
        """Called after a write went through to the variable."""


@contextlib.contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """`interceptor` sees the variables first on this thread."""
    stack = thread_state.interceptors
    stack.append(interceptor)
    try:
        yield
    finally:
        stack.pop()


def active_interceptors() -> list[Any]:
    """The interceptors of this thread, outermost first."""
    return thread_state.interceptors
