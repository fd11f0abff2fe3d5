"""SafeTensors, by its library: a file, or parts of it with an index, as Hugging Face has them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from replicax._src._local_path import made_absolute
from replicax._src.checkpoints._problems import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    SaveFailedError,
)

ENDING = ".safetensors"
PARTS = ".safetensors.index.json"
_MOST_INDEX = 64 << 20
_DTYPES = {
    **{"BOOL": "bool", "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint"))
       for bits in (8, 16, 32, 64)},
}  # fmt: skip


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "SafeTensors need the package safetensors, which is not installed. Run: pip install "
            'safetensors (or "replicax[safetensors]")'
        ) from None
    import safetensors

    return safetensors


def is_safetensors(path: str) -> bool:
    """Returns whether this is a file of SafeTensors, or the index of one in parts."""
    return path.endswith((ENDING, PARTS)) and os.path.isfile(path)


def can_hold(dtype: np.dtype) -> bool:
    """Returns whether such arrays can be in a file that the library reads again."""
    return str(dtype) in _DTYPES.values()


@final
class SafeTensors:
    """The tensors of a file, or of all its parts, by name; each is read when it is asked for."""

    def __init__(self, path: str):
        self.path = made_absolute(path)
        files = [self.path] if path.endswith(ENDING) else self._parts()
        self.tensors: dict[str, tuple[str, np.dtype, list[int]]] = {}
        for file in files:
            with self._opened(file) as opened:
                for name in opened.keys():
                    tensor = opened.get_slice(name)
                    dtype = _DTYPES.get(tensor.get_dtype())
                    if dtype is None:
                        raise DamagedCheckpointError(
                            f"{name!r} in {file} is {tensor.get_dtype()}, which the library "
                            "safetensors does not read into NumPy arrays.",
                            path=self.path,
                        )
                    self.tensors[name] = file, np.dtype(dtype), tensor.get_shape()

    def _parts(self) -> list[str]:
        folder = os.path.dirname(self.path)
        try:
            with open(self.path, encoding="utf-8") as file:
                names = sorted(set(json.loads(file.read(_MOST_INDEX))["weight_map"].values()))
            if any(os.path.basename(name) != name for name in names):
                raise ValueError("a part is in another folder")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(self.path, error) from None
        return [os.path.join(folder, name) for name in names]

    def _damaged(self, file: str, error: object) -> DamagedCheckpointError:
        return DamagedCheckpointError(f"{file} is damaged: {error}.", path=self.path)

    @contextlib.contextmanager
    def _opened(self, file: str) -> Iterator[Any]:
        library = _library()
        try:
            with library.safe_open(file, "numpy") as opened:
                yield opened
        except library.SafetensorError as error:
            raise self._damaged(file, error) from None
        except FileNotFoundError:
            raise CheckpointNotFoundError(f"There is no file {file}.") from None

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor."""
        with self._opened(self.tensors[name][0]) as opened:
            return opened.get_tensor(name)


def write_safetensors(path: str, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int],
                      part_bytes: int) -> list[str]:  # fmt: skip
    """Writes a file, or several with an index if it would be larger; returns their paths.

    Args:
      path: ends in `.safetensors`. Parts are `NAME-00001-of-00003.safetensors` beside it.
      arrays: read one part at a time.
      sizes: the bytes of each.
      part_bytes: how large a part may be; a larger array is alone in one.
    """
    library = _library()
    parts: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if parts[-1] and filled + size > part_bytes:
            parts.append([])
            filled = 0
        parts[-1].append(name)
        filled += size
    stem = path.removesuffix(ENDING)
    count = len(parts)
    files = [path] if count == 1 else [
        f"{stem}-{number:05d}-of-{count:05d}{ENDING}" for number in range(1, count + 1)
    ]  # fmt: skip
    index = stem + PARTS
    require_free(*files, *([index] if count > 1 else []))
    written: list[str] = []
    try:
        for file, names in zip(files, parts):
            held = {name: np.asarray(arrays[name], order="C") for name in names}
            beside = (
                f"{file}.{os.getpid()}.tmp"  # a program that is killed leaves no half of a file
            )
            try:
                library.numpy.save_file(held, beside)
                require_free(file)  # it may be there since
                open(file, "xb").close()
                written.append(file)
                os.replace(beside, file)
            except library.SafetensorError as error:
                raise SaveFailedError(f"{file} could not be written: {error}") from error
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside)
        if count > 1:
            placed = {
                name: os.path.basename(file) for file, each in zip(files, parts) for name in each
            }
            with open(index, "x", encoding="utf-8") as out:
                written.append(index)
                whole = {"total_size": sum(sizes.values())}
                json.dump({"metadata": whole, "weight_map": placed}, out, indent=2)
    except BaseException:
        for file in written:  # there was none of them before
            with contextlib.suppress(FileNotFoundError):
                os.remove(file)
        raise
    return written


def require_free(*paths: str) -> None:
    """`FileExistsError` if there is something at one of these paths."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError(
                f"{path} exists, and is not overwritten. Name another, or remove it."
            )
