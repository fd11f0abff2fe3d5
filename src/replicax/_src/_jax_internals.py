"""Every reach into JAX's private API, in one place, with the reason for each.

But for the compilation cache (`_jax_cache.py`) and arrays without values (`_planned_arrays.py`),
nothing else in replicax imports `jax._src`. The names that are used are listed in `_versions.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import api_util as _api_util
from jax._src import array as _array
from jax._src import config as _config
from jax._src import core as _core
from jax._src import distributed as _distributed
from jax._src import xla_bridge as _xla_bridge
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.lax import lax as _lax
from jax.experimental import topologies as _topologies
from jax.extend import linear_util as _linear_util
from jax.extend import source_info_util as _source_info_util
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.sharding import AbstractMesh, use_abstract_mesh

from replicax._src._planned_arrays import (
    PlannedArray,
    current_shapes_only,
    is_planned,
)

# The whole surface of a concrete array; jax.Array declares a part of it.
ARRAY_ATTRIBUTES = frozenset(dir(_array.ArrayImpl))
ConcreteArray = _array.ArrayImpl  # the type of every array with a value, but for random keys
ThreadSettings = Sequence[tuple[Any, Any]]
_NO_MESH = AbstractMesh((), ())


def _if_there(module: str, name: str) -> Any:
    """Returns a private name of JAX that makes something quicker; None if JAX has none."""
    try:
        return getattr(importlib.import_module(f"jax._src.{module}"), name, None)
    except ImportError:
        return None


_batched_device_put = getattr(_if_there("lib", "xla_client"), "batched_device_put", None)
_eval_jaxpr = _if_there("lax.eval_jaxpr", "eval_jaxpr_p")


def uncommitted(array: jax.Array) -> jax.Array:
    """Returns the same single-device buffer, free to be combined with arrays of other devices.

    JAX refuses to mix arrays that are *committed* to different devices. TensorFlow copies instead,
    and its users write `sum(strategy.experimental_local_results(x))`. There is no public way to
    clear the flag without a copy. Arrays over several devices are always committed.
    """
    if not isinstance(array, _array.ArrayImpl) or not array.committed or len(array._arrays) > 1:
        return array
    buffers: Any = [array]
    return _array.ArrayImpl(array.aval, array.sharding, buffers, committed=False, _skip_checks=True)


def local_shards(array: jax.Array) -> list[jax.Array]:
    """Returns this process's shards in device order, 50 times as fast as `addressable_shards`."""
    if isinstance(array, _array.ArrayImpl):
        return list[jax.Array](array._arrays)
    return [shard.data for shard in array.addressable_shards]  # random keys, for example


def uncommitted_shards(
    array: _array.ArrayImpl, places: Sequence[jax.sharding.Sharding]
) -> list[jax.Array]:
    """Returns the shards of an array that each device has a copy of, `uncommitted`.

    Args:
      array: the array; not of random keys.
      places: the sharding of each shard, which a question for it would make again.
    """
    shards: Any = array._arrays
    aval = shards[0].aval
    return [
        _array.ArrayImpl(aval, place, [shard], committed=False, _skip_checks=True)
        for shard, place in zip(shards, places, strict=True)
    ]


def explicit_transfers() -> contextlib.AbstractContextManager[None]:
    """Inside the block, transfers are what `jax.device_put` makes, which transfer guards let pass.

    `batched_device_put`, below, is also what JAX calls where a user meant no transfer.
    """
    return _config.explicit_device_put_scope()


def put_on_each(
    components: Sequence[Any], place: jax.sharding.NamedSharding, devices: Sequence[Any]
) -> jax.Array:
    """Returns an array laid out as `place`, whose buffers are the components of the devices.

    `jax.device_put` of the components and `make_array_from_single_device_arrays` do the same, and
    take ten times as long.
    """
    buffers: Any = [put_on_one(each, device) for each, device in zip(components, devices)]
    return _array.ArrayImpl(buffers[0].aval, place, buffers, committed=True, _skip_checks=True)


