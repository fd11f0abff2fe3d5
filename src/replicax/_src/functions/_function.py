"""`rx.function`: a function that runs as one compiled program.

The first call with new shapes traces the function (`_trace.py`) and compiles it (`_program.py`);
later ones look the program up. What cannot be one program runs as Python:

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
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from replicax._src import _jax_internals
from replicax._src._errors import OutOfRangeError, add_note, show_users_part
from replicax._src._typing import Device, PyTree
from replicax._src._warnings import warn
from replicax._src.context import (
    Frame,
    StrategyLike,
    current_frame,
    let_libraries_join,
    replica_devices_of,
    require_threads,
    serial_of,
    world,
)
from replicax._src.devices import PlannedDevices
from replicax._src.functions._arguments import Arguments, is_stream
from replicax._src.functions._as_python import AsPython
from replicax._src.functions._bound_function import BoundFunction, without_self
from replicax._src.functions._cache import FunctionCache
from replicax._src.functions._elsewhere import as_plan
from replicax._src.functions._explaining import explain, explain_elsewhere
from replicax._src.functions._explanation import Explanation, Retraces
from replicax._src.functions._export import export_function
from replicax._src.functions._first_guess import eager_replica, first_guess
from replicax._src.functions._keys import ByIdentity
from replicax._src.functions._making import Making
from replicax._src.functions._many import EndOfData, take_items
from replicax._src.functions._many_calls import call_many, runs_inside
from replicax._src.functions._observing import Observer, Substitute, as_python
from replicax._src.functions._place import Place
from replicax._src.functions._planned_program import program_class
from replicax._src.functions._proceeding import Call
from replicax._src.functions._program import Program
from replicax._src.functions._remedies import remedy_for
from replicax._src.functions._retry import (
    NotOneProgram,
    NumberNeeded,
    OnlyPython,
    OtherDevicesNeeded,
    RefNeeded,
    Uneven,
    UnevenShapes,
)
from replicax._src.functions._signature import Signature
from replicax._src.functions._snapshot import with_snapshots
from replicax._src.variable import Variable, VariableGone

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

_NOTHING = contextlib.nullcontext()
_MANY = 10  # uneven calls in a row, before there is a warning
_MANY_REPLICAS = 8  # which a function may be traced for one by one, before there is a warning


function_watchers: list[Callable[[Function[..., Any]], None]] = []
"""Called with each function that is made: a recorder may wait for one."""


class _State:
    """The programs of a function, or of a method for one object."""

    def __init__(self) -> None:
        self.programs: dict[Any, Any] = {}
        self.has_created = False
        self.devices: tuple[Device, ...] | None = None  # found out by an earlier trace
        self.retraces = Retraces()
        self.uneven_calls = 0  # in a row

    def left_to_python(self, key: Hashable, how: AsPython) -> AsPython:
        self.programs[key] = how
        return how


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
        self._state = _State()
        self._bound: dict[int, tuple[Any, Function]] = {}
        self._runs = FunctionCache()
        self._lock = threading.RLock()
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
        return BoundFunction(known[1], instance)

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
        self._bound[key] = (reference, bound)
        return self._bound[key]

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

        def run(*args: object, **kwargs: object) -> Any:
            return world().run_replicas(
                strategy, replica_devices_of(strategy), function, args, kwargs
            )

        return self._observed(run, strategy, current_frame(), args, kwargs)

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
        state = self._state
        try:
            arguments = Arguments(args, kwargs)
        except Uneven as reason:
            return self._call_uneven(body, args, kwargs, reason)
        program = self._find(body, strategy, frame, arguments)
        if isinstance(program, AsPython) and arguments.variants and not program.compiles_runs:
            shapes = UnevenShapes(f"the replicas have different shapes: {arguments.said_shapes()}")
            return self._call_uneven(body, args, kwargs, shapes)
        state.uneven_calls = 0
        if isinstance(program, AsPython):
            with world().compiling_runs(self._runs) if program.compiles_runs else _NOTHING:
                return with_snapshots(as_python(body)(*args, **kwargs))
        try:
            return program(arguments)
        except VariableGone:  # its name may stand for another one now
            state.programs.clear()
            return self._call(body, strategy, frame, args, kwargs)

    def _call_uneven(
        self,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: Uneven,
    ) -> Any:
        """Runs as Python, since replicas differ. If all batches do, somebody should know."""
        self._state.uneven_calls += 1
        if self._state.uneven_calls == _MANY and isinstance(reason, UnevenShapes):
            warn(
                f"rx.function {self._name!r} has run as plain Python {_MANY} times in a row, which "
                f"is slower than a compiled program: {reason}. If these are shares of a batch, "
                "let the number of replicas divide its size, or leave the rest of the rows out: "
                "dataset.batch(size, drop_remainder=True)."
            )
        with world().compiling_losses():
            return with_snapshots(as_python(body)(*args, **kwargs))

    def _find(
        self,
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        arguments: Arguments,
    ) -> Any:
        """Returns the program for these arguments, traced if there is none yet."""
        programs = self._state.programs
        key = (
            arguments.key,
            serial_of(frame.strategy),
            frame.replica_context is None,
            None if strategy is None else serial_of(strategy),
            eager_replica(frame),
            isinstance(body, Substitute),
            _jax_internals.trace_settings(),
        )
        program = programs.get(key)
        if program is not None:
            return program
        if any(is_stream(leaf) for leaf in arguments.leaves):
            return AsPython("it iterates over its argument", compiles_runs=True)
        with self._lock:
            program = programs.get(key)
            return program or self._traced(key, body, strategy, frame, arguments)

    # ------------------------------------------------------------------ tracing

    def _traced(
        self,
        key: tuple[Hashable, ...],
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        arguments: Arguments,
    ) -> Any:
        state = self._state
        let_libraries_join()
        place = first_guess(strategy, frame, arguments, state.devices, self._python_function)
        given = arguments
        refs: list[Variable] = []
        making = Making(not state.has_created)
        while True:
            try:
                if arguments.have_empty and place.mesh is not None:
                    # JAX cannot take arrays without items into a program for several devices.
                    raise Uneven("an argument has no items")
                program = self._trace_at(place, body, arguments, making, refs)
            except OtherDevicesNeeded as needed:
                place, arguments = Place(needed.devices), given
                continue
            except NumberNeeded:
                assert place.mesh is not None
                self._note_replicas_one_by_one(place.mesh.size)
                arguments = given.for_each_replica(place.mesh.size)
                continue
            except RefNeeded as needed:
                refs.append(needed.variable)
                continue
            except (NotOneProgram, OnlyPython) as reason:
                if making.is_unchecked:
                    continue  # to see whether Python will do what this trace did
                is_by_runs = isinstance(reason, NotOneProgram)
                return state.left_to_python(key, AsPython(str(reason), compiles_runs=is_by_runs))
            break
        state.devices = place.devices
        if place.replica in (None, 0):  # other eager replicas do what the first one does
            state.retraces.note(self._name, arguments, key[1:-1], key[-1])
        state.has_created = state.has_created or program.made_variables
        if program.creates:
            # The next call finds the variables made, and takes another path through the function.
            state.has_created = True
        else:
            state.programs[key] = program
            for look in arguments.looks:
                if isinstance(look, ByIdentity):
                    look.when_gone(_forget, weakref.ref(state), key)
        return program

    def _note_replicas_one_by_one(self, count: int) -> None:
        if count > _MANY_REPLICAS:
            warn(
                f"rx.function {self._name!r} is traced for each of its {count} replicas, since "
                "Python needs the number of each: `if context.replica_id_in_sync_group == 0:`, for "
                "example. That takes long. One trace serves all if jax.numpy works with the "
                "number: jnp.where(number == 0, a, b), or jax.lax.cond."
            )

    def _trace_at(
        self,
        place: Place,
        body: Callable[..., Any],
        arguments: Arguments,
        making: Making,
        refs: Sequence[Variable],
    ) -> Program:
        try:
            return program_class(place)(body, self._python_function, arguments, place, making, refs)
        except Exception as error:
            add_note(error, f"(while rx.function traced {self._name!r}: {remedy_for(error)})")
            raise

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
            return explain_elsewhere(self, as_plan(on), args, kwargs)
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
            os.fspath(path),
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


def _forget(state: weakref.ref[_State], key: Hashable) -> None:
    found = state()
    if found is not None:
        found.programs.pop(key, None)
