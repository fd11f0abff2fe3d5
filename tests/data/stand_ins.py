"""Stand-ins for the data sets of other libraries: as much of them as an adapter touches.

Classes are recognised by their names and modules, so these have the names and modules of the real
ones. The tests run against the stand-ins always, and against the libraries where installed.
"""

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np


def pose(module: str, *kinds: type) -> None:
    """Makes classes look as if a module defined them."""
    for kind in kinds:
        kind.__module__ = module
        kind.__qualname__ = kind.__name__


# ------------------------------------------------------------------ torch


class Tensor:
    """An array behind the methods of a tensor."""

    def __init__(self, array: Any, dtype: str = ""):
        self._array = np.asarray(array)
        self.dtype = f"torch.{dtype or self._array.dtype}"
        self.shape = self._array.shape

    def __getitem__(self, index: Any) -> "Tensor":
        return Tensor(self._array[index])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array

    def detach(self) -> "Tensor":
        return self

    def contiguous(self) -> "Tensor":
        return self

    def view(self, dtype: Any) -> "Tensor":
        return Tensor(self._array.view(dtype))

    def fill_(self, value: Any) -> "Tensor":
        self._array[...] = value
        return self

    def numpy(self, force: bool = False) -> np.ndarray:
        assert force and self.dtype != "torch.bfloat16"
        return self._array


def stack(tensors: Sequence[Tensor]) -> Tensor:
    if len({tensor.shape for tensor in tensors}) > 1:
        raise RuntimeError("stack expects each tensor to be equal size")
    dtype = tensors[0].dtype.removeprefix("torch.")
    return Tensor(np.stack([tensor._array for tensor in tensors]), dtype)


def bfloat16_tensor(array: np.ndarray) -> Tensor:
    """Values that bfloat16 has exactly, as their bits."""
    return Tensor((array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), "bfloat16")


class Dataset:
    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError


class IterableDataset(Dataset):
    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class TensorDataset(Dataset):
    def __init__(self, *tensors: Tensor):
        self.tensors = tensors

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class DataLoader:
    """Collates as torch does: a tuple of two becomes a list of two batches."""

    def __init__(self, dataset: Any, batch_size: int | None = 1, drop_last: bool = False):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.batch_sampler = None if batch_size is None else object()
        self.num_workers, self.collate_fn = 0, default_collate if batch_size else None

    def __iter__(self) -> Iterator[Any]:
        if self.batch_size is None:
            yield from (
                self.dataset
                if isinstance(self.dataset, IterableDataset)
                else map(self.dataset.__getitem__, range(len(self.dataset)))
            )
            return
        for first in range(0, len(self.dataset), self.batch_size):
            numbers = range(first, min(first + self.batch_size, len(self.dataset)))
            if len(numbers) == self.batch_size or not self.drop_last:
                yield default_collate([self.dataset[number] for number in numbers])

    def __len__(self) -> int:
        size = len(self.dataset)
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


def default_collate(rows: list[Any]) -> Any:
    first = rows[0]
    if isinstance(first, dict):
        return {key: default_collate([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple | list):
        return [default_collate(list(column)) for column in zip(*rows)]
    if isinstance(first, str):
        return rows
    return Tensor(np.stack([np.asarray(row) for row in rows]))


pose("torch", Tensor)
pose("torch.utils.data.dataset", Dataset, IterableDataset, TensorDataset)
pose("torch.utils.data.dataloader", DataLoader)


def torch_module() -> types.ModuleType:
    """What takes the place of torch in `sys.modules`."""
    module: Any = types.ModuleType("torch")
    module.stack, module.int16, module.as_tensor = stack, np.int16, Tensor
    module.bfloat16_tensor = bfloat16_tensor
    module.utils = types.SimpleNamespace(
        data=types.SimpleNamespace(
            Dataset=Dataset,
            IterableDataset=IterableDataset,
            TensorDataset=TensorDataset,
            DataLoader=DataLoader,
        )
    )
    return module


# ------------------------------------------------------------------ Grain


class MapDataset:
    """Elements by index; None where a filter left one out."""

    def __init__(self, get: Callable[[int], Any], size: int):
        self._get, self._size = get, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        return self._get(index)


class IterDataset:
    def __init__(self, elements: Sequence[Any]):
        self._elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)


pose("grain._src.python.dataset.dataset", MapDataset, IterDataset)


# ------------------------------------------------------------------ TensorFlow Datasets


class BaseDataSource(Sequence[Any]):
    """Numbered images and labels; it can be walked through as well, one by one."""

    def __init__(self, size: int):
        self._size = size
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, record_key: Any) -> Any:
        return self.__getitems__([record_key])[0]

    def __getitems__(self, record_keys: Sequence[int]) -> Sequence[Any]:
        assert record_keys and all(type(key) is int for key in record_keys)
        self.asked.append(list(record_keys))
        return [{"image": np.full((2, 1), key, np.uint8), "label": key} for key in record_keys]


