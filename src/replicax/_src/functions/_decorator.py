"""`rx.function`, the decorator: what it takes, and what it refuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, overload

from replicax._src._typing import PyTree
from replicax._src.functions._bound_function import BoundFunction
from replicax._src.functions._function import Function, P, R


@overload
def function(
    func: None = ...,
    input_signature: PyTree = ...,
    autograph: bool = ...,
    jit_compile: bool | None = ...,
    reduce_retracing: bool = ...,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
@overload
def function(
    func: staticmethod[P, R],
    input_signature: PyTree = ...,
    autograph: bool = ...,
    jit_compile: bool | None = ...,
    reduce_retracing: bool = ...,
) -> staticmethod[P, R]: ...
@overload
def function(
    func: Callable[P, R],
    input_signature: PyTree = ...,
    autograph: bool = ...,
    jit_compile: bool | None = ...,
    reduce_retracing: bool = ...,
) -> Function[P, R]: ...


def function(
    func: object = None,
    input_signature: PyTree = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Compiles a function into one program, with its variables as state. Also a decorator.

    It may be a function that calls `strategy.run` and `strategy.reduce`, a replica function that is
    passed to `strategy.run`, a method, or a function without a strategy. Arrays and per-replica
    values among its arguments are inputs; Python values are constants, and it is compiled again
    for another value. Variables that it reads or changes are found automatically; those that it
    changes are updated in place.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)
    >>> @rx.function
    ... def step(x):
    ...     def replica_fn(x):
    ...         total.assign_add(x)
    ...         return x * x
    ...     return strategy.reduce("SUM", strategy.run(replica_fn, args=(x,)), axis=None)
    >>> step(rx.distribute.PerReplica([1.0, 2.0]))
    Array(5., dtype=float32)
    >>> total.numpy()
    array(3., dtype=float32)

    Args:
      func: the function.
      input_signature: a list with a `rx.TensorSpec`, or the `element_spec` of a data set, or a
        structure of them, for each argument. Other arguments are then refused, and Python numbers
        become arrays.
      autograph: kept for ported code. Python control flow on arrays is an error that says what to
        write instead.
      jit_compile: kept for ported code; everything is compiled.
      reduce_retracing: kept for ported code.
      experimental_implements: kept for ported code.
      experimental_autograph_options: kept for ported code.
      experimental_attributes: kept for ported code.
      experimental_relax_shapes: kept for ported code.
      experimental_compile: kept for ported code.
      experimental_follow_type_hints: kept for ported code.

    Returns:
      A `Function`, which is called as `func` is; without `func`, a decorator.
    """
    if func is None:
        return lambda func: function(func, input_signature)
    if isinstance(func, Function | BoundFunction):
        return func
    if isinstance(func, staticmethod | classmethod):
        return type(func)(function(func.__func__, input_signature))
    if not callable(func):
        raise TypeError(
            f"rx.function takes a function; got {func!r}. Write @rx.function, or "
            "@rx.function(input_signature=[...])."
        )
    if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func):
        raise TypeError(
            f"rx.function cannot compile {func.__name__!r}, which is a generator or a coroutine. "
            "Compile the function that does one step, and loop in Python."
        )
    return Function(func, input_signature)
