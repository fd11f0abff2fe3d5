"""What to expect of a feature in a `tf.train.Example`: how many values, of which dtype.

The classes check themselves when built, so that a mistake shows on the line where it was made, and
prepare what parsing needs of them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import ArrayLike

from replicax._src._arrays import STRING, is_string
from replicax._src._typing import override
from replicax._src.records._partitions import (
    Partition,
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    UniformRowLength,
    ValueRowIds,
)

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
DTYPES = (FLOAT32, INT64, STRING)
_SHORT = {np.dtype(np.float64): FLOAT32, INT64: np.dtype(np.int32)}
_MOST_VALUES = 2**48  # more than any memory holds; no product with it overflows
NAMES = {FLOAT32: "float32", INT64: "int64", STRING: "string"}


class Kind(enum.IntEnum):
    """What a feature holds: the number of the list's field in a serialized `Feature`."""

    MISSING = 0
    BYTES = 1
    FLOAT = 2
    INT = 3


KIND_OF = {STRING: Kind.BYTES, FLOAT32: Kind.FLOAT, INT64: Kind.INT}
FIELDS = {STRING: "bytes_list", FLOAT32: "float_list", INT64: "int64_list"}


class _Feature:
    """What all features have."""

    dtype: Any

    @functools.cached_property
    def field(self) -> str:
        """The name of the list's field in a message `Feature`."""
        return FIELDS[self.dtype]

    @override
    def __repr__(self) -> str:
        parts: list[str] = []
        for each in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name, None)  # not there yet in errors of `__post_init__`
            if each.repr and value is not None:
                value = NAMES[value] if isinstance(value, np.dtype) else value
                parts.append(f"{each.name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"


@final
@dataclass(frozen=True, repr=False)
class FixedLenFeature(_Feature):
    """A feature with the same number of values in every record.

    >>> FixedLenFeature([2], "float32", default_value=[0, 1])
    FixedLenFeature(shape=(2,), dtype=float32, default_value=[0, 1])

    Args:
      shape: The shape of the array in one record; `[]` for a single value.
      dtype: float32, int64, or `rx.string` (also "string", `str`, `bytes`) for bytes.
      default_value: What stands in for a feature that a record does not have: as many values as
        `shape` has. Without it, such a record is an error.
    """

    shape: Any
    dtype: Any
    default_value: Any = None
    size: int = field(init=False, repr=False, compare=False)
    default_row: np.ndarray | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, shape=_checked_shape(self), dtype=_checked_dtype(self))
        _set(self, size=math.prod(self.shape))
        _set(self, default_row=_checked_default(self, self.shape))


@final
@dataclass(frozen=True, repr=False)
class VarLenFeature(_Feature):
    """A feature with any number of values; parsing gives a `SparseTensor`.

    >>> VarLenFeature(bytes)
    VarLenFeature(dtype=string)

    Args:
      dtype: float32, int64, or `rx.string` (also "string", `str`, `bytes`) for bytes.
    """

    dtype: Any

    def __post_init__(self) -> None:
        _set(self, dtype=_checked_dtype(self))


