"""Data sets of Hugging Face: tables of Arrow, or streams of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, final

import jax
import numpy as np

from replicax._src._errors import add_note
from replicax._src._typing import override
from replicax._src.data._arrow import arrow_block, arrow_spec, arrow_table
from replicax._src.data._blocks import Block, as_slice
from replicax._src.data._indexed import Column, FetchedColumns, Indexed, table_of, table_of_dicts
from replicax._src.data._node import UNKNOWN
from replicax._src.data._run import Run
from replicax._src.data.foreign._streams import Stream, iterable
from replicax._src.data.foreign._torch import is_tensor, numpy_of, torch_column


def hugging_face_table(source: Any) -> Indexed:
    given = source.format
    view, signature = source, None
    if given["type"] is None:
        # Arrow's values have the types of the columns; "numpy" makes 8 bytes of every integer.
        schema = [source.features.arrow_schema.field(name) for name in given["columns"]]
        signature = arrow_spec(schema)
        form = "numpy" if signature is None else "arrow"
        view = source.with_format(form, columns=given["columns"])

    def fetch(indices: range | np.ndarray) -> FetchedColumns:
        rows = view[as_slice(indices) if isinstance(indices, range) else indices.tolist()]
        if hasattr(rows, "column_names"):
            return arrow_table(rows)
        return _table_of_any(rows, len(indices))

    return Indexed(fetch, len(source), "Hugging Face data set", signature=signature)


def _table_of_any(columns: Mapping[str, Any], count: int) -> FetchedColumns:
    """Returns rows as the user's format or transform has them: dicts of anything with rows."""
    columns = {name: _rows_of_any(columns[name]) for name in columns}
    if any(isinstance(column[0], Mapping) for column in columns.values()):
        rows = [{name: columns[name][row] for name in columns} for row in range(count)]
        return table_of(rows, torch_column)
    return table_of_dicts({name: torch_column(column) for name, column in columns.items()})


def _rows_of_any(column: Any) -> Column:
    if is_tensor(column):
        return numpy_of(column)
    return np.asarray(column) if isinstance(column, jax.Array) else column


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _rows_of_any(row[name]) for name in row}


def hugging_face_stream(source: Any) -> Stream:
    kind = "Hugging Face stream"
    view, signature = source, None
    if getattr(source, "_formatting", None) is None and source.features is not None:
        signature = arrow_spec(source.features.arrow_schema)
        view = source.with_format("numpy" if signature is None else "arrow")
    if signature is None:
        return iterable(
            view,
            kind,
            _plain_row,
            size=UNKNOWN,
            start_at=lambda count: map(_plain_row, view.skip(count)),
        )
    return Tables(
        lambda: view.iter(_ROWS_AT_A_TIME),
        signature,
        source=kind,
        start_at=lambda count: view.skip(count).iter(_ROWS_AT_A_TIME),
    )


# One row of a table costs as much as many; but each of them may be a batch already.
_ROWS_AT_A_TIME = 32


@final
class Tables(Stream):
    """A stream of Arrow tables, whose rows are the elements."""

    @override
    def _blocks(self, run: Run) -> Generator[Block]:
        index = 0
        try:
            for table in self.make():
                block = arrow_block(table)
                yield block
                index += len(block)
        except Exception as error:
            add_note(error, f"Raised by {self.source}, after item {index}.")
            raise
