"""`rx.value_and_grad(..., compile=True)`: the loss and its gradient as one compiled program.

Programs are kept by what the loss captures (see `_captures.py`). A first, abstract trace finds
which variables the loss reads and writes; the real one takes their values as inputs, and returns
what it would have written, which is then assigned as usual.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from replicax import _jax_internals
from replicax._arrays import as_array
from replicax._errors import add_note
from replicax._typing import Tracer
from replicax.context import get_replica_context, get_strategy
from replicax.training._captures import Capture
from replicax.training._substitution import checked_loss
from replicax.variable import MirroredVariable, Variable, intercepting, trace_stamp

_KEPT_PROGRAMS = 256
_WARN_EVERY_CONSTANTS = 12


@dataclasses.dataclass
class _Program:
    """One compiled loss, for one set of captured constants.

    It holds variables weakly: a model that the user drops takes its programs along.
    """

    call: Callable[..., Any]
    differentiated: list[weakref.ref[Variable]]
    others: list[weakref.ref[Variable]]
    writes: list[tuple[weakref.ref[Variable], str]]
    kept: list[Any] = dataclasses.field(default_factory=list)

    def keep(self, objects: Iterable[Any], key: Any) -> None:
        """The key has these objects' ids in it: it is void when one of them is gone."""
        for each in {id(each): each for each in objects}.values():
            try:
                weakref.finalize(each, _programs.pop, key, None).atexit = False
            except TypeError:  # without weak references; it stays, and so does its id
                self.kept.append(each)


def _alive(reference: weakref.ref[Variable]) -> Variable:
    variable = reference()
    assert variable is not None  # the caller's loss holds it
    return variable


class _History:
    """How often a loss was compiled for other constants, and how often a program was found."""

    def __init__(self) -> None:
        self._constants: set[int] = set()
        self.found = 0

    def note(self, loss_fn: Callable[[], Any], capture: Capture) -> None:
        """Warns if the loss is compiled at about every step."""
        known = len(self._constants)
        self._constants.add(hash(capture.key))
        compiled = len(self._constants)
        if compiled == known or compiled % _WARN_EVERY_CONSTANTS:
            return
        if self.found < compiled * get_strategy().num_replicas_in_sync:
            warnings.warn(
                f"The loss {getattr(loss_fn, '__qualname__', loss_fn)!r} was compiled {compiled} "
                "times by rx.value_and_grad(..., compile=True), because a Python value or an "
                "object's attribute that it captures keeps changing. Capture arrays instead, in "
                "local variables: jnp.asarray(step), x = self.x.",
                stacklevel=5,
            )


_PER_REPLICA = object()  # the program depends on the replica's number: look again with it
_programs: collections.OrderedDict[Any, Any] = collections.OrderedDict()
_histories: collections.defaultdict[Any, _History] = collections.defaultdict(_History)
_lock = threading.Lock()
_refused: set[Any] = set()  # the code of losses that cannot be compiled


def compiled_value_and_grad(
    loss_fn: Callable[[], Any], variables: list[Variable], has_aux: bool
) -> tuple[Any, dict[int, jax.Array]]:
    """As the eager one in `_gradients.py`, from a compiled program."""
    capture = Capture(loss_fn)
    return _evaluated(_find_program(loss_fn, capture, variables, has_aux), capture, has_aux)


def compiled_if_possible(
    loss_fn: Callable[[], Any], variables: list[Variable], has_aux: bool
) -> tuple[Any, dict[int, jax.Array]] | None:
    """The same; None for a loss that cannot be compiled, because replicas meet in it perhaps."""
    capture = Capture(loss_fn)
    codes = tuple(capture.codes)
    left_over = any(isinstance(array, Tracer) for array in capture.arrays)  # of an earlier trace
    if codes in _refused or left_over:
        return None
    try:
        program = _find_program(loss_fn, capture, variables, has_aux)
    except Exception:  # if it fails as plain Python too, that tells why
        _refused.add(codes)
        return None
    return _evaluated(program, capture, has_aux)


def _evaluated(
    program: _Program, capture: Capture, has_aux: bool
) -> tuple[Any, dict[int, jax.Array]]:
    differentiated = [_alive(reference) for reference in program.differentiated]
    (loss, aux, writes), gradients = program.call(
        [variable._array() for variable in differentiated],
        [_alive(reference)._array() for reference in program.others],
        [as_array(x) if isinstance(x, np.ndarray) else x for x in capture.arrays],
    )
    for (reference, kind), value in zip(program.writes, writes, strict=True):
        _alive(reference)._change(kind, value)
    found = {id(v): g for v, g in zip(differentiated, gradients, strict=True)}
    return ((loss, aux) if has_aux else loss), found


