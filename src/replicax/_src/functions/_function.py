"""`rx.function`: a function that runs as one compiled program.

A call looks up its program (`_programs.py`). What cannot be one program runs as Python:

- replicas whose arrays differ in shape (a last partial batch), where these cannot be one program;
- a function that iterates over a data set, or that uses strategies on different devices, runs as a
  Python loop in which each `strategy.run` is compiled.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from replicax._src._errors import OutOfRangeError, show_users_part
from replicax._src._local_path import absolute_path
from replicax._src._typing import PyTree
from replicax._src._warnings import warn
from replicax._src.context import (
    Frame,
    StrategyLike,
    current_frame,
    replica_devices_of,
    require_threads,
    world,
)
from replicax._src.devices import PlannedDevices
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._bound_function import BoundFunction, without_self
from replicax._src.functions._cache import FunctionCache
from replicax._src.functions._explaining import explain, explain_elsewhere
from replicax._src.functions._explanation import Explanation
from replicax._src.functions._export import export_function
from replicax._src.functions._many import EndOfData, take_items
from replicax._src.functions._many_calls import call_many, runs_inside
from replicax._src.functions._observing import Observer, as_python
from replicax._src.functions._proceeding import Call
from replicax._src.functions._programs import AsPython, Programs
from replicax._src.functions._retry import Uneven, UnevenShapes
from replicax._src.functions._returned import with_snapshots
from replicax._src.functions._signature import Signature
from replicax._src.variable import VariableGone

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

_NOTHING = contextlib.nullcontext()
_binding = threading.RLock()  # whose holder may collect garbage, and so run code of the user's
_MANY = 10  # uneven calls in a row, before there is a warning


function_watchers: list[Callable[[Function[..., Any]], None]] = []
"""Called with each function that is made: a recorder may wait for one."""


class Function(Generic[P, R]):
    """What `rx.function` returns. Call it as the function that it compiles."""

    def __init__(
        self,
        python_function: Callable[P, R],
        input_signature: PyTree = None,
        name: str | None = None,
    ):
        functools.update_wrapper(self, python_function)
        self._python_function = python_function
        self._name = name or getattr(python_function, "__name__", repr(python_function))
        self._signature = (
            None if input_signature is None else Signature(input_signature, python_function)
        )
        try:
            self._parameters = inspect.signature(python_function)
        except (TypeError, ValueError):  # some builtins have none
            self._parameters = None
        self._programs = Programs(self._name, python_function)
        self._uneven_calls = 0  # in a row
        self._bound: dict[int, tuple[Any, Function]] = {}
        self._runs = FunctionCache()
        self._observer: Observer | None = None
        for watcher in function_watchers:
            watcher(self)

    @property
    def python_function(self) -> Callable[P, R]:
        """The function that is compiled, as plain Python."""
        return self._python_function

    @property
    def input_signature(self) -> Any:
        """The specs of the arguments, if they were given."""
        return None if self._signature is None else self._signature.specs

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Function[Concatenate[T, Q], R], instance: object, owner: type | None = None
    ) -> BoundFunction[Q, R]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        known = self._bound.get(id(instance))
        if known is None or known[0]() is not instance:
            known = self._bind(instance)
        return BoundFunction(known[1], instance, self)

    def _bind(self, instance: object) -> tuple[Any, Function[..., R]]:
        """Returns the function as a method of `instance`, which it must not keep alive."""
        key = id(instance)
        try:
            reference: Any = weakref.ref(instance, lambda _: self._bound.pop(key, None))
        except TypeError:  # without weak references
            reference = lambda: instance  # noqa: E731

        python_function: Any = self._python_function

        @functools.wraps(python_function)
        def method(*args: object, **kwargs: object) -> Any:
            return python_function(reference(), *args, **kwargs)

        method.__signature__ = without_self(self._python_function)  # type: ignore[attr-defined]
        specs = None if self._signature is None else self._signature.specs
        bound = Function(method, specs, self._name)
        with _binding:  # all threads have that of the first
            known = self._bound.get(key)
            if known is None or known[0]() is not instance:
                known = self._bound[key] = (reference, bound)
        return known

    # ------------------------------------------------------------------ calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        require_threads("An rx.function")
        given, named = self._bound_arguments(args, kwargs)
        frame = current_frame()
        if runs_inside(frame):
            return self._python_function(*given, **named)
        try:
            return self._observed(self._python_function, None, frame, given, named)
        except BaseException as error:
            show_users_part(error)
            if type(error) is StopIteration:
                raise EndOfData(
                    f"{self._name}: the data ended: there is no next element. Make fewer calls, or "
                    "repeat the data."
                ) from error
            raise

    def steps(self, inputs: Iterable[Any], count: int | None = None) -> Any:
        """Calls the function on each of the next `count` items, in one compiled program.

        For steps that are small, where most of the time goes into starting them one by one.

        >>> import jax.numpy as jnp, replicax as rx
        >>> total = rx.Variable(0.0)
        >>> @rx.function
        ... def step(x):
        ...     total.assign_add(x)
        ...     return total * 10
        >>> step.steps([jnp.float32(1), jnp.float32(2), jnp.float32(3)])
        Array([10., 30., 60.], dtype=float32)

        Args:
          inputs: an iterable or an iterator (whose next items are taken); each item is the argument
            of one call.
          count: how many items to take; by default all there are.

        Returns:
          What the calls returned, each array with a first dimension of `count`.

        Raises:
          ValueError: there are no items.
          rx.errors.OutOfRangeError: there are fewer than `count`; those were used.
        """
        return self._many(inputs, count, last_only=False)

    def _many(
        self,
        inputs: Iterable[Any],
        count: int | None,
        last_only: bool,
        body: Callable[..., Any] | None = None,
    ) -> Any:
        """`steps`; `body` is a function that captures the same as that of this one, or that one."""
        items = take_items(inputs, count)
        results: Any = None
        if items:
            try:
                results = call_many(self, items, last_only, body or self._python_function)
            except BaseException as error:
                show_users_part(error)
                raise
        if count is not None and len(items) < count:
            raise OutOfRangeError(
                f"{self._name}: the data ended after {len(items)} of {count} steps. Those were "
                "made. Ask for fewer, or repeat the data."
            )
        if not items:
            raise ValueError(f"{self._name}.steps was given no items to call the function on.")
        return results

    def _run_on(
        self,
        strategy: StrategyLike,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`strategy.run(function, args, kwargs)`, as one program.

        `function` is the Python function of this one, or one that captures the same.
        """
        args, kwargs = self._bound_arguments(args, kwargs)
        frame = current_frame()

        def run(*args: object, **kwargs: object) -> Any:
            return world().run_replicas(
                strategy, replica_devices_of(strategy), function, args, kwargs
            )

        if runs_inside(frame):
            return run(*args, **kwargs)
        return self._observed(run, strategy, frame, args, kwargs)

    def _bound_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments in their places, whether they came by position or by name."""
        if self._signature is not None:
            return self._signature.checked(args, kwargs)
        if kwargs and self._parameters is not None:
            try:
                bound = self._parameters.bind(*args, **kwargs)
            except TypeError:  # the function itself says it best
                return args, kwargs
            return bound.args, bound.kwargs
        return args, kwargs

    def _observed(
        self,
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Calls from outside, where the observer may see it; returns the result."""
        if self._observer is None:
            return self._call(body, strategy, frame, args, kwargs)

        return self._observer.called(Call(self, strategy, frame), body, args, kwargs)

    def _call(
        self,
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        try:
            arguments = Arguments(args, kwargs)
        except Uneven as reason:
            return self._call_uneven(body, args, kwargs, reason)
        program = self._programs.find(body, strategy, frame, arguments)
        if isinstance(program, AsPython) and arguments.variants and not program.compiles_runs:
            shapes = UnevenShapes(f"the replicas have different shapes: {arguments.said_shapes()}")
            return self._call_uneven(body, args, kwargs, shapes)
        self._uneven_calls = 0
        if isinstance(program, AsPython):
            with world().compiling_runs(self._runs) if program.compiles_runs else _NOTHING:
                return with_snapshots(as_python(body)(*args, **kwargs))
        try:
            return program(arguments)
        except VariableGone:  # its name may stand for another one now
            self._programs.clear()
            return self._call(body, strategy, frame, args, kwargs)

    def _call_uneven(
        self,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: Uneven,
    ) -> Any:
        """Runs as Python, since replicas differ. If all batches do, somebody should know."""
        self._uneven_calls += 1
        if self._uneven_calls == _MANY and isinstance(reason, UnevenShapes):
            warn(
                f"rx.function {self._name!r} has run as plain Python {_MANY} times in a row, which "
                f"is slower than a compiled program: {reason}. If these are shares of a batch, "
                "let the number of replicas divide its size, or leave the rest of the rows out: "
                "dataset.batch(size, drop_remainder=True)."
            )
        with world().compiling_losses():
            return with_snapshots(as_python(body)(*args, **kwargs))

    def explain(
        self, *args: Any, on: str | PlannedDevices | None = None, **kwargs: Any
    ) -> Explanation:
        """Returns a report on the program for these arguments: what it sends, costs and donates.

        The arguments are as for a call; the function is traced and compiled, if it was not yet, but
        not run. Print it, or look at it in a notebook.

        >>> import jax.numpy as jnp, replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> @rx.function
        ... def total(x):
        ...     return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)
        >>> report = total.explain(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)]))
        >>> report.collectives
        [Collective(kind='all-reduce', tensors=1, bytes=4, times=1)]

        With `on`, it is what the program would be on devices that are not here:

        >>> plan = total.explain(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)]), on="cpu:16")
        >>> plan.plan.replicas, plan.plan.exchanges[0].kind
        (16, 'all-reduce')

        Args:
          *args: as for a call.
          on: `rx.config.planned_devices(...)`, or what that takes; each replica there has as many
            rows as one has here. The strategy must be a `MirroredStrategy` or a `TPUStrategy`.
          **kwargs: as for a call.
        """
        if on is not None:
            return explain_elsewhere(self, on, args, kwargs)
        return explain(self, args, kwargs)

    def export(
        self,
        path: str | os.PathLike[str],
        *specs: PyTree,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes the function and the variables that it reads into a new folder, to be served.

        The program is StableHLO, made by `jax.export`; a few lines load it, with JAX and NumPy
        alone. It only reads variables, and runs on one device: export a prediction.

        >>> import tempfile, jax.numpy as jnp, replicax as rx
        >>> w = rx.Variable([[1.0], [2.0]])
        >>> @rx.function
        ... def predict(x):
        ...     return x @ w
        >>> folder = tempfile.mkdtemp() + "/exported"
        >>> predict.export(folder, rx.TensorSpec([None, 2]))

        Args:
          path: of the folder, which must not exist.
          *specs: for each argument an `rx.TensorSpec`, or a structure of them; by default the
            `input_signature`. None in the first dimension is the size of the batch, the same for
            all arguments, and elsewhere a size of its own.
          platforms: where the program is to run, as `["cpu", "cuda"]`; by default where it runs
            now.
        """
        export_function(
            self._python_function,
            self._name,
            absolute_path(path, "path"),
            specs or self.input_signature or (),
            platforms,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        specs = None if self._signature is None else self._signature.specs
        return Function(copy.deepcopy(self._python_function, memo), specs, self._name)

    def __repr__(self) -> str:
        return f"<rx.function {self._name!r}>"


def as_function(fn: object) -> Function[..., Any] | None:
    """Returns the `Function` that `fn` is, as a function or a method; None for anything else."""
    if isinstance(fn, BoundFunction):
        return fn._function
    return fn if isinstance(fn, Function) else None
