"""Looking into a checkpoint without a program that fits it: names, shapes and values."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Collection
from typing import Any, final

import jax
import numpy as np

from replicax._src._local_path import made_absolute
from replicax._src._typing import override
from replicax._src.checkpoints._background import finish_all
from replicax._src.checkpoints._graph import Kind
from replicax._src.checkpoints._latest import latest_checkpoint, list_checkpoints
from replicax._src.checkpoints._names import MANIFEST
from replicax._src.checkpoints._opening import bundle_at
from replicax._src.checkpoints._paths import as_path
from replicax._src.checkpoints._problems import CheckpointNotFoundError
from replicax._src.checkpoints._saved import Saved, SavedFolder
from replicax._src.checkpoints.foreign._bundle import Bundle
from replicax._src.checkpoints.foreign._object_graph import SUFFIX
from replicax._src.checkpoints.foreign._safetensors import SafeTensors, is_safetensors
from replicax._src.context import require_threads


class CheckpointReader(abc.ABC):
    """What is in a checkpoint, by name: variables, arrays and numbers. See `load_checkpoint`."""

    path: str

    @abc.abstractmethod
    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shapes, by name."""

    @abc.abstractmethod
    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Returns the dtypes, by name; "key" for random keys."""

    @abc.abstractmethod
    def _spelt(self, name: str) -> str:
        """Returns the name as this checkpoint has it, or the same if it has none such."""

    @abc.abstractmethod
    def _read(self, name: str) -> np.ndarray: ...

    @property
    @abc.abstractmethod
    def _names(self) -> Collection[str]: ...

    def has_tensor(self, tensor_str: str) -> bool:
        """Returns whether something of this name is saved."""
        return self._spelt(tensor_str) in self._names

    def get_tensor(self, tensor_str: str) -> np.ndarray:
        """Returns the value of this name; of random keys what `jax.random.key_data` gives."""
        name = self._spelt(tensor_str)
        if name not in self._names:
            raise KeyError(
                f"There is no {name!r} in the checkpoint {self.path}. There are: "
                f"{', '.join(sorted(self._names))}."
            )
        return self._read(name)


@final
class FolderReader(CheckpointReader):
    """Reads a checkpoint of ours."""

    def __init__(self, saved: Saved):
        require_threads("load_checkpoint")  # TensorStore would abort the child of a fork
        self._saved = saved
        self.path = saved.path
        objects = enumerate(saved.objects)
        self._found = {
            each["path"]: i for i, each in objects if "shape" in each or each["kind"] == Kind.NUMBER
        }

    @property
    @override
    def _names(self) -> Collection[str]:
        return self._found

    @override
    def _spelt(self, name: str) -> str:
        for suffix in (SUFFIX, ":0"):  # as TensorFlow's programs have them
            name = name.removesuffix(suffix)
        return name

    @override
    def _read(self, name: str) -> np.ndarray:
        index = self._found[name]
        if self._is_number(index):
            return np.asarray(self._saved.number(index))
        (value,) = self._saved.arrays([index]).values()
        if self._saved.spec(index).keys is not None:
            value = jax.random.key_data(value)
        return np.asarray(value)

    @override
    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        objects = self._saved.objects
        return {
            name: list(objects[index].get("shape", ()))
            for name, index in sorted(self._found.items())
        }

    @override
    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        return {name: self._dtype(index) for name, index in sorted(self._found.items())}

    def _is_number(self, index: int) -> bool:
        return self._saved.objects[index]["kind"] == Kind.NUMBER

    def _dtype(self, index: int) -> Any:
        if self._is_number(index):
            return np.asarray(self._saved.number(index)).dtype
        spec = self._saved.spec(index)
        return spec.dtype if spec.keys is not None else np.dtype(spec.dtype)


@final
class BundleReader(CheckpointReader):
    """Reads a checkpoint of TensorFlow, under the names that TensorFlow gives; texts are bytes."""

    def __init__(self, bundle: Bundle):
        self._bundle = bundle
        self.path = bundle.prefix

    @property
    @override
    def _names(self) -> Collection[str]:
        return self._bundle.tensors

    @override
    def _spelt(self, name: str) -> str:
        tensors = self._bundle.tensors
        if name in tensors:
            return name
        return next((e for e in (name + SUFFIX, name.removesuffix(":0")) if e in tensors), name)

    @override
    def _read(self, name: str) -> np.ndarray:
        return self._bundle.read(name)

    @override
    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(each.shape) for name, each in sorted(self._bundle.tensors.items())}

    @override
    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        return {name: each.dtype for name, each in sorted(self._bundle.tensors.items())}


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Returns a reader of the values in a checkpoint.

    >>> import tempfile
    >>> import replicax as rx
    >>> folder = tempfile.mkdtemp()
    >>> path = rx.train.Checkpoint(w=rx.Variable([1.0, 2.0]), step=3).save(folder + "/ckpt")
    >>> reader = load_checkpoint(folder)
    >>> reader.get_variable_to_shape_map()
    {'save_counter': [], 'step': [], 'w': [2]}
    >>> reader.get_tensor("w")
    array([1., 2.], dtype=float32)

    Args:
      ckpt_dir_or_file: the path of a checkpoint, or a directory, for the latest one in it. Of
        TensorFlow's checkpoints, the prefix, or the directory; TensorFlow need not be there. Or a
        file of SafeTensors, or the index of one in parts, with the package `safetensors`.
    """
    path = made_absolute(as_path(ckpt_dir_or_file, "ckpt_dir_or_file"))
    finish_all()
    if is_safetensors(path):
        return SafeTensorsReader(SafeTensors(path))
    if (prefix := bundle_at(path)) is not None:
        return BundleReader(Bundle(prefix))
    if os.path.exists(os.path.join(path, MANIFEST)):
        return FolderReader(SavedFolder(path))
    latest = latest_checkpoint(path)
    if latest is None:
        raise CheckpointNotFoundError(
            f"There is no checkpoint at {path}, and none in it. Pass what save() returned, or the "
            "directory that checkpoints were saved to."
        )
    if (prefix := bundle_at(latest)) is not None:
        return BundleReader(Bundle(prefix))
    return FolderReader(SavedFolder(latest, verified=True))


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> np.ndarray:
    """Returns the value of this name in a checkpoint.

    Args:
      ckpt_dir_or_file: the path of a checkpoint, or a directory, for the latest one in it.
      name: as `list_variables` tells it.
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns the names and shapes of what is saved in a checkpoint.

    Args:
      ckpt_dir_or_file: the path of a checkpoint, or a directory, for the latest one in it.
    """
    return list(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


@final
class SafeTensorsReader(CheckpointReader):
    """Reads SafeTensors, by the library of that name."""

    def __init__(self, tensors: SafeTensors):
        self._tensors = tensors
        self.path = tensors.path

    @property
    @override
    def _names(self) -> Collection[str]:
        return self._tensors.tensors

    @override
    def _spelt(self, name: str) -> str:
        return name

    @override
    def _read(self, name: str) -> np.ndarray:
        return self._tensors.read(name)

    @override
    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: shape for name, (_, _, shape) in sorted(self._tensors.tensors.items())}

    @override
    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        return {name: dtype for name, (_, dtype, _) in sorted(self._tensors.tensors.items())}


@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """The checkpoints of a directory.

    Attributes:
      model_checkpoint_path: the path of the latest.
      all_model_checkpoint_paths: the paths of all, earliest first.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Returns the checkpoints of a directory; None if there are none.

    Args:
      checkpoint_dir: where checkpoints were saved.
      latest_filename: kept for ported code.
    """
    latest = latest_checkpoint(checkpoint_dir)
    return None if latest is None else CheckpointState(latest, list_checkpoints(checkpoint_dir))
