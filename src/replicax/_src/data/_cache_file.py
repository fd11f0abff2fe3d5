"""The file of `cache(filename)`: arrays as bytes, described by JSON. Reading it runs nothing.

A file is a first line, how long the description is, the checksum of that, the description, and
sections of bytes. An element is taken apart into leaves; the same leaf of all elements is a column.
A column has a section that names, for each element, which of its *types* (kind, dtype and shape)
the leaf has, and then for each type a section with all leaves that have it, one after the other.

What is read is not trusted: sizes are compared with the file before memory is taken, checksums
before anything is made of the bytes. Classes of containers are not looked up by name: where
elements have any but tuples and dicts, the data set itself says which.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, NoReturn, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._typing import PyTree
from replicax._src._whole_file import whole_file
from replicax._src.data._abandoned import create_locked, remove_abandoned
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    Leaf,
    Structure,
    aligned,
    map_leaves,
    object_array,
    plain,
    read_only,
)
from replicax._src.data._indexed import NUMBERS
from replicax._src.records import PaddedRows, SparseTensor

_FIRST_LINE = b"replicax cache 1\n"
_SIZES = struct.Struct("<QI")  # the length of the description, and its checksum
_TEMPORARY = re.compile(r"\.rx-cache-[0-9a-f]{16}")
_ALIGNMENT = 64
_MOST_DESCRIPTION = 1 << 28  # bytes


class LeafKind(enum.StrEnum):
    """What a leaf is; the values are what the file has."""

    ARRAY = "array"
    SCALAR = "scalar"  # NumPy's
    BYTES = "bytes"  # a text that stands alone

    @property
    def stands_alone(self) -> bool:
        return self is not LeafKind.ARRAY


class LeafType(NamedTuple):
    """What a leaf looks like.

    Attributes:
      kind: what it is.
      dtype: its name, or "string".
      shape: the dimensions.
    """

    kind: LeafKind
    dtype: str
    shape: tuple[int, ...]


# ------------------------------------------------------------------ writing


def check_can_be_kept(element: Element, operation: str = "cache(filename)") -> None:
    """Refuses what has no place in a file, before all of it is computed."""
    for leaf in Structure(element).leaves(element):
        _type_of(leaf, operation)


def tidy(folder: str) -> None:
    """Removes the halves of files that killed programs have left in a folder."""
    remove_abandoned(folder, _TEMPORARY)


def write(
    filename: str, elements: Sequence[Any], seeds: tuple[int, ...], compress: bool = False
) -> None:
    """Writes a file; it is there whole or not at all.

    Args:
      filename: of the file.
      elements: of the data set.
      seeds: that decided their order, of the operations that draw one for themselves.
      compress: whether to store the sections compressed.
    """
    folder = os.path.dirname(os.path.abspath(filename))
    temporary = os.path.join(folder, f".rx-cache-{secrets.token_hex(8)}")
    with whole_file(filename, temporary, create_locked(temporary)) as file:
        _write(file, [plain(element) for element in elements], seeds, compress)


def _write(file: IO[bytes], elements: list[Any], seeds: tuple[int, ...], compress: bool) -> None:
    columns: list[list[LeafType]] = []
    sections: list[bytes] = []
    for column in Structure(elements[0]).columns(elements) if elements else ():
        types, parts = _encoded(column)
        columns.append(types)
        sections += parts
    lengths: list[tuple[int, ...]] = [()] * len(sections)
    if compress:  # what a reader has to expect comes third
        lengths = [(len(section),) for section in sections]
        sections = [zlib.compress(section) for section in sections]
    description = {
        "elements": len(elements),
        "structure": described(elements[0]) if elements else None,
        "seeds": seeds,
        "columns": columns,
        "sections": [
            [len(section), zlib.crc32(section), *length]
            for section, length in zip(sections, lengths)
        ],
    }
    text = json.dumps(description).encode()
    file.write(_FIRST_LINE + _SIZES.pack(len(text), zlib.crc32(text)) + text)
    for section in sections:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        file.write(section)


def _encoded(column: Sequence[Any]) -> tuple[list[LeafType], list[bytes]]:
    """Returns the types of a column's leaves, and its sections."""
    groups: dict[LeafType, list[Any]] = {}
    which: list[int] = []
    numbers: dict[LeafType, int] = {}
    for leaf in column:
        type_ = _type_of(leaf)
        which.append(numbers.setdefault(type_, len(numbers)))
        groups.setdefault(type_, []).append(leaf)
    sections = [np.array(which, "<i4").tobytes()]
    for type_, leaves in groups.items():
        sections.append(_texts(leaves) if type_.dtype == "string" else _numbers(leaves))
    return list(groups), sections


