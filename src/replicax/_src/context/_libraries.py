"""Hooks for other libraries, such as Keras, which `integrations` fills when it is imported."""

import contextlib
from collections.abc import Callable, Generator

joining_hooks: list[Callable[[bool], None]] = []
"""Called to integrate libraries that were imported in the meantime: before a strategy is entered, a
function is traced or a data set is made outside of scopes (True), and after a strategy is left
(False)."""

model_fn_scopes: list[Callable[[], contextlib.AbstractContextManager[None]]] = []
"""Entered around each call of an estimator's `model_fn`: the names of what a library makes there
are counted from the start again, its variables are ours also without a strategy, and its losses
are means over the rows of one replica."""


def let_libraries_join(in_time: bool = True) -> None:
    """Calls the `joining_hooks`."""
    for hook in joining_hooks:
        hook(in_time)


@contextlib.contextmanager
def calling_a_model_fn() -> Generator[None]:
    """Around a call of an estimator's `model_fn`: enters the `model_fn_scopes`."""
    with contextlib.ExitStack() as stack:
        for scope in model_fn_scopes:
            stack.enter_context(scope())
        yield