def put_on_one(array: Any, device: Any) -> jax.Array:
    """Puts a NumPy array on a device, uncommitted; `jax.device_put` takes twice as long."""
    if is_planned(device):
        return PlannedArray.like(array, jax.sharding.SingleDeviceSharding(device))
    if _batched_device_put is None:
        return uncommitted(jax.device_put(array, device))
    aval, sharding = _aval_and_place(array.shape, array.dtype, device)
    return _batched_device_put(aval, sharding, [array], [device], False)


@functools.lru_cache(maxsize=1024)
def _aval_and_place(shape: tuple[int, ...], dtype: Any, device: Any) -> tuple[Any, Any]:
    return _core.ShapedArray(shape, dtype), jax.sharding.SingleDeviceSharding(device)


def weakened(array: Any) -> Any:
    """Returns `array` with a weak dtype, as a Python number has; JAX has no public way to do so."""
    return _lax._convert_element_type(array, array.dtype, weak_type=True)


def zero_keys(shape: Sequence[int], dtype: Any) -> jax.Array:
    """Returns random keys of this dtype, which alone says their kind, made of zeros."""
    data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(tuple(shape), dtype))
    return jax.random.wrap_key_data(jnp.zeros(data.shape, data.dtype), impl=dtype._impl)


def is_tracing() -> bool:
    """Returns whether a JAX transformation (jit, grad, vmap, ...) is tracing on this thread."""
    return not _core.trace_state_clean() and current_shapes_only() is None


def staging_trace() -> Any:
    """Returns the trace that collects operations into a program (jit, scan, ...), or None.

    Under `jax.grad` alone operations are carried out. In a staged function, side effects happen and
    state is read once, when it is traced, and never again: both must be refused.
    """
    trace = _core.trace_ctx.trace
    while trace is not None:
        if isinstance(trace, _partial_eval.DynamicJaxprTrace):
            return trace
        trace = getattr(trace, "parent_trace", None)
    return None


def is_staging() -> bool:
    """Returns whether operations on this thread go into a program, and are not carried out."""
    return not _core.trace_state_clean() and staging_trace() is not None


def other_cpu_devices(count: int) -> Sequence[Any]:
    """Returns virtual CPU devices of their own, which programs are compiled for and do not run on.

    Those of `jax.devices()` are as many as the process was started with.
    """
    make = _xla_bridge.xla_client.make_cpu_client  # pyright: ignore[reportPrivateImportUsage]
    return make(asynchronous=True, num_devices=count).devices()


def described_devices(platform: str, name: str, **options: object) -> Sequence[Any]:
    """Returns descriptions of devices that are not here."""
    return _topologies.get_topology_desc(name, platform, **options).devices


def backends_started() -> bool:
    """Returns whether JAX has opened its devices, after which their number is fixed."""
    return _xla_bridge.backends_are_initialized()


def listen_with_gloo_at(address: str) -> None:
    """Makes gloo, which CPU devices of several processes reduce with, listen at an IP address.

    Left alone, it listens where the host's own name leads, which may be 127.0.1.1. To be called
    before JAX opens its devices. Where JAX is not as expected, gloo is left alone.
    """
    of_jaxlib = getattr(_xla_bridge, "_jax", None)
    make_collectives = getattr(of_jaxlib, "make_gloo_tcp_collectives", None)
    make_client = getattr(_xla_bridge, "make_cpu_client", None)
    register = getattr(_xla_bridge, "register_backend_factory", None)
    if make_collectives is None or make_client is None or register is None:
        return

    def make() -> Any:
        try:
            collectives = make_collectives(_distributed.global_state.client, hostname=address)
        except TypeError:  # before `jax.distributed.initialize`, or other arguments
            return make_client()
        return make_client(collectives=collectives)

    register("cpu", make, priority=0, fail_quietly=False)


def trace_settings(with_device: bool = True) -> Hashable:
    """Returns what JAX's own traces depend on besides their inputs."""
    if with_device:
        settings = _config.trace_context()
    else:
        with jax.default_device(None):
            settings = _config.trace_context()
    try:
        hash(settings)
    except TypeError:  # JAX 0.11 has a setting without a hash
        return repr(settings)
    return settings


def thread_settings() -> ThreadSettings:
    """Returns this thread's `with jax.<option>(...)` settings; a new thread inherits none."""
    unset = _config.config_ext.unset
    return [
        (state, value)
        for state in _config.config_states.values()
        if (value := state.get_local()) is not unset
    ]


