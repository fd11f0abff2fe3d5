"""Data sets in scenarios: how they are described, and the files that they read."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._library import Library
from ._observation import Observation, Seen, describe_structure

HOST_ONLY = "host pipelines do not run on replicas"
"""Why scenarios about data sets are played once."""

MANY = 24
"""How many elements of a data set are looked at; some are infinite."""


def elements(lib: Library, make: Callable[[], Any], count: int = MANY) -> Observation:
    """Describes the first elements of a data set, or the error on the way to them."""
    try:
        return [element(lib, item) for item in itertools.islice(iter(make()), count)]
    except Exception as error:
        return Seen(raises=lib.error_class(error).__name__)


def element(lib: Library, value: Any) -> Observation:
    """Describes one element on the host: structure, types and contents; strings as text."""
    if isinstance(value, lib.data.Dataset):
        return Seen(dataset=[element(lib, item) for item in value])
    if isinstance(value, Mapping | tuple):
        return describe_structure(value, lambda item: element(lib, item))
    return leaf(lib.on_host(value))


def leaf(value: Any) -> Observation:
    """Describes an array as `{type: contents}`, with the shape where contents do not show it."""
    # Else NumPy would make an array of fixed width, and drop zeros at the end.
    array = np.asarray(value, dtype=object if isinstance(value, bytes) else None)
    dtype = "string" if array.dtype == object else array.dtype.name
    seen = Seen({dtype: _readable(array.tolist())})
    if array.size == 0:
        seen["shape"] = list(array.shape)
    return seen


def _readable(value: Any) -> Any:
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def rows(lib: Library, strategy: Any, steps: Any) -> Observation:
    """Describes steps of one array each by what each replica gets; numbers in texts as numbers."""
    return [
        [_rows(lib.on_host(item)) for item in strategy.experimental_local_results(step)]
        for step in steps
    ]


def _rows(array: Any) -> Any:
    array = np.asarray(array)
    return (array.astype(int) if array.dtype == object else array).tolist()


def distributed_rows(
    lib: Library, strategy: Any, dataset: Any, count: int | None = None
) -> Observation:
    """Distributes a data set and describes its steps, or the error on the way to them."""
    try:
        distributed = strategy.experimental_distribute_dataset(dataset)
        return rows(lib, strategy, itertools.islice(iter(distributed), count))
    except Exception as error:
        return Seen(raises=lib.error_class(error).__name__)


def with_policy(lib: Library, dataset: Any, policy: str) -> Any:
    """Sets the policy by which workers share a data set."""
    options = lib.data.Options()
    policies = lib.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policies[policy]
    return dataset.with_options(options)


def narrow(spec: Observation) -> Observation:
    """Describes a spec in the widths of a device: replicas compute in 32 bits."""
    if isinstance(spec, str):
        return spec.replace("int64", "int32").replace("float64", "float32")
    if isinstance(spec, Mapping):
        return Seen({key: narrow(item) for key, item in spec.items()})
    return [narrow(item) for item in spec]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Makes a folder for the files of one scenario."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def numbers(*sizes: int) -> list[list[str]]:
    """Deals 0, 1, 2, ... out to files of the given sizes, as texts."""
    count = itertools.count()
    return [[str(number) for number in itertools.islice(count, size)] for size in sizes]


def write_text(path: Path, files: Sequence[Sequence[str]]) -> list[str]:
    """Writes one file of lines for each list, and returns the names of the files."""
    names = []
    for index, lines in enumerate(files):
        name = path / f"lines-{index}.txt"
        name.write_text("".join(f"{line}\n" for line in lines))
        names.append(str(name))
    return names


def write_records(
    lib: Library, path: Path, files: Sequence[Sequence[str | bytes]], options: Any = None
) -> list[str]:
    """Writes one TFRecord file for each list, and returns the names of the files."""
    names = []
    for index, records in enumerate(files):
        name = str(path / f"records-{index}.tfrecord")
        with lib.io.TFRecordWriter(name, options) as writer:
            for record in records:
                writer.write(record.encode() if isinstance(record, str) else record)
        names.append(name)
    return names
