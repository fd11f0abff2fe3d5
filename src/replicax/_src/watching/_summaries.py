"""`rx.summary.scalar`, `histogram`, `image` and `text`: what is written for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsInt

import jax
import numpy as np

from replicax._src import _warnings
from replicax._src.context import get_replica_context, world
from replicax._src.values import OneOfMany, PerReplica
from replicax._src.watching._held_values import is_traced, parts_of, settled, speaks_for_the_job
from replicax._src.watching._summary_writer import (
    SummaryWriter,
    default,
    should_record_summaries,
    tensorboardx,
)


def scalar(
    name: str, data: object, step: SupportsInt | None = None, description: str | None = None
) -> bool:
    """Writes a number to the default writer.

    It is not waited for: the number is read when the file is written. A value that differs by
    replica becomes a curve for each, `name/replica_0` and so on; to have one, give it to
    `strategy.reduce` first.

    Args:
      name: the name of the curve; curves with the same beginning before a slash are shown together.
      data: a number, an array with one number, a variable, a metric, or a value of the replicas.
      step: the place on the axis; by default that of `as_default`.
      description: Markdown that is shown beside it.

    Returns:
      Whether it was written: there is a default writer, and this is the worker and the replica that
      writes.
    """

    def write(add: Add, parts: list[Any]) -> None:
        if any(np.size(part) != 1 for part in parts):
            shape = np.shape(parts[0])
            raise ValueError(
                f"rx.summary.scalar({name!r}): one number is needed; got an array of shape {shape}."
                " Reduce it first, for example with jnp.mean; or use rx.summary.histogram."
            )
        for part, each in zip(parts, _names(name, len(parts), "replica_")):
            if not isinstance(part, jax.Array):  # there is nothing to wait for
                part = _number(part, each)
            add(
                each,
                lambda encoders, part=part, each=each: encoders.scalar("-", _number(part, each)),
            )

    return _record("scalar", name, data, step, description, write)


def histogram(
    name: str,
    data: object,
    step: SupportsInt | None = None,
    buckets: int | None = None,
    description: str | None = None,
) -> bool:
    """Writes how the numbers of an array are distributed.

    Those that are not finite are left out. The replicas' parts of a value are taken together.

    Args:
      name: its name.
      data: an array of any shape, a variable, or a value of the replicas.
      step: the place on the axis; by default that of `as_default`.
      buckets: how many buckets of the same width to count in; 30 by default.
      description: Markdown; it is in the file, but TensorBoard shows those of numbers only.

    Returns:
      Whether it was written.
    """
    if buckets is not None and buckets < 1:
        raise ValueError(f"rx.summary.histogram: `buckets` must be at least 1; got {buckets}.")

    def write(add: Add, parts: list[Any]) -> None:
        values = np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])
        finite = values[np.isfinite(values)]
        if not finite.size:
            _warnings.warn(
                f"rx.summary.histogram({name!r}): nothing was written, since none of the "
                f"{values.size} values is finite."
            )
            return
        add(name, lambda encoders: encoders.histogram("-", finite, buckets or 30))

    return _record("histogram", name, data, step, description, write)


def image(
    name: str,
    data: object,
    step: SupportsInt | None = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> bool:
    """Writes pictures.

    Several pictures get names of their own: `name/0`, `name/1` and so on.

    Args:
      name: their name.
      data: an array of shape (pictures, height, width, channels) with 1, 3 or 4 channels: bytes, or
        floats from 0 to 1. The replicas' parts of a value follow each other.
      step: the place on the axis; by default that of `as_default`.
      max_outputs: how many of the pictures are written.
      description: Markdown; it is in the file, but TensorBoard shows those of numbers only.

    Returns:
      Whether they were written.
    """
    if max_outputs < 0:
        raise ValueError(
            f"rx.summary.image: `max_outputs` must not be negative; got {max_outputs}."
        )

    def write(add: Add, parts: list[Any]) -> None:
        for part in parts:
            if np.ndim(part) != 4 or np.shape(part)[-1] not in (1, 3, 4):
                raise ValueError(
                    f"rx.summary.image({name!r}): the shape must be (pictures, height, width, "
                    f"channels) with 1, 3 or 4 channels; got {np.shape(part)}. For a single "
                    "picture write picture[None]; for one without channels, "
                    "picture[None, :, :, None]."
                )
        pictures = [each for part in parts for each in np.asarray(part[:max_outputs])][:max_outputs]
        for picture, each in zip(pictures, _names(name, len(pictures), "")):
            pixels = _as_bytes(picture)
            add(
                each, lambda encoders, pixels=pixels: encoders.image("-", pixels, dataformats="HWC")
            )

    return _record("image", name, data, step, description, write)


def text(
    name: str, data: str, step: SupportsInt | None = None, description: str | None = None
) -> bool:
    """Writes a text, which TensorBoard shows as Markdown.

    Args:
      name: its name.
      data: the text.
      step: the place on the axis; by default that of `as_default`.
      description: Markdown that is shown beside it.

    Returns:
      Whether it was written.
    """
    if not isinstance(data, str):
        raise TypeError(f"rx.summary.text({name!r}) takes a str; got {type(data).__name__}.")

    def write(add: Add, parts: list[Any]) -> None:
        add(name, lambda encoders: encoders.text("-", data))

    return _record("text", name, data, step, description, write)


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Brings all summaries of a writer onto the disk: the given one, or the default one."""
    del name  # as in TensorFlow, where it is that of an operation
    writer = writer or default.get().writer
    if writer is not None:
        writer.flush()


Make = Callable[[Any], Any]  # takes `tensorboardX.summary`, returns a summary without a name
Add = Callable[[str, Make], None]