@contextlib.contextmanager
def with_thread_settings(settings: ThreadSettings) -> Iterator[None]:
    """Applies what `thread_settings` found in another thread."""
    with contextlib.ExitStack() as stack:
        for state, value in settings:
            stack.enter_context(state(value))
        yield


def trace_to_program(
    fn: Callable[..., Sequence[Any]],
    user_fn: Callable[..., Any],
    names: Sequence[str],
    shapes: Sequence[Any],
    axes: Sequence[tuple[str, int]],
    mesh: Any = None,
) -> tuple[Any, list[Any]]:
    """Traces `fn` once; returns a closed program, and the arrays that it captured.

    The program takes those arrays first, then the arguments, then what `new_input` added.

    `jax.make_jaxpr` does the same, but fixes the inputs before it starts. We learn which variables
    a function reads while it runs, and would have to trace it twice.

    Args:
      fn: takes one tracer for each of `shapes` and returns a flat list of arrays.
      user_fn: whose name and line JAX's error messages give.
      names: of the arguments, for those messages.
      shapes: what the arguments look like: anything with `shape`, `dtype` and `weak_type`.
      axes: names and sizes of the mesh axes that collectives inside may use.
      mesh: the abstract mesh whose other axes the compiler divides the work over, if there are any.
    """
    info = _api_util.debug_info("rx.function", user_fn, (), {})
    # JAX's own checks, where turned on, want a name for every input, also for those to come.
    info = info._replace(arg_names=None if _config.enable_checks.value else tuple(names))
    wrapped = _linear_util.wrap_init(lambda *tracers: tuple(fn(*tracers)), debug_info=info)
    avals = [_core.ShapedArray(each.shape, each.dtype, weak_type=each.weak_type) for each in shapes]
    with _core.extend_axis_env_nd(list(axes)):
        with under_mesh(mesh):
            jaxpr, _, constants = _partial_eval.trace_to_jaxpr_dynamic(wrapped, avals)
        jaxpr = _partial_eval.convert_constvars_jaxpr(jaxpr)
    return ClosedJaxpr(jaxpr, ()), constants


def under_mesh(mesh: Any = None) -> contextlib.AbstractContextManager[Any]:
    """What is traced inside the block is for this abstract mesh, and not for one of the user's."""
    return use_abstract_mesh(mesh or _NO_MESH)


def new_input(trace: Any, shape: Sequence[int], dtype: Any, weak_type: bool = False) -> Any:
    """Adds an input, the last one, to the program that `trace` collects, and returns it."""
    aval = _core.ShapedArray(tuple(shape), dtype, weak_type=weak_type)
    return trace.new_arg(aval, _source_info_util.current())


def new_ref(trace: Any, value: Any) -> Any:
    """Returns a mutable cell of the program that `trace` collects, though an inner one is current.

    A variable assigned inside lax.scan or lax.cond must outlive their bodies. JAX carries a `Ref`
    of the outer program through them; there is no public way to make one from inside.
    """
    with _core.set_current_trace(trace):
        return jax.new_ref(value)


def scan_inputs(parameters: dict[str, Any]) -> tuple[int, int]:
    """Returns how many inputs of a `lax.scan` are constants, and how many are carried."""
    if "num_consts" in parameters:  # JAX 0.10
        return parameters["num_consts"], parameters["num_carry"]
    constants, carried, _ = parameters["ft_in"].unpack()
    return len(constants), len(carried)


def is_ref(variable: Any) -> bool:
    """Returns whether a variable of a traced program is a mutable cell."""
    return type(variable.aval).__name__ == "AbstractRef"


def operations_so_far(trace: Any) -> int:
    """Returns how many operations `trace` has met, those that nobody needs any more included."""
    return len(trace.frame.tracing_eqns)


def made_since(trace: Any, operations: int, value: object) -> bool:
    """Returns whether `value` is of an operation that came after the first `operations`."""
    if not isinstance(value, _partial_eval.DynamicJaxprTracer) or value._trace is not trace:
        return True
    parent = value.parent
    if parent is None:  # an input, or a constant that was made where it was used
        return all(value.val is not each for each in trace.frame.invars)
    return any(each is parent for each in _alive(trace.frame.tracing_eqns[operations:]))


