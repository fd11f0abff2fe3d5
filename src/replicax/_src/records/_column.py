"""`Column`: the values of one feature in many records, before they get their shape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Column(NamedTuple):
    """The values of one feature in many records.

    Attributes:
      flat: All values, record after record.
      counts: How many there are in each record that has the feature; int64.
      present: Which records have the feature, one bool for each; None: all.
    """

    flat: np.ndarray
    counts: np.ndarray
    present: np.ndarray | None
