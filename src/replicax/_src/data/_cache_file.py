"""The file of `cache(filename)`: arrays as bytes, described by JSON. Reading it runs nothing.

A file is a first line, how long the description is, the checksum of that, the description, and
sections of bytes. An element is taken apart into leaves; the same leaf of all elements is a column
of several sections (`_leaf_columns.py`).

What is read is not trusted: sizes are compared with the file before memory is taken, checksums
before anything is made of the bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn, final

import numpy as np

from replicax._src._whole_file import whole_file
from replicax._src.data._abandoned import create_locked, remove_abandoned
from replicax._src.data._described import described, integer, structure_like
from replicax._src.data._elements import (
    Structure,
    aligned,
    plain,
    read_only,
)
from replicax._src.data._leaf_columns import (
    Damaged,
    LeafType,
    checked_type,
    count_in,
    decoded,
    encoded,
)

_FIRST_LINE = b"replicax cache 1\n"
_SIZES = struct.Struct("<QI")  # the length of the description, and its checksum
_TEMPORARY = re.compile(r"\.rx-cache-[0-9a-f]{16}")
_ALIGNMENT = 64
_MOST_DESCRIPTION = 1 << 28  # bytes


# ------------------------------------------------------------------ writing


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
        types, parts = encoded(column)
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


# ------------------------------------------------------------------ reading


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
        columns = [decoded(types, sections, description.elements) for types in description.columns]
        if next(sections, None) is not None:
            raise Damaged("it has more sections than columns")
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
        except Damaged as error:
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
            raise Damaged(
                "it is a pickle, as older versions of replicax wrote, and a pickle can run any "
                "code when it is read"
            )
        if first != _FIRST_LINE:
            raise Damaged("it does not begin as such files of this version do")
        length, checksum = _SIZES.unpack(_bytes(file, _SIZES.size).data)
        if length > _MOST_DESCRIPTION:
            raise Damaged(f"its description claims {length} bytes")
        text = _bytes(file, length).tobytes()
        if zlib.crc32(text) != checksum:
            raise Damaged("its description does not match its checksum")
        try:
            found = json.loads(text)
            return cls(
                count_in(found["elements"]),
                found["structure"],
                tuple(integer(seed) for seed in found["seeds"]),
                [[checked_type(*type_) for type_ in types] for types in found["columns"]],
                [_checked_section(*section) for section in found["sections"]],
            )
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise Damaged(f"its description cannot be understood ({error!r:.80})") from None


def _checked_section(size: object, checksum: object, *length: object) -> tuple[int, ...]:
    if len(length) > 1:
        raise ValueError(f"a section of {length!r:.40}")
    return (count_in(size), integer(checksum), *map(count_in, length))


def _bytes(file: IO[bytes], count: int) -> np.ndarray:
    """Returns the next bytes; memory is taken only for those that there are."""
    if count > os.fstat(file.fileno()).st_size - file.tell():
        raise Damaged("it ends too early")
    found = aligned((count,), np.uint8)
    view, done = found.data, 0
    while done < count:
        now = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not now:
            raise Damaged("it ends too early")
        done += now
    return read_only(found)


def _section(file: IO[bytes], size: int, checksum: int, *length: int) -> np.ndarray:
    file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
    section = _bytes(file, size)
    if zlib.crc32(section.data) != checksum:
        raise Damaged("its content does not match its checksum")
    return _decompressed(section, *length) if length else section


def _decompressed(section: np.ndarray, length: int) -> np.ndarray:
    """Returns what was compressed; no more memory is taken than was told."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(section.data, length or 1)
    except zlib.error as error:
        raise Damaged(f"its content cannot be decompressed ({error})") from None
    if len(content) != length or (length and not stream.eof and stream.decompress(b"", 1)):
        raise Damaged("its content is not as long as its description says")
    return np.frombuffer(content, np.uint8)


def _builder(description: _Description, spec: Callable[[], Any]) -> Callable[[Sequence[Any]], Any]:
    """Returns what makes an element of its leaves."""
    described, count = description.structure, len(description.columns)
    if described is None or count == 0:
        if description.elements or count:
            raise Damaged("its elements have no structure, or no columns")
        return tuple
    like = spec() if isinstance(described, str) else _like(described)
    structure = Structure(like)
    leaves = len(structure.leaves(like))
    if isinstance(described, str) and structure.text != described:
        raise Damaged(
            f"its elements are {described:.200}, and those of the data set are {structure.text}"
        )
    if leaves != count:
        raise Damaged(f"its elements have {leaves} leaves, and it has {count} columns")
    return structure.build


def _like(described: list[Any]) -> Any:
    """Returns a structure with numbers in the place of its leaves."""
    try:
        return structure_like(described)
    except (ValueError, TypeError, LookupError, RecursionError):
        raise Damaged("its description has a structure that cannot be understood") from None