def _find_program(
    loss_fn: Callable[[], Any], capture: Capture, variables: list[Variable], has_aux: bool
) -> _Program:
    context = get_replica_context()
    wanted = tuple(id(variable) for variable in variables)
    # The shapes too: for another shape the loss may read and write other variables.
    shapes = tuple((array.shape, array.dtype) for array in capture.arrays)
    key: Any = (capture.key, shapes, has_aux, wanted, id(get_strategy()), context is None)
    key = (*key, _jax_internals.trace_settings(with_device=False))
    history = _histories[tuple(capture.codes)]
    with _lock:
        program = _programs.get(key)
        per_replica = program is _PER_REPLICA
        if per_replica:
            assert context is not None
            key = (*key, context._replica_id)
            program = _programs.get(key)
        if program is not None:
            _programs.move_to_end(key)
            history.found += 1
            return program
    # Not under the lock: the user's code runs here, and may compile a loss of its own.
    reads_before = 0 if context is None else context._id_reads
    program = _trace(capture, variables, has_aux)
    history.note(loss_fn, capture)
    with _lock:
        if context is not None and context._id_reads != reads_before and not per_replica:
            _programs[key] = _PER_REPLICA
            key = (*key, context._replica_id)
        program.keep([*capture.kept, *variables, get_strategy()], key)
        _programs[key] = program
        while len(_programs) > _KEPT_PROGRAMS:
            _programs.popitem(last=False)
    return program


def _trace(capture: Capture, variables: list[Variable], has_aux: bool) -> _Program:
    try:
        return _traced(capture, variables, has_aux)
    except Exception as error:
        add_note(
            error,
            "(in a loss that rx.value_and_grad(..., compile=True) compiles; without compile=True "
            "it runs as plain Python)",
        )
        raise


def _traced(capture: Capture, variables: list[Variable], has_aux: bool) -> _Program:
    loss_with = capture.plan()
    seen = _Discovery()
    with intercepting(seen), trace_stamp(object()):
        jax.eval_shape(lambda arrays: checked_loss(loss_with(arrays)(), has_aux), capture.arrays)
    wanted = {id(variable) for variable in variables}
    differentiated = [variable for variable in seen.read_variables if id(variable) in wanted]
    others = [variable for variable in seen.read_variables if id(variable) not in wanted]

    def program(values: list[Any], other_values: list[Any], arrays: list[Any]) -> Any:
        def evaluate(values: list[Any]) -> tuple[Any, Any]:
            replay = _Replay([*zip(differentiated, values), *zip(others, other_values)])
            with intercepting(replay):
                loss, aux = checked_loss(loss_with(arrays)(), has_aux)
            return loss, (loss, aux, [jax.lax.stop_gradient(x) for x in replay.written_values])

        gradients, results = jax.grad(evaluate, has_aux=True)(values)
        return results, gradients

    inputs = (
        [variable._template for variable in differentiated],
        [variable._template for variable in others],
        capture.arrays,
    )
    return _Program(
        _compiled(program, inputs),
        [weakref.ref(variable) for variable in differentiated],
        [weakref.ref(variable) for variable in others],
        [(weakref.ref(variable), kind) for variable, kind in seen.writes],
    )


def _compiled(program: Callable[..., Any], inputs: tuple[list[Any], ...]) -> Callable[..., Any]:
    """`program` traced now, once for all devices, so that it needs the user's objects no more."""
    with trace_stamp(object()):
        traced, outputs = jax.make_jaxpr(program, return_shape=True)(*inputs)
    run = jax.jit(jaxpr_as_fun(traced))
    structure = jax.tree_util.tree_structure(outputs)

    def call(*inputs: list[Any]) -> Any:
        flat = [value for group in inputs for value in group]
        return jax.tree_util.tree_unflatten(structure, run(*flat))

    return call


class _Discovery:
    """Notes which variables a loss reads and writes, and keeps the writes from happening."""

    def __init__(self) -> None:
        self._read: dict[int, Variable] = {}
        self.writes: list[tuple[Variable, str]] = []

    @property
    def read_variables(self) -> list[Variable]:
        return list(self._read.values())

    def read(self, variable: Variable) -> Any | None:
        self._read.setdefault(id(variable._root), variable._root)
        with jax.ensure_compile_time_eval():  # sync-on-read variables add up their copies
            return variable._read()

    def write(self, variable: Variable, kind: str, value: Any) -> bool:
        self.writes.append((variable, kind))
        if kind != "assign":
            self.read(variable)
        return True

    def written(self, variable: Variable) -> None:
        pass


class _Replay:
    """Answers reads with the program's inputs, and collects what is written."""

    def __init__(self, values: Iterable[tuple[Variable, Any]]):
        self._values = {id(variable): value for variable, value in values}
        self._unknown: set[int] = set()
        self.written_values: list[Any] = []

    def read(self, variable: Variable) -> Any | None:
        key = id(variable._root)
        if key in self._unknown:
            raise RuntimeError(
                f"The compiled loss reads variable {variable.name!r} after assigning it. The new "
                "value is combined over the replicas, which happens after the compiled part. Read "
                "it before the assignment, or drop compile=True."
            )
        return self._values.get(key)

    def write(self, variable: Variable, kind: str, value: Any) -> bool:
        self.written_values.append(value)
        root = variable._root
        if isinstance(root, MirroredVariable) and get_strategy().num_replicas_in_sync > 1:
            self._unknown.add(id(root))
        elif kind == "assign":
            self._values[id(root)] = value
        else:
            old = self._values[id(root)]
            self._values[id(root)] = old + value if kind == "assign_add" else old - value
        return True

    def written(self, variable: Variable) -> None:
        pass