def _numbers(leaves: Sequence[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)


def _texts(leaves: Sequence[Any]) -> bytes:
    texts: list[bytes] = []
    for leaf in leaves:
        texts += [leaf] if isinstance(leaf, bytes) else leaf.ravel().tolist()
    return np.array(list(map(len, texts)), "<i8").tobytes() + b"".join(texts)


def _type_of(leaf: Leaf, operation: str = "cache(filename)") -> LeafType:
    if isinstance(leaf, bytes):
        return LeafType(LeafKind.BYTES, "string", ())
    if isinstance(leaf, DatasetBase):
        raise TypeError(
            f"{operation} cannot keep data sets, such as the windows of window(), in a file. "
            "Make arrays of them first: .flat_map(lambda window: window.batch(size)). cache() "
            "without a file name keeps them in memory."
        )
    name = "string" if leaf.dtype == STRING else leaf.dtype.name
    if name != "string" and _dtype(name) != leaf.dtype:
        raise TypeError(
            f"{operation} keeps arrays of numbers and of text; it was given one of {leaf.dtype}"
            ". Take it apart in map() first. cache() without a file name keeps it in memory."
        )
    kind = LeafKind.ARRAY if isinstance(leaf, np.ndarray) else LeafKind.SCALAR
    return LeafType(kind, name, leaf.shape)


def is_dtype(name: object) -> bool:
    """Returns whether leaves of a dtype with this name can be in a file."""
    return name == "string" or _dtype(name) is not None


def _dtype(name: object) -> np.dtype | None:
    """Returns the dtype of numbers with this name, if there is one."""
    if not isinstance(name, str) or not name.isidentifier():
        return None
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    numbers = dtype.kind in NUMBERS and dtype.type is not np.void
    return dtype if numbers and dtype.name == name else None


_TUPLES = {tuple: "tuple", SparseTensor: "sparse", PaddedRows: "padded"}


def described(element: Element) -> Any:
    """Returns the structure as JSON, where it is of tuples and dicts; as a text otherwise."""
    nested = _nested(map_leaves(lambda _: 0, element))
    return Structure(element).text if nested is None else nested


def _nested(like: PyTree) -> Any:
    kind = type(like)
    if kind is int:
        return []
    if kind is dict and all(type(key) is str for key in like):
        parts = [[key, _nested(child)] for key, child in like.items()]
        return None if any(part is None for _, part in parts) else ["dict", *parts]
    if kind in _TUPLES:
        children = [_nested(child) for child in like]
        name = _TUPLES[kind]
        return None if any(child is None for child in children) else [name, *children]
    return None


# ------------------------------------------------------------------ reading


class _Damaged(Exception):
    """Internal: what is wrong with a file."""


def read_seeds(filename: str) -> tuple[int, ...]:
    """Returns the seeds of a file, without its elements."""
    with _opened(filename) as file:
        return _Description.read(file).seeds


def _refuse(filename: str, why: str) -> NoReturn:
    raise ValueError(
        f"{filename!r} is no cache file of a data set that can be used: {why}. Delete it, so that "
        "the elements are computed again, or name another file in cache()."
    )


def read(
    filename: str,
    seeds: tuple[int, ...],
    spec: Callable[[], Any],
    refuse: Callable[[str, str], NoReturn] = _refuse,
) -> list[Any] | None:
    """Returns the elements in a file; None if their order was decided by other seeds.

    Args:
      filename: of the file.
      seeds: what it must have been written with.
      spec: gives that of the elements; called if they have containers but tuples and dicts.
      refuse: raises the error of a file that cannot be used; it gets the name, and why.

    Raises:
      ValueError: it is no such file, or it is damaged.
    """
    with _opened(filename, refuse) as file:
        description = _Description.read(file)
        if description.seeds != seeds:
            return None
        build = _builder(description, spec)
        sections = iter([_section(file, *section) for section in description.sections])
        columns = [_decoded(types, sections, description.elements) for types in description.columns]
        if next(sections, None) is not None:
            raise _Damaged("it has more sections than columns")
        return [build(row) for row in zip(*columns)]


@contextlib.contextmanager
def _opened(filename: str, refuse: Callable[[str, str], NoReturn] = _refuse) -> Any:
    """Opens a file for reading; whatever is found wrong in it becomes one error."""
    handle = os.open(filename, os.O_RDONLY | os.O_NONBLOCK)  # or a pipe would wait for a writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        refuse(filename, "it is no regular file")
    with open(handle, "rb", buffering=0) as file:
        try:
            yield file
        except _Damaged as error:
            refuse(filename, str(error))


@final
@dataclasses.dataclass(frozen=True)
class _Description:
    """The description in a file, checked."""

    elements: int
    structure: Any
    seeds: tuple[int, ...]
    columns: list[list[LeafType]]
    sections: list[tuple[int, ...]]  # size, checksum, and the size of what was compressed

    @classmethod
    def read(cls, file: IO[bytes]) -> _Description:
        first = _bytes(file, len(_FIRST_LINE)).tobytes()
        if first[:1] == b"\x80":
            raise _Damaged(
                "it is a pickle, as older versions of replicax wrote, and a pickle can run any "
                "code when it is read"
            )
        if first != _FIRST_LINE:
            raise _Damaged("it does not begin as such files of this version do")
        length, checksum = _SIZES.unpack(_bytes(file, _SIZES.size).data)
        if length > _MOST_DESCRIPTION:
            raise _Damaged(f"its description claims {length} bytes")
        text = _bytes(file, length).tobytes()
        if zlib.crc32(text) != checksum:
            raise _Damaged("its description does not match its checksum")
        try:
            found = json.loads(text)
            return cls(
                _count(found["elements"]),
                found["structure"],
                tuple(integer(seed) for seed in found["seeds"]),
                [[_checked_type(*type_) for type_ in types] for types in found["columns"]],
                [_checked_section(*section) for section in found["sections"]],
            )
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise _Damaged(f"its description cannot be understood ({error!r:.80})") from None


def integer(value: object) -> int:
    """Returns what JSON had, if it is an integer."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def _count(value: object) -> int:
    number = integer(value)
    if number < 0:
        raise ValueError(f"{number} is below 0")
    return number


def _checked_section(size: object, checksum: object, *length: object) -> tuple[int, ...]:
    if len(length) > 1:
        raise ValueError(f"a section of {length!r:.40}")
    return (_count(size), integer(checksum), *map(_count, length))


def _checked_type(kind: object, dtype: object, shape: Sequence[object]) -> LeafType:
    if not isinstance(dtype, str) or not is_dtype(dtype):
        raise ValueError(f"{kind!r:.40} of {dtype!r:.40}")
    known = LeafKind(kind)
    if (known is LeafKind.BYTES and dtype != "string") or (known.stands_alone and shape != []):
        raise ValueError(f"{kind} of {dtype} and shape {shape!r:.40}")
    return LeafType(known, dtype, tuple(_count(size) for size in shape))


def _bytes(file: IO[bytes], count: int) -> np.ndarray:
    """Returns the next bytes; memory is taken only for those that there are."""
    if count > os.fstat(file.fileno()).st_size - file.tell():
        raise _Damaged("it ends too early")
    found = aligned((count,), np.uint8)
    view, done = found.data, 0
    while done < count:
        now = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not now:
            raise _Damaged("it ends too early")
        done += now
    return read_only(found)


def _section(file: IO[bytes], size: int, checksum: int, *length: int) -> np.ndarray:
    file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
    section = _bytes(file, size)
    if zlib.crc32(section.data) != checksum:
        raise _Damaged("its content does not match its checksum")
    return _decompressed(section, *length) if length else section


def _decompressed(section: np.ndarray, length: int) -> np.ndarray:
    """Returns what was compressed; no more memory is taken than was told."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(section.data, length or 1)
    except zlib.error as error:
        raise _Damaged(f"its content cannot be decompressed ({error})") from None
    if len(content) != length or (length and not stream.eof and stream.decompress(b"", 1)):
        raise _Damaged("its content is not as long as its description says")
    return np.frombuffer(content, np.uint8)


def _decoded(types: Sequence[LeafType], sections: Iterator[np.ndarray], count: int) -> list[Any]:
    """Returns the leaves of one column."""
    which = _next(sections)
    if which.size != 4 * count or count == 0:
        raise _Damaged("a column does not have a leaf for each element")
    which = which.view("<i4")
    if which.min() < 0 or which.max() >= len(types):
        raise _Damaged("a leaf has a type that is not described")
    found: list[Any] = []
    for type_, number in zip(types, np.bincount(which, minlength=len(types)).tolist()):
        decode = _texts_in if type_.dtype == "string" else _numbers_in
        found += decode(_next(sections), type_, number)
    leaves: list[Any] = [None] * count
    for leaf, place in zip(found, np.argsort(which, kind="stable").tolist()):
        leaves[place] = leaf
    return leaves


def _next(sections: Iterator[np.ndarray]) -> np.ndarray:
    section = next(sections, None)
    if section is None:
        raise _Damaged("it has fewer sections than columns")
    return section


def _numbers_in(section: np.ndarray, type_: LeafType, count: int) -> list[Any]:
    dtype = np.dtype(type_.dtype)
    if section.size != count * math.prod(type_.shape) * dtype.itemsize:
        raise _Damaged(f"a column of {count} leaves {type_} has {section.size} bytes")
    if dtype == np.bool_ and section.size and section.max() > 1:
        raise _Damaged("a bool is neither True nor False")
    array = _reshaped(section.view(dtype), (count, *type_.shape))
    if type_.kind is LeafKind.SCALAR:
        return list(array)
    return [array[index, ...] for index in range(count)]  # an array also where it has 0 dimensions


def _texts_in(section: np.ndarray, type_: LeafType, count: int) -> list[Any]:
    each = math.prod(type_.shape)
    texts = count * each
    if 8 * texts > section.size:
        raise _Damaged(f"a column of {count} leaves {type_} has {section.size} bytes")
    lengths = section[: 8 * texts].view("<i8")
    content = section[8 * texts :].tobytes()
    if (lengths < 0).any() or sum(lengths.tolist()) != len(content):
        raise _Damaged("the lengths of texts are not those of their bytes")
    ends = np.cumsum(lengths).tolist()
    flat = [content[end - size : end] for end, size in zip(ends, lengths.tolist())]
    if type_.kind is LeafKind.BYTES:
        return flat
    array = _reshaped(object_array(flat), (count, *type_.shape))
    return [read_only(array[index, ...]) for index in range(count)]


def _reshaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise _Damaged(f"its arrays have an impossible shape ({error})") from None


def _builder(description: _Description, spec: Callable[[], Any]) -> Callable[[Sequence[Any]], Any]:
    """Returns what makes an element of its leaves."""
    described, count = description.structure, len(description.columns)
    if described is None or count == 0:
        if description.elements or count:
            raise _Damaged("its elements have no structure, or no columns")
        return tuple
    like = spec() if isinstance(described, str) else _like(described)
    structure = Structure(like)
    leaves = len(structure.leaves(like))
    if isinstance(described, str) and structure.text != described:
        raise _Damaged(
            f"its elements are {described:.200}, and those of the data set are {structure.text}"
        )
    if leaves != count:
        raise _Damaged(f"its elements have {leaves} leaves, and it has {count} columns")
    return structure.build


def _like(described: list[Any]) -> Any:
    """Returns a structure with numbers in the place of its leaves."""
    try:
        return structure_like(described)
    except (ValueError, TypeError, LookupError, RecursionError):
        raise _Damaged("its description has a structure that cannot be understood") from None


def structure_like(described: list[Any]) -> Any:
    """Returns a structure with numbers in the place of its leaves, of what `described` gave.

    Raises:
      ValueError, TypeError, LookupError, RecursionError: it is something else.
    """
    if not described:
        return 0
    kind, *parts = described
    match kind:
        case "dict":
            return {_key(key): structure_like(child) for key, child in parts}
        case "tuple":
            return tuple(structure_like(child) for child in parts)
        case "sparse":
            return SparseTensor(*[structure_like(child) for child in parts])
        case "padded":
            return PaddedRows(*[structure_like(child) for child in parts])
    raise ValueError(f"{kind!r:.40} is no container")


def _key(key: object) -> str:
    if type(key) is not str:
        raise TypeError(f"{key!r:.40} is no text")
    return key
