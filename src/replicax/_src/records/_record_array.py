"""An array of records that remembers where they were read, so that parsing them needs no copy."""

from __future__ import annotations

from typing import final

import numpy as np

from replicax._src.records._records import Records


@final
class RecordArray(np.ndarray):
    """A one-dimensional array of `bytes`, and the `records` that they are."""

    records: Records | None = None

    @classmethod
    def of(cls, records: Records) -> RecordArray:
        values = np.empty(len(records), object)
        values[:] = records.to_list()
        new = values.view(cls)
        new.records = records
        new.flags.writeable = False  # or the records would not be what the array says
        return new

    def __array_finalize__(self, source: object) -> None:
        self.records = None  # a part of it, or something computed from it