def _record(
    kind: str,
    name: str,
    data: object,
    step: SupportsInt | None,
    description: str | None,
    write: Callable[[Add, list[Any]], None],
) -> bool:
    writer = default.get().writer
    if writer is None:
        return False
    call = f"rx.summary.{kind}({name!r})"
    if not isinstance(name, str) or not name:
        raise TypeError(f"rx.summary.{kind}: `name` must be a text; got {name!r}.")

    records = should_record_summaries()
    if records is False:
        return False
    later = world().pick(is_traced(data), True)
    if step is None:
        step = default.get().step
        if step is None:
            raise ValueError(
                f"{call} has no step. Give it as step=..., or to "
                "`with writer.as_default(step=step):`."
            )
        if later and isinstance(step, int | np.integer):
            raise ValueError(
                f"{call} is in a compiled function, which would write the step {step} at every "
                "call: it is a number of Python, and compiled into the program. Give as_default a "
                "step that changes, as optimizer.iterations or a rx.Variable; or give the step to "
                "the function, as an array, and to the summary, as step=step."
            )

    def add_at(place: Callable[[], int]) -> Add:
        return lambda name, make: writer.add(
            lambda: _named(make(tensorboardx().summary), name, description), place
        )

    data = settled(data)  # on all workers, since this may be a collective
    if later:
        _write_from_program(call, data, settled(step), records, writer, add_at, write)
        return True
    place = _place(call, settled(step))
    if not speaks_for_the_job() or writer.logdir is None:
        return False
    write(add_at(place), parts_of(data))
    return True


def _write_from_program(
    call: str,
    data: object,
    step: object,
    records: bool | jax.Array,
    writer: SummaryWriter,
    add_at: Callable[[Callable[[], int]], Add],
    write: Callable[[Add, list[Any]], None],
) -> None:
    """Has the program hand over the value when it is computed: that of its first replica.

    Args:
      call: how it was called, for errors.
      data: what to write.
      step: the place on the axis.
      records: whether to write, which may be known when the program runs.
      writer: where it goes; that of the time when the program was made, as in TensorFlow.
      add_at: gives what adds a summary at a step.
      write: adds the summaries of the arrays that it is given.
    """
    if isinstance(data, PerReplica) and not isinstance(data, OneOfMany):
        raise RuntimeError(
            f"{call} was given a value of each replica in a compiled function. Give it to "
            "strategy.reduce first, or write it in the replica function: the first one writes."
        )
    (part,) = parts_of(data)
    is_array = not isinstance(part, str)
    if is_array:  # what is wrong with it is said here, and not when the program runs
        shape = jax.ShapeDtypeStruct(np.shape(part), jax.numpy.result_type(part))
        write(lambda *_: None, [np.zeros(shape.shape, shape.dtype)])
    context = get_replica_context()
    is_first: Any = context is None or context.replica_id_in_sync_group == 0
    if is_first is True:  # outside of replicas all of them compute the same
        is_first = world().is_first_of_program()
    writer.expect_programs()

    def arrived(
        is_first: np.ndarray, records: np.ndarray, step: np.ndarray, part: np.ndarray
    ) -> None:
        if is_first and records:
            try:  # an error here would end the program, and the variables that it updates with it
                number = int(step)
                write(add_at(lambda: number), [np.asarray(part) if is_array else data])
            except Exception as error:
                writer.not_written(call, error)

    operand = part if is_array else 0
    jax.debug.callback(arrived, is_first, records, parts_of(step)[0], operand)


def _place(call: str, step: Any) -> Callable[[], int]:
    """Returns the step as a number. One that a device computes is not waited for."""
    (part,) = parts_of(step)[:1]
    if isinstance(part, jax.Array) and part.size == 1:
        return lambda: int(np.asarray(part).reshape(()).item())
    try:
        number = int(np.asarray(part).reshape(()).item())
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call}: `step` must be a whole number; got {step!r}.") from error
    return lambda: number


def _named(summary: Any, name: str, description: str | None) -> Any:
    """Gives a summary its name, in which tensorboardX would change blanks, and a text about it."""
    (value,) = summary.value
    value.tag = name
    if description:
        value.metadata.summary_description = description
        if value.WhichOneof("value") == "simple_value":  # TensorBoard shows that of tensors only
            number = value.simple_value
            value.metadata.plugin_data.plugin_name = "scalars"
            value.tensor.dtype = 1  # float32, without dimensions
            value.tensor.tensor_shape.SetInParent()
            value.tensor.float_val.append(number)
    return summary


def _names(name: str, count: int, prefix: str) -> list[str]:
    return [name] if count == 1 else [f"{name}/{prefix}{index}" for index in range(count)]


def _number(part: Any, name: str) -> float:
    if isinstance(part, jax.Array) and part.is_deleted():
        raise RuntimeError(
            f"rx.summary.scalar({name!r}): the array was donated to a program before it was "
            f"written. Write rx.summary.scalar({name!r}, float(value), step), which waits for it."
        )
    try:
        return float(np.asarray(part).reshape(()).item())
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"rx.summary.scalar({name!r}) takes a number; got {type(part).__name__} {part!r}."
        ) from error


def _as_bytes(picture: np.ndarray) -> np.ndarray:
    if picture.dtype == np.uint8:
        return picture
    if not np.issubdtype(picture.dtype, np.floating) and picture.dtype.name != "bfloat16":
        raise TypeError(
            f"rx.summary.image takes bytes (uint8) or floats from 0 to 1; got {picture.dtype}."
        )
    floats = np.nan_to_num(picture.astype(np.float32))
    return (np.clip(floats, 0, 1) * 255 + 0.5).astype(np.uint8)