pose("tensorflow_datasets.core.data_sources.base", BaseDataSource)


# ------------------------------------------------------------------ tf.data


class TensorShape(tuple[Any, ...]):
    @property
    def rank(self) -> int | None:
        return len(self)


class TensorSpec:
    def __init__(self, shape: tuple[int | None, ...], dtype: str):
        self.shape = TensorShape(shape)
        self.dtype = types.SimpleNamespace(
            name=dtype, as_numpy_dtype=object if dtype == "string" else np.dtype(dtype).type
        )


class RaggedTensorSpec(TensorSpec):
    pass


class DatasetV2:
    """A pipeline of elements that are known beforehand."""

    def __init__(self, elements: Sequence[Any], element_spec: Any, policy: str = "AUTO"):
        self._elements, self.element_spec, self._policy = elements, element_spec, policy
        self.skipped = 0

    def as_numpy_iterator(self) -> Iterator[Any]:
        return iter(self._elements)

    def cardinality(self) -> Any:
        return np.asarray(len(self._elements))

    def skip(self, count: int) -> "DatasetV2":
        self.skipped += count
        return DatasetV2(self._elements[count:], self.element_spec)

    def options(self) -> Any:
        policy = types.SimpleNamespace(name=self._policy)
        distribute = types.SimpleNamespace(auto_shard_policy=policy)
        return types.SimpleNamespace(experimental_distribute=distribute)


pose("tensorflow.python.data.ops.dataset_ops", DatasetV2)


# ------------------------------------------------------------------ Hugging Face


class ArrowDataset:
    """Rows of columns, in a format of the user's."""

    def __init__(self, columns: dict[str, Any], form: str = "numpy"):
        self._columns = columns
        self.format = {"type": form, "columns": list(columns)}
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: Any) -> Any:
        self.asked.append(key)
        numbers = range(len(self))[key] if isinstance(key, slice) else key
        return {
            name: column[list(numbers)]
            if isinstance(column, np.ndarray)
            else [column[number] for number in numbers]
            for name, column in self._columns.items()
        }


class StreamedDataset:
    """Rows one after the other."""

    features = None

    def __init__(self, rows: Sequence[Any]):
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def skip(self, count: int) -> "StreamedDataset":
        return StreamedDataset(self._rows[count:])


class DatasetDict(dict[str, Any]):
    pass


ArrowDataset.__name__, StreamedDataset.__name__ = "Dataset", "IterableDataset"
pose("datasets.arrow_dataset", ArrowDataset)
pose("datasets.iterable_dataset", StreamedDataset)
pose("datasets.dataset_dict", DatasetDict)


# ------------------------------------------------------------------ ArrayRecord


class ArrayRecordDataSource:
    """Files of lines, in the place of files of records."""

    read: list[int] = []

    def __init__(self, paths: Sequence[str]):
        self._records: list[bytes] = []
        for path in paths:
            with open(path, "rb") as file:
                lines = file.read().splitlines()
            if lines[:1] == [b"damaged"]:
                raise RuntimeError("")
            self._records += lines

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> bytes:
        if self._records[number] == b"broken":
            raise RuntimeError("Corrupted Riegeli/records file: hash mismatch; at byte 17")
        return self._records[number]

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        self.read.extend(numbers)
        return [self[number] for number in numbers]


def array_record_modules() -> dict[str, types.ModuleType]:
    """What takes the place of array_record in `sys.modules`."""
    package: Any = types.ModuleType("array_record")
    python: Any = types.ModuleType("array_record.python")
    source: Any = types.ModuleType("array_record.python.array_record_data_source")
    source.ArrayRecordDataSource = ArrayRecordDataSource
    package.python, python.array_record_data_source = python, source
    return {
        "array_record": package,
        "array_record.python": python,
        "array_record.python.array_record_data_source": source,
    }