@final
@dataclass(frozen=True, repr=False)
class FixedLenSequenceFeature(_Feature):
    """A feature with any number of rows; parsing pads to the longest record of the batch.

    >>> FixedLenSequenceFeature([], "int64", allow_missing=True)
    FixedLenSequenceFeature(shape=(), dtype=int64, allow_missing=True)

    Args:
      shape: The shape of one row.
      dtype: float32, int64, or `rx.string` (also "string", `str`, `bytes`) for bytes.
      allow_missing: Whether a record may lack the feature. `parse_example` needs True, as in
        TensorFlow: in a batch, a record without rows cannot be told from one that lacks them.
      default_value: The single value to pad with; 0 or b"" by default.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None
    size: int = field(init=False, repr=False, compare=False)
    padding: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, shape=_checked_shape(self), dtype=_checked_dtype(self))
        _set(self, size=math.prod(self.shape))
        if not self.size:
            raise ValueError(f"A row of {self} has no values, so rows cannot be counted.")
        row = _checked_default(self, ())
        _set(self, padding=(b"" if self.dtype == STRING else 0) if row is None else row[()])


@final
@dataclass(frozen=True, repr=False)
class RaggedFeature(_Feature):
    """A feature with any number of values; a batch of them is `PaddedRows`, with the lengths.

    >>> RaggedFeature("int64", value_key="tokens")
    RaggedFeature(dtype=int64, value_key=tokens, row_splits_dtype=int32)

    Args:
      dtype: float32, int64, or `rx.string` (also "string", `str`, `bytes`) for bytes.
      value_key: The name of the feature in the records, if not that in the dict of features.
      partitions: How the values of a record are divided into rows, and these again, the outermost
        first: `RaggedFeature.RowLengths("lengths")` by the lengths in another feature, and so
        `RowSplits`, `RowStarts`, `RowLimits` and `ValueRowIds`; `UniformRowLength(2)` by pairs.
        Then `lengths` are `PaddedRows`, too: those of the inner rows, and how many there are.
      row_splits_dtype: The dtype of the lengths: int32 or int64.
      validate: Has no effect here: what does not fit is always an error.
    """

    RowSplits: ClassVar = RowSplits
    RowLengths: ClassVar = RowLengths
    RowStarts: ClassVar = RowStarts
    RowLimits: ClassVar = RowLimits
    ValueRowIds: ClassVar = ValueRowIds
    UniformRowLength: ClassVar = UniformRowLength

    dtype: Any
    value_key: str | None = None
    partitions: Any = field(default=(), repr=False)
    row_splits_dtype: Any = np.int32
    validate: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, dtype=_checked_dtype(self))
        given = getattr(self.row_splits_dtype, "as_numpy_dtype", self.row_splits_dtype)
        lengths = np.dtype(given)
        if lengths not in (np.int32, np.int64):
            raise ValueError(f"The row_splits_dtype of {self} is int32 or int64.")
        _set(self, row_splits_dtype=lengths.name)
        if self.value_key is not None and not isinstance(self.value_key, str):
            raise TypeError(f"The value_key of a feature is a `str`. Received {self.value_key!r}.")
        partitions = tuple(self.partitions)
        for each in partitions:
            if not isinstance(each, Partition):
                raise TypeError(
                    "The partitions of a RaggedFeature are such as RaggedFeature.RowLengths('key') "
                    f"or RaggedFeature.UniformRowLength(2). Received {each!r}."
                )
        _set(self, partitions=partitions)


FeatureConfig = FixedLenFeature | VarLenFeature | FixedLenSequenceFeature | RaggedFeature


def check_features(features: object) -> Mapping[str, FeatureConfig]:
    """Returns `features` if it is what `parse_example` takes.

    Raises:
      TypeError: If it is no mapping from names to features.
      ValueError: If it is empty, or a sequence does not allow missing records.
    """
    if not isinstance(features, Mapping):
        raise TypeError(
            "`features` is a dict from the name of each feature to what it is, such as "
            f"{{'label': rx.io.FixedLenFeature([], 'int64')}}. Received {features!r:.120}."
        )
    if not features:
        raise ValueError("`features` is empty: name at least one feature to parse.")
    for name, feature in features.items():
        if not isinstance(name, str):
            raise TypeError(f"The names of features are `str`. Received {name!r:.80}.")
        if not isinstance(feature, FeatureConfig):
            raise TypeError(
                f"The feature {name!r} must be an rx.io.FixedLenFeature, VarLenFeature, "
                "FixedLenSequenceFeature or RaggedFeature. Received "
                f"{type(feature).__name__}: {feature!r:.120}."
            )
        if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise ValueError(
                f"The feature {name!r} is a FixedLenSequenceFeature without `allow_missing=True`. "
                "Only with it can it be parsed: a record without the feature has no rows."
            )
    return features


def _set(feature: _Feature, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(feature, name, value)


def _checked_dtype(feature: _Feature) -> np.dtype:
    given = getattr(feature.dtype, "as_numpy_dtype", feature.dtype)  # TensorFlow's dtypes
    if is_string(given) or given in (object, STRING):
        return STRING
    try:
        dtype = {float: FLOAT32, int: INT64}.get(given) or np.dtype(given)
    except TypeError:
        dtype = None
    if given is None or dtype is None or dtype not in DTYPES:
        raise ValueError(
            f"The dtype of a {type(feature).__name__} is float32, int64 or rx.string: these three "
            f"are what a tf.train.Example can hold. Received {feature.dtype!r:.80}. Convert after "
            "parsing, for example with `.astype`."
        )
    return dtype


def _checked_shape(feature: FixedLenFeature | FixedLenSequenceFeature) -> tuple[int, ...]:
    given = feature.shape
    kind = type(feature).__name__
    try:
        shape = tuple(given) if np.ndim(given) or isinstance(given, tuple | list) else (given,)
        known = tuple(None if size is None else operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise TypeError(
            f"The shape of a {kind} is a list of sizes, [] for a single value. Received {given!r}."
        ) from None
    if None in known:
        raise ValueError(
            f"The shape of a {kind} must be known, but {list(known)} has None in it. For a first "
            "dimension that varies use rx.io.FixedLenSequenceFeature or rx.io.VarLenFeature."
        )
    if any(size is None or size < 0 for size in known):
        raise ValueError(f"The sizes in the shape of a {kind} are 0 or more. Received {given!r}.")
    sizes = tuple(size for size in known if size is not None)
    if math.prod(size or 1 for size in sizes) > _MOST_VALUES:
        raise ValueError(
            f"The shape of a {kind} has more values than an array can have: {list(sizes)}. The "
            "shape is that of one record; check its sizes."
        )
    return sizes


def _checked_default(
    feature: FixedLenFeature | FixedLenSequenceFeature, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Returns the default value as an array of `shape`, or None if there is none."""
    given = feature.default_value
    if given is None:
        return None
    if isinstance(given, np.ndarray):
        _set(feature, default_value=given.tolist())  # so that features can be compared
    array = np.asarray(given, STRING if feature.dtype == STRING else None)
    if feature.dtype == STRING:
        flat = [value.encode() if isinstance(value, str) else value for value in array.ravel()]
        wrong = any(not isinstance(value, bytes) for value in flat)
        array = np.empty(len(flat), STRING)
        array[:] = flat
    else:
        numbers = "iuf" if feature.dtype == FLOAT32 else "iu"
        wrong = array.size > 0 and array.dtype.kind not in numbers  # no values have no type
    if wrong:
        raise TypeError(
            f"The default value of a feature of dtype {NAMES[feature.dtype]} cannot be {given!r}."
        )
    if array.size != math.prod(shape):
        raise ValueError(
            f"default_value={given!r} has {array.size} values, but shape {list(shape)} has "
            f"{math.prod(shape)}. "
            + ("It pads every row, so give a single value." if shape == () else "Give each value.")
        )
    array = array.astype(feature.dtype).reshape(shape)
    array.flags.writeable = False
    return array


