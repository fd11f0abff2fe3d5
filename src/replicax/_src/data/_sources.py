"""Where elements come from: arrays in memory, numbers, Python's iterators, files."""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import add_note
from replicax._src._local_path import without_scheme
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._blocks import Block, Counted, Held, Rows, Table
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    ElementSpec,
    Structure,
    as_element,
    as_leaf,
    leaves_with_names,
    map_leaves,
    own,
    read_only,
)
from replicax._src.data._node import (
    UNKNOWN,
    Node,
    Pulled,
    Reader,
    Slices,
    observed_spec,
    spec_of,
)
from replicax._src.data._run import Run
from replicax._src.records import FileName


@final
class TensorSlices(Node, label="TensorSliceDataset"):
    """The rows of arrays."""

    table: Table
    size: int

    @classmethod
    def of(cls, tensors: Element) -> TensorSlices:
        element = as_element(tensors)
        leaves = leaves_with_names(element)
        if not leaves:
            raise ValueError("from_tensor_slices takes at least one array; got none.")
        for name, leaf in leaves:
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0:
                raise ValueError(
                    f"from_tensor_slices takes arrays and yields their rows, but tensors{name} is "
                    f"a single value without rows: {leaf!r}. For a data set of one element use "
                    "from_tensors."
                )
        sizes = {len(leaf) for _, leaf in leaves}
        if len(sizes) > 1:
            found = ", ".join(f"tensors{name} has {len(leaf)}" for name, leaf in leaves)
            raise ValueError(
                "from_tensor_slices yields the rows of all arrays together, so they must have as "
                f"many rows; but {found}."
            )
        return cls(Table([leaf for _, leaf in leaves], Structure(element)), sizes.pop())

    @override
    def open(self, run: Run) -> Reader:
        return Slices(Rows(self.table, range(self.size)))

    @override
    def _cardinality(self) -> int:
        return self.size

    @override
    def _spec(self) -> Any:
        specs = [TensorSpec.on_host(each.shape[1:], each.dtype) for each in self.table.columns]
        return self.table.structure.build(specs)

    @override
    def details(self) -> str:
        return f"{self.size} rows"


@final
class OneElement(Node, label="TensorDataset"):
    """A data set of one element."""

    element: Any

    @override
    def open(self, run: Run) -> Reader:
        return Slices(Held([self.element]))

    @override
    def _cardinality(self) -> int:
        return 1

    @override
    def _spec(self) -> Any:
        return spec_of(self.element)

    @classmethod
    def of(cls, tensors: Element) -> OneElement:
        return cls(map_leaves(read_only, as_element(tensors)))


class Numbers(Node, label="RangeDataset"):
    """The numbers of a Python range."""

    numbers: range
    dtype: Any = np.dtype(np.int64)

    @override
    def open(self, run: Run) -> Reader:
        return Slices(Counted(self.dtype, self.numbers))

    @override
    def _cardinality(self) -> int:
        return len(self.numbers)

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), self.dtype)

    @override
    def details(self) -> str:
        return str(self.numbers)


@final
class BlockNode(Node, label="WindowDataset"):
    """The elements of a block: a window."""

    block: Block
    element_spec: Any

    @override
    def open(self, run: Run) -> Reader:
        return Slices(self.block)

    @override
    def _cardinality(self) -> int:
        return len(self.block)

    @override
    def _spec(self) -> Any:
        return self.element_spec


class PythonIterator(Node, label="GeneratorDataset", runs_user_code=True, pulls_user_code=True):
    """What a user's iterator yields; `make` returns a new one."""

    make: Callable[[], Iterator[Any]]
    signature: Any = None
    size: int = UNKNOWN
    source: str = "from_generator"

    @override
    def open(self, run: Run) -> Reader:
        return Pulled(self._blocks(run))

    def _blocks(self, run: Run) -> Generator[Block]:
        preview = getattr(self.make, "preview", None) if run.is_preview else None
        iterator = self.make() if preview is None else preview()
        index = 0
        try:
            while True:
                try:
                    element = self._own(iterator, index)
                except StopIteration:
                    return
                yield Held([element])
                del element
                index += 1
        finally:
            if hasattr(iterator, "close"):
                iterator.close()  # type: ignore[attr-defined]

    def _own(self, iterator: Iterator[Any], index: int) -> Any:
        # No name for the item: `own` looks at whether somebody else holds it.
        return own(self._checked(self._next(iterator, index), index))

    def _next(self, iterator: Iterator[Any], index: int) -> Any:
        try:
            return next(iterator)
        except StopIteration:
            raise
        except Exception as error:
            add_note(error, f"Raised by the iterator of {self.source}, at item {index}.")
            raise

    def _checked(self, value: object, index: int) -> Any:
        if value is None:
            raise TypeError(f"The iterator of {self.source} yielded None as item {index}.")
        if self.signature is None:
            try:
                return as_element(value)
            except (TypeError, ValueError) as error:
                add_note(error, f"Yielded by the iterator of {self.source}, as item {index}.")
                raise
        return fitted(value, self.signature, self._structure, f"item {index} of {self.source}")

    @functools.cached_property
    def _structure(self) -> Structure:
        return Structure(self.signature)

    @override
    def _cardinality(self) -> int:
        return self.size

    @override
    def _spec(self) -> Any:
        return observed_spec(self) if self.signature is None else self.signature

    @override
    def details(self) -> str:
        return self.source


