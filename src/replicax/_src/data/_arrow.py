"""Tables of Arrow, as Parquet files and Hugging Face have them. It is not imported here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import DataLossError, add_note
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._blocks import Block, Columns, Held
from replicax._src.data._elements import Structure
from replicax._src.data._indexed import Column, FetchedColumns, table_of_dicts


def arrow_spec(schema: Any) -> dict[str, TensorSpec] | None:
    """Returns the spec of rows of tables of this schema; None if some columns are no arrays."""
    found = {field.name: _shape_and_dtype(field.type) for field in schema}
    known = {name: TensorSpec.on_host(*each) for name, each in found.items() if each is not None}
    return known if len(known) == len(found) else None


def _shape_and_dtype(kind: Any) -> tuple[tuple[int | None, ...], Any] | None:
    """Returns the shape and dtype of one value of an Arrow type."""
    types = sys.modules["pyarrow"].types
    if hasattr(kind, "storage_type"):  # an extension type: arrays of a shape
        inner = _shape_and_dtype(kind.storage_type) if hasattr(kind, "shape") else None
        return None if inner is None else (tuple(kind.shape), inner[1])
    if types.is_dictionary(kind):
        return _shape_and_dtype(kind.value_type)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return (), kind.to_pandas_dtype()
    if _is_text(kind):
        return (), STRING
    if not _is_list(kind):
        return None
    inner = _shape_and_dtype(kind.value_type)
    return None if inner is None else ((getattr(kind, "list_size", None), *inner[0]), inner[1])


def _is_text(kind: object) -> bool:
    return str(kind).removeprefix("large_") in ("string", "binary") or "_binary[" in str(kind)


def _is_list(kind: object) -> bool:
    return str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))


def arrow_column(column: Any, name: str) -> Column:
    """Returns a column of an Arrow table as an array; if lengths differ, as a list of arrays."""
    array = column.combine_chunks() if hasattr(column, "chunks") else column
    kind = array.type
    described = _shape_and_dtype(kind)
    if described is None:
        raise TypeError(
            f"The column {name!r} is {kind}, which is no array of numbers or text. Leave it out, "
            "or convert it."
        )
    if array.null_count and not sys.modules["pyarrow"].types.is_floating(kind):
        raise ValueError(
            f"The column {name!r} ({kind}) has missing values, for which arrays have no place. "
            "Fill them in, or leave the column out."
        )
    if hasattr(kind, "storage_type"):
        values = arrow_column(array.storage, name)
        if isinstance(values, np.ndarray) and None not in described[0]:
            return values.reshape(len(values), *described[0])
        return values
    if hasattr(array, "dictionary_decode"):
        return arrow_column(array.dictionary_decode(), name)
    if _is_list(kind):
        return _arrow_lists(array, name)
    if _is_text(kind):
        binary = "large_binary" if str(kind).startswith("large") else "binary"
        return array.cast(binary).to_numpy(zero_copy_only=False)
    return array.to_numpy(zero_copy_only=False)


def _arrow_lists(array: Any, name: str) -> Column:
    values = arrow_column(array.flatten(), name)
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    if not isinstance(values, np.ndarray):
        raise ValueError(
            f"The column {name!r} holds lists of lists of different lengths, which are no arrays. "
            "Leave it out, or fill them up."
        )
    if len(lengths) == 0 or (lengths == lengths[0]).all():
        length = int(lengths[0]) if len(lengths) else 0
        return values.reshape(len(lengths), length, *values.shape[1:])
    return np.split(values, np.cumsum(lengths)[:-1])


def arrow_table(table: Any) -> FetchedColumns:
    """Returns the rows of an Arrow table."""
    return table_of_dicts({name: arrow_column(table[name], name) for name in table.column_names})


def arrow_block(table: Any) -> Block:
    """Returns the rows of an Arrow table, as a block."""
    columns, build = arrow_table(table)
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    if len(arrays) == len(columns):
        return Columns(arrays, Structure(build(arrays)))
    return Held([build(row) for row in zip(*columns)])


def scan_parquet(path: str, columns: list[str] | None) -> Iterator[Block]:
    """Yields the rows of a Parquet file, as dicts; needs the package pyarrow."""
    with _naming_damage(path):
        file = sys.modules["pyarrow.parquet"].ParquetFile(path)
    with file:
        _check_columns(columns, file.schema_arrow.names, path)
        for group in range(file.num_row_groups):
            with _naming_damage(path):
                table = file.read_row_group(group, columns=columns)
            try:
                block = arrow_block(table)
            except Exception as error:
                add_note(error, f"Read from {path!r}; `columns` says which columns to read.")
                raise
            yield block


@contextlib.contextmanager
def _naming_damage(path: str) -> Iterator[None]:
    """Adds the file to what the package says is wrong with it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        raise DataLossError(
            f"The Parquet file {path!r} is damaged, or is none: {error}", path
        ) from error


def _check_columns(columns: list[str] | None, known: list[str], path: str) -> None:
    if columns is None:
        return
    missing = [name for name in columns if name.partition(".")[0] not in known]
    if missing or not columns:
        what = f"has no column {missing[0]!r}" if missing else "was to be read without a column"
        raise ValueError(f"The Parquet file {path!r} {what}. It has: {', '.join(known)}.")
