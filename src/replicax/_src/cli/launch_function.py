"""`rx.launch`: a function that runs in several workers, with all that `replicax launch` does.

The function goes to the workers in a pickle, and what it returns or raises comes back in another
(`_errand.py`). Functions of a notebook or of the main program are pickled as they are, those of a
module by their name.
"""

import contextlib
import importlib
import inspect
import io
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from replicax._src._errors import WorkerLostError, add_note
from replicax._src._whole_file import whole_file
from replicax._src.cli._errand import OUTCOME, PAYLOAD
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._launch import Launch
from replicax._src.cli._log import Log
from replicax._src.cli._node import LocalNode
from replicax._src.cli._options import LaunchOptions, Range
from replicax._src.cli._ray_node import RayNode
from replicax._src.strategies import Strategy
from replicax._src.values import DistributedValues

_T = TypeVar("_T")
_WORKER = ("-c", f"from {__name__} import work; work()")
_unpacking: list[bool] = []  # not empty while a worker imports what its function needs


class _Outcome(NamedTuple):
    """What a worker leaves: a result, or an exception and the text of its traceback."""

    result: Any = None
    error: BaseException | None = None
    trace: str = ""


def launch(
    fn: Callable[..., _T],
    *args: object,
    workers: int | str = 1,
    ray: bool | str = False,
    devices_per_worker: int | None = None,
    max_restarts: int = 0,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> _T:
    """Runs a function in several workers that train together; returns what the first one returns.

    Each worker is a new process that calls `fn(*args)`, which makes the strategy and trains. It is
    supervised as by `replicax launch`: if one worker fails, all end, and with `max_restarts` they
    start again. Their output appears here. A function of a notebook's cell works too.

    >>> import replicax as rx
    >>> def train(steps):
    ...     strategy = rx.distribute.MultiWorkerMirroredStrategy()
    ...     return strategy.num_replicas_in_sync * steps
    >>> rx.launch(train, 5, workers=2)  # doctest: +SKIP
    10

    Args:
      fn: The function. Objects that it refers to are sent along if they can be pickled: NumPy
        arrays can; JAX arrays, variables and strategies cannot, so make these in the function.
      *args: Its arguments.
      workers: How many; "2:4" starts four, and continues with as few as two.
      ray: True runs the workers on Ray: on the cluster that this process is connected to, else at
        `RAY_ADDRESS`, else on this host. An address means that cluster. It needs `replicax[ray]`.
      devices_per_worker: GPUs of each worker, or CPU devices. Without it, GPUs are shared out
        evenly.
      max_restarts: How many times to start all workers again after a fault.
      timeout: Seconds after which the workers are ended, whatever they do.
      environment: Variables of the workers' environment, besides those of this process.

    Returns:
      What the function returned in the first worker; arrays of JAX as NumPy arrays.

    Raises:
      TypeError: What is to be sent, or what was returned, cannot be pickled; the text says what.
      TimeoutError: The workers have not finished in time; the text says what each was doing.
      rx.errors.WorkerLostError: A worker was killed, or left without a word.
      Exception: What the function raised in the worker that failed first, with its traceback there
        as a note.
    """
    if not callable(fn):
        raise TypeError(f"rx.launch takes a function and its arguments; got {fn!r}.")
    if _unpacking:  # each worker would start workers
        raise RuntimeError(
            f"rx.launch({_name(fn)}, ...) was called by a worker that imported the module of its "
            "function. Call it where an import does not: in a function, or below "
            '`if __name__ == "__main__":`.'
        )
    address = ray if isinstance(ray, str) else ""
    options = LaunchOptions(
        command=_WORKER,
        workers=Range.parse(str(workers), "workers"),
        devices_per_worker=devices_per_worker,
        max_restarts=max_restarts,
        ray=None if ray is False else address,
        payload=_packed(fn, args),
    )
    node = LocalNode if ray is False else RayNode
    loop = EventLoop()
    with _console() as log:
        told = {**os.environ, **(environment or {})}
        launched = Launch(options, log, told, loop, new_node=node)
        with _limited(launched, loop, timeout) as stopped_at:
            status = launched.run()
    if stopped_at:
        raise TimeoutError(
            f"The workers have not finished in {timeout:g} s, and were ended. They were at: "
            f"{stopped_at[0]}. Give them more with `timeout`."
        )
    if loop.told_to_end == signal.SIGINT:
        raise KeyboardInterrupt
    return _result(launched, status)


@contextlib.contextmanager
def _console() -> Iterator[Log]:
    """A log that goes where `print` goes: also into a cell of a notebook."""
    descriptor = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdout.fileno()
    if descriptor == 1:
        yield Log()
        return
    reader, writer = os.pipe()

    def copy() -> None:
        with open(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                print(line, end="", flush=True)

    thread = threading.Thread(target=copy, name="replicax-console", daemon=True)
    thread.start()
    try:
        yield Log(writer)
    finally:
        os.close(writer)
        thread.join(5.0)


@contextlib.contextmanager
def _limited(launched: Launch, loop: EventLoop, seconds: float | None) -> Iterator[list[str]]:
    """Ends a launch after some time; yields a list that has what workers did then, if they did."""
    stopped_at: list[str] = []

    def stop() -> None:
        stopped_at.append(launched.whereabouts())
        loop.told_to_end = loop.told_to_end or signal.SIGINT

    if seconds is None:
        yield stopped_at
        return
    timer = threading.Timer(seconds, lambda: loop.call_soon(stop))
    timer.daemon = True
    timer.start()
    try:
        yield stopped_at
    finally:
        timer.cancel()


def _result(launched: Launch, status: int) -> Any:
    outcome = _Outcome() if launched.outcome is None else _unpacked(launched.outcome)
    if status == 0 and launched.outcome is not None:
        return outcome.result
    who = "a worker"
    cause = launched.cause
    if cause is not None and cause.worker is not None:
        who = f"worker {cause.worker}"
    if outcome.error is not None:
        add_note(outcome.error, f"It was raised in {who}:\n{outcome.trace}")
        raise outcome.error
    text = launched.failure or ("left without a result" if cause is None else cause.text)
    raise WorkerLostError(text if text.startswith(who) or launched.failure else f"{who} {text}")


# --- pickles --------------------------------------------------------------------------------------


def _packed(fn: Callable[..., object], args: tuple[object, ...]) -> bytes:
    try:
        function = _pickled((fn, args))
    except Exception as error:
        raise TypeError(
            f"{_name(fn)} cannot be sent to workers: {_culprit(fn, args)} cannot be pickled "
            f"({type(error).__name__}: {error}). Make it inside of the function, or pass what it "
            "is made of: NumPy arrays for arrays of JAX, the names of files for open ones."
        ) from error
    paths = [os.path.abspath(path) for path in sys.path]
    return pickle.dumps({"path": paths, "function": function})


def _name(fn: object) -> str:
    return getattr(fn, "__qualname__", repr(fn))


def _type_name(value: object) -> str:
    return "jax.Array" if isinstance(value, jax.Array) else type(value).__name__


def _culprit(fn: Callable[..., object], args: tuple[object, ...]) -> str:
    """Returns which of the things that a function refers to cannot be pickled."""
    named = {f"argument {number}": value for number, value in enumerate(args)}
    with contextlib.suppress(TypeError):
        found = inspect.getclosurevars(fn)
        named |= {
            f"`{name}`": value for name, value in {**found.nonlocals, **found.globals}.items()
        }
    for name, value in named.items():
        try:
            _pickled(value)
        except Exception:
            return f"{name} (of type {_type_name(value)})"
    return "something that it refers to"


def _pickled(value: object, arrays_as: Callable[[Any], object] | None = None) -> bytes:
    """Returns a pickle, as it is for functions of a notebook.

    Args:
      value: What to pickle.
      arrays_as: Makes of an array of JAX what is pickled in its place; None: there may be none.
    """
    cloudpickle = importlib.import_module("cloudpickle")

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: object) -> Any:
            if isinstance(obj, jax.Array) and arrays_as is not None:
                return _same, (arrays_as(obj),)
            if isinstance(obj, jax.Array | DistributedValues | Strategy):
                raise TypeError(f"{_type_name(obj)} objects belong to the process that made them")
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def _same(value: object) -> object:
    return value


def _unpacked(data: bytes) -> _Outcome:
    """Returns what a worker has left, as far as this process has the classes for it."""
    packed: tuple[bytes, str, str] = pickle.loads(data)
    outcome, text, trace = packed
    try:
        result, error = pickle.loads(outcome)
        return _Outcome(result, error, trace)
    except Exception:
        return _Outcome(None, RuntimeError(text), trace)


# --- in a worker ----------------------------------------------------------------------------------


def work() -> None:
    """Runs in a worker: calls the function that was sent, and leaves what came out."""
    parcel = pickle.loads(Path(os.environ[PAYLOAD]).read_bytes())
    sys.path[:] = dict.fromkeys([*sys.path, *parcel["path"]])
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    try:
        _unpacking.append(True)
        fn, args = pickle.loads(parcel["function"])
        _unpacking.clear()
        result = fn(*args)
        if rank == 0:
            _leave(_pickled_result(fn, result), "", "")
    except BaseException as error:
        _leave(*_pickled_error(error))
        raise


def _pickled_result(fn: object, result: object) -> bytes:
    try:
        return _pickled((result, None), arrays_as=np.asarray)
    except Exception as error:
        raise TypeError(
            f"What {_name(fn)} returned in the first worker, a {type(result).__name__}, cannot be "
            f"sent back ({type(error).__name__}: {error}). Return numbers, NumPy arrays, or "
            "structures of them; save models in the function."
        ) from error


def _pickled_error(error: BaseException) -> tuple[bytes, str, str]:
    text = "".join(traceback.format_exception_only(error)).strip()
    try:
        packed = _pickled((None, error), arrays_as=np.asarray)
        pickle.loads(packed)  # some classes cannot be made again
    except Exception:
        packed = pickle.dumps((None, RuntimeError(text)))
    return packed, text, "".join(traceback.format_exception(error))


def _leave(packed: bytes, text: str, trace: str) -> None:
    path = os.environ[OUTCOME]
    with whole_file(path, f"{path}.half", durable=False) as file:
        file.write(pickle.dumps((packed, text, trace)))