def start_generator(
    generator: Callable[..., Any], arguments: tuple[Any, ...], source: str
) -> Iterator[Any]:
    """Returns the iterator of a user's generator function."""
    made = generator(*arguments)
    try:
        return iter(made)
    except TypeError:
        raise TypeError(
            f"The function of {source} must return something to iterate over; it returned {made!r}."
        ) from None


def fitted(value: Element, signature: ElementSpec, structure: Structure, what: str) -> Any:
    """Returns `value` with the structure and dtypes of `signature`."""
    if isinstance(value, list) and isinstance(signature, tuple):
        value = tuple(value)
    values = [value] if structure.text == "." else structure.leaves_like(value)
    if values is None:
        raise TypeError(
            f"{what} does not have the structure of the output_signature: it is "
            f"{Structure(value).text}, and the signature is {structure.text} "
            "(each . is an array)."
        )
    leaves: list[Any] = []
    for spec, leaf in zip(structure.leaves(signature), values):
        try:
            leaves.append(_fitted_leaf(leaf, spec, what))
        except TypeError:
            name = leaves_with_names(signature)[len(leaves)][0]
            _fitted_leaf(leaf, spec, what + name)
            raise
    return structure.build(leaves)


def _fitted_leaf(value: object, spec: TensorSpec, what: str) -> Any:
    if isinstance(value, DatasetBase):
        return value
    leaf = as_leaf(value)
    if not isinstance(leaf, bytes) and leaf.dtype != spec.dtype:
        empty_list = isinstance(value, list | tuple) and leaf.size == 0  # of no type of its own
        text = STRING in (leaf.dtype, spec.dtype)
        convertible = not text and np.can_cast(leaf.dtype, spec.dtype, "same_kind")
        if not convertible and not empty_list:
            raise TypeError(
                f"{what} is {leaf.dtype}, which does not convert to the {spec.dtype} of the "
                f"output_signature: {leaf!r}."
            )
        leaf = np.asarray(leaf).astype(spec.dtype)[()]
    elif isinstance(leaf, bytes) and spec.dtype != STRING:
        raise TypeError(f"{what} is text, and the output_signature says {spec.dtype}: {leaf!r}.")
    shape = () if isinstance(leaf, bytes) else leaf.shape
    if spec.shape is not None and (
        len(shape) != len(spec.shape)
        or any(want is not None and want != have for want, have in zip(spec.shape, shape))
    ):
        raise TypeError(
            f"{what} has the shape {shape}, and the output_signature says {spec.shape}. None "
            "stands for any size."
        )
    return leaf


# ------------------------------------------------------------------ files


FileNames = FileName | Iterable[FileName]


@final
class Files(Node):
    """The records of files, one file after the other."""

    names: Node  # a data set of file names
    scan: Callable[[str], Iterator[Block]]
    kind: str
    yields_records: bool = True

    @property
    @override
    def label(self) -> str:
        return self.kind

    @override
    def open(self, run: Run) -> Reader:
        names = self.names.open(run)
        return Pulled(self._blocks(names), names)

    def _blocks(self, names: Reader) -> Generator[Block]:
        while len(block := names.take(1)):
            yield from self.scan(file_name(block.rows()[0]))

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), STRING) if self.yields_records else observed_spec(self)

    @override
    def details(self) -> str:
        count = self.names.cardinality
        return f"{count} file(s)" if count >= 0 else "files"


def file_name(name: object) -> str:
    if not isinstance(name, bytes | str):
        raise TypeError(f"A file name must be text; got {name!r}.")
    return without_scheme(os.fsdecode(name))


def names_that_match(patterns: FileNames) -> list[str]:
    """Returns the names of the files that match a pattern or several, sorted."""
    if isinstance(patterns, str | bytes | os.PathLike):
        patterns = [patterns]
    names: list[str] = []
    for pattern in map(without_scheme, map(os.fsdecode, patterns)):
        found = glob.glob(pattern, recursive=True)
        if not found:
            raise FileNotFoundError(f"No files match the pattern {pattern!r} (in {os.getcwd()!r}).")
        names += found
    return sorted(names)


def names_node(filenames: FileNames | DatasetBase) -> Node:
    """Returns a data set of file names, of what a user passes: one, several, or a data set."""
    if isinstance(filenames, DatasetBase):
        return filenames._data_set_node
    if isinstance(filenames, str | bytes | os.PathLike):
        filenames = [filenames]
    try:
        names = [os.fspath(name) for name in np.asarray(filenames, object).ravel().tolist()]
    except TypeError:
        raise TypeError(
            "The file names of a data set are one text, a list of texts, or a data set of texts; "
            f"got {filenames!r}."
        ) from None
    if not names:
        raise ValueError("A data set of files needs at least one file name; the list is empty.")
    return TensorSlices.of(np.array([os.fsencode(name) for name in names], object))