def uses_of_results(trace: Any, outputs: Sequence[jax.Array]) -> Iterator[tuple[int, Any, int]]:
    """Yields each use of an operation's result: the user's place, the result, and its place.

    Outputs of the program are used after all operations.
    """
    places: dict[int, int] = {}
    for place, operation in enumerate(_alive(trace.frame.tracing_eqns)):
        if operation is None:
            continue
        places[id(operation)] = place
        for each in operation.in_tracers:
            if id(each.parent) in places:
                yield place, each, places[id(each.parent)]
    for each in outputs:
        parent = getattr(each, "parent", None)
        if id(parent) in places:
            yield operations_so_far(trace), each, places[id(parent)]


def _alive(operations: Sequence[object]) -> list[Any]:
    """Returns the operations, which JAX may hold weakly; None for each that is gone."""
    return [each() if isinstance(each, weakref.ref) else each for each in operations]


def _traces_up_to(program: Any) -> Iterator[Any]:
    """Yields the traces that are at work here, innermost first, inside that of a program."""
    trace = _core.trace_ctx.trace
    while trace is not None and trace is not program:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def _traced_for(trace: Any) -> str:
    """Returns what JAX collects operations for, such as "while_cond" or "checkpoint / remat"."""
    if not isinstance(trace, _partial_eval.DynamicJaxprTrace) or trace.frame.debug_info is None:
        return ""
    return trace.frame.debug_info.traced_for


def is_vmapping(program: Any) -> bool:
    """Returns whether `jax.vmap` is at work between here and the trace that collects a program."""
    return any(isinstance(each, _batching.BatchTrace) for each in _traces_up_to(program))


def is_in_loop_condition(program: Any) -> bool:
    """Returns whether the condition of a `lax.while_loop` is being traced here."""
    return any(_traced_for(each) == "while_cond" for each in _traces_up_to(program))


def current_trace() -> Any:
    """Returns the trace that operations on this thread go to."""
    return _core.trace_ctx.trace


def at_level(trace: Any) -> contextlib.AbstractContextManager[Any]:
    """Sends the operations inside the block to a trace around the innermost one.

    What is computed there is done once for a branch or a loop, and not inside of it.
    """
    return _core.set_current_trace(trace)


def is_checkpointed(program: Any) -> bool:
    """Returns whether a `jax.checkpoint` is between here and the trace of the program."""
    return any("checkpoint" in _traced_for(each) for each in _traces_up_to(program))


def is_recomputing(program: Any) -> bool:
    """Returns whether a `jax.checkpoint` here is differentiated, and will run again backwards."""
    is_checkpointed = False
    for trace in _traces_up_to(program):
        if "checkpoint" in _traced_for(trace):
            is_checkpointed = True
        elif is_checkpointed and not isinstance(
            trace, _partial_eval.DynamicJaxprTrace | _batching.BatchTrace
        ):
            return True
    return False


def operations_behind(trace: Any, value: Any) -> list[Any]:
    """Returns the operations that `value` of a program in the making needs, in order.

    All operations so far, if one of them has an effect: it may read what another one wrote.
    """
    found: dict[int, Any] = {}
    stack = [(value, False)]
    while stack:
        tracer, is_done = stack.pop()
        operation = tracer.parent
        if operation is None or id(operation) in found:
            continue
        if is_done:
            found[id(operation)] = operation
        else:
            stack.append((tracer, True))
            stack += [(each, False) for each in operation.in_tracers]
    if any(operation.effects for operation in found.values()):
        return [each for each in _alive(trace.frame.tracing_eqns) if each is not None]
    return list(found.values())


def evaluate(
    trace: Any, operations: Sequence[Any], value: Any, inputs: Callable[[int], Any]
) -> Any:
    """Returns what `value` of a program in the making will be, for these inputs of it.

    A variable that a compiled function makes has its first value from operations that were just
    traced. Carrying these out at once makes it a variable like any other.
    """
    frame = trace.frame
    positions = {id(each): index for index, each in enumerate(frame.invars)}
    known: dict[int, Any] = {}

    def read(tracer: Any) -> Any:
        atom = tracer.val
        if isinstance(atom, Literal):
            return atom.val
        if id(atom) not in known:
            if id(atom) in positions:
                known[id(atom)] = inputs(positions[id(atom)])
            else:
                known[id(atom)] = frame.constvar_to_val[atom]
        return known[id(atom)]

    for operation in operations:
        parameters = operation.primitive.get_bind_params(operation.params)
        with operation.ctx.manager:
            results = operation.primitive.bind(*map(read, operation.in_tracers), **parameters)
        if not operation.primitive.multiple_results:
            results = [results]
        for variable, result in zip(operation.outvars, results, strict=True):
            known[id(variable)] = result
    return read(value)