# ------------------------------------------------------------------ what parsing gives


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


class _Fields(NamedTuple):
    indices: np.ndarray
    values: np.ndarray
    dense_shape: np.ndarray


class SparseTensor(_Fields):
    """Values and where they stand in an array that has nothing elsewhere, as `tf.SparseTensor`.

    Lists become arrays.

    Attributes:
      indices: int64 of shape (values, dimensions): the place of each value, in order.
      values: The values.
      dense_shape: int64: the shape of the array.
    """

    __slots__ = ()

    def __new__(cls, indices: ArrayLike, values: ArrayLike, dense_shape: ArrayLike) -> Self:
        if isinstance(dense_shape, list | tuple):
            dense_shape = np.array(dense_shape, np.int64)
        if isinstance(values, list | tuple):
            values = np.array([x.encode() if isinstance(x, str) else x for x in values])
            values = values.astype(STRING) if values.dtype.kind == "S" else values
            short = _SHORT.get(values.dtype)  # what numbers of Python become
            if short is not None and (short is FLOAT32 or np.all(values == values.astype(short))):
                values = values.astype(short)
        if isinstance(indices, list | tuple):
            indices = np.array(indices, np.int64).reshape(-1, np.size(dense_shape))
            if len(indices) != np.shape(values)[0]:
                raise ValueError(
                    f"A SparseTensor has a place for each value; got {len(indices)} indices for "
                    f"{np.shape(values)[0]} values."
                )
        return super().__new__(cls, indices, values, dense_shape)  # pyright: ignore


class PaddedRows(NamedTuple):
    """Rows of different lengths as one array, where TensorFlow has a `tf.RaggedTensor`.

    What `dataset.ragged_batch` and a `RaggedFeature` give: arrays of one shape are what JAX
    computes with, and the lengths say which part of each row is there.

    >>> import numpy as np
    >>> batch = PaddedRows(np.array([[1, 2, 3], [4, 0, 0]]), np.array([3, 1]))
    >>> [row[:length].tolist() for row, length in zip(*batch)]
    [[1, 2, 3], [4]]

    Attributes:
      rows: The rows, filled up to the longest with 0 or b"".
      lengths: How many values of each row are there.
    """

    rows: np.ndarray
    lengths: np.ndarray


def filled_rows(flat: np.ndarray, counts: np.ndarray, fill: object) -> np.ndarray:
    """Returns values as rows of as many as `counts` says, filled up to the longest."""
    longest = int(counts.max(initial=0))
    if flat.size == len(counts) * longest:
        return flat.reshape(len(counts), longest)
    rows = np.full((len(counts), longest), fill, flat.dtype)
    rows[np.arange(longest) < counts[:, None]] = flat
    return rows


def empty_value(dtype: np.dtype) -> Any:
    """Returns what rows are filled up with: 0, or no bytes."""
    return b"" if dtype == STRING else 0


def to_dense(sparse: SparseTensor, default_value: object = None) -> np.ndarray:
    """Returns the array of a `SparseTensor`, with `default_value` (0 or b"") where it has none.

    >>> rows = SparseTensor([[0, 0], [1, 1]], [7, 8], [2, 2])
    >>> to_dense(rows, default_value=-1).tolist()
    [[7, -1], [-1, 8]]
    """
    indices, values, shape = sparse
    if default_value is None:
        default_value = b"" if values.dtype == STRING else 0
    if isinstance(default_value, str):
        default_value = default_value.encode()
    dense = np.full(tuple(np.asarray(shape).tolist()), default_value, values.dtype)
    dense[tuple(np.asarray(indices).T)] = values
    return dense