def as_one_operation(program: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns a function that computes a traced program, for a program that is traced around it.

    That takes it in as it is. `jaxpr_as_fun` would carry it out operation by operation, which takes
    as long as its first trace.
    """
    parameter = _program_parameter(_eval_jaxpr)
    if parameter is None or any(map(has_side_effects, program.jaxpr.eqns)):
        return jaxpr_as_fun(program)
    jaxpr: Any = program.jaxpr
    unnamed = jaxpr.debug_info._replace(arg_names=None, result_paths=None)  # there are more by now
    whole = ClosedJaxpr(jaxpr.replace(debug_info=unnamed), program.consts)
    return functools.partial(_eval_jaxpr.bind, **{parameter: whole})


def _program_parameter(operation: Any) -> str | None:
    """Returns what an operation calls the program that it computes; JAX 0.12 has renamed it."""
    known = {} if operation is None else inspect.signature(operation.impl).parameters
    return next((name for name in ("jaxpr", "call_jaxpr") if name in known), None)


def has_side_effects(operation: Any) -> bool:
    """Returns whether an operation does more than compute; to name a mesh axis is no more."""
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in operation.effects)


def carry_out(operation: Any, operands: Sequence[Any]) -> list[Any]:
    """Returns what an operation of a traced program gives for these operands, as a list."""
    parameters = operation.primitive.get_bind_params(operation.params)
    source = operation.source_info
    names = _source_info_util.current_name_stack() + source.name_stack
    with _source_info_util.user_context(source.traceback, name_stack=names), operation.ctx.manager:
        results = operation.primitive.bind(*operands, **parameters)
    return list(results) if operation.primitive.multiple_results else [results]


def mentions_axis(operations: Sequence[Any], axis: str) -> bool:
    """Returns whether an operation, or one inside it, is about a mesh axis."""
    for operation in operations:
        for name in ("axes", "axis_name"):
            names = operation.params.get(name, ())
            if axis == names or (isinstance(names, tuple | list) and axis in names):
                return True
        if any(mentions_axis(each.eqns, axis) for each in subprograms(operation.params)):
            return True
    return False


@contextlib.contextmanager
def outside_of_traces() -> Iterator[None]:
    """Carries out the operations inside the block, whatever is being traced around it.

    `jax.ensure_compile_time_eval` does so too, but carries out the inside of jitted functions as
    well, where mesh axes mean something.
    """
    with _core.eval_context(), use_abstract_mesh(_NO_MESH):
        yield


def place_of(operation: Any) -> str:
    """Returns the user's line that an operation of a program comes from."""
    return _source_info_util.summarize(operation.source_info)


def subprograms(parameters: dict[str, Any]) -> Iterator[Any]:
    """Yields the programs in an operation's parameters: bodies of loops, branches, inner jits."""
    return _core.jaxprs_in_params(parameters)


@contextlib.contextmanager
def watching_operations(
    watcher: Callable[[Any, Sequence[Any], Sequence[Any]], None],
) -> Iterator[None]:
    """Inside the block, `watcher` is given each operation on arrays, its operands and results.

    Functions that JAX itself compiles are taken apart. Operations of programs are not seen.
    """
    plain = _core.EvalTrace.process_primitive

    def process_primitive(
        self: Any, primitive: Any, args: Sequence[Any], params: dict[str, Any]
    ) -> Any:
        found = plain(self, primitive, args, params)
        watcher(primitive, args, found if primitive.multiple_results else [found])
        return found

    _core.EvalTrace.process_primitive = process_primitive  # type: ignore[method-assign]
    try:
        with jax.disable_jit():
            yield
    finally:
        _core.EvalTrace.process_primitive = plain
