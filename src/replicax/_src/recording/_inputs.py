"""What a step was called with: positions of iterators, numbers, and arrays that are kept.

An argument that came from an iterator over a data set is described by its position there. Others
are kept themselves, small ones in the line of the step and large ones in files.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import reprlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._errors import DataLossError
from replicax._src._typing import PyTree
from replicax._src.data import PositionedIterator
from replicax._src.values import DistributedValues, Mirrored, PerReplica, is_leaf
from replicax._src.variable import Variable

_REMEMBERED = 256  # leaves of elements that were handed out
_IN_LINE = 1024  # bytes: smaller arrays are a part of the line
_LONGEST = 1000  # characters of a text
_SAMPLED = 64  # items of an array
_DTYPE = re.compile(r"key<\w+>|[a-z][a-z0-9_]+")


@final
class Elements:
    """Which arrays came from which element of which iterator. Keeps none of them alive."""

    def __init__(self, rows: bool | None) -> None:
        """
        Args:
          rows: whether arrays are kept. None: if their iterator would not give the same ones again,
            as one that asks a Python generator, or one process could not read them; True: all;
            False: only what is no element, or of one worker's own data.
        """
        self._rows = rows
        self._known: collections.OrderedDict[int, _Place] = collections.OrderedDict()
        self._numbers: weakref.WeakKeyDictionary[PositionedIterator, tuple[Any, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._count = 0
        self.new_states: list[dict[str, Any]] = []  # to be written before the next step

    def delivered(self, iterator: PositionedIterator, value: PyTree) -> None:
        """Called for each element that any iterator hands out."""
        is_kept = bool(self._rows) or "workers" in iterator.tied_to()
        is_kept = is_kept or (self._rows is None and not iterator.gives_same_again)
        number = -1 if is_kept else self.number_of(iterator)
        for index, leaf in enumerate(_tree.leaves_of(value, is_leaf)):
            try:
                reference = weakref.ref(leaf)
            except TypeError:  # a number or a text, which is kept by its value
                continue
            self._known[id(leaf)] = _Place(
                reference, number, iterator.position, index, _sample_of(leaf)
            )
            self._known.move_to_end(id(leaf))
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def number_of(self, iterator: PositionedIterator) -> int:
        """Returns the number by which lines speak of an iterator on its present walk."""
        known = self._numbers.get(iterator)
        if known is None or known[0] is not iterator.run:
            known = iterator.run, self._count
            self._count += 1
            self._numbers[iterator] = known
            self.new_states.append({"iterator": known[1], "state": iterator.get_state()})
        return known[1]

    def iterator_of(self, leaf: object) -> PositionedIterator | None:
        """Returns the iterator that a value is, or came from; None if from none that is known."""
        if isinstance(leaf, PositionedIterator):
            return leaf
        place = self.place_of(leaf)
        numbers = self._numbers.items()
        return next((each for each, (_, n) in numbers if place and n == place[1]), None)

    def forget_states(self) -> None:
        """Lets the states of iterators be written again: another file begins."""
        for iterator, (run, number) in list(self._numbers.items()):
            if run is iterator.run:
                self.new_states.append({"iterator": number, "state": iterator.get_state()})

    def place_of(self, leaf: object) -> list[Any] | None:
        """Returns `["element", iterator, position, leaf]`; None if it came from elsewhere."""
        found = self._known.get(id(leaf))
        if found is None or found.reference() is not leaf or found.iterator < 0:
            return None
        if found.sample != _sample_of(leaf):  # the program has changed the array in place
            return None
        return ["element", found.iterator, found.position, found.leaf]

    def position_of(self, leaf: object) -> int | None:
        """Returns of which element a value is that is kept itself; None if of none."""
        found = self._known.get(id(leaf))
        return None if found is None or found.reference() is not leaf else found.position


class _Place(NamedTuple):
    """Where an array came from."""

    reference: weakref.ref[Any]
    iterator: int  # its number; -1 if the array itself is kept
    position: int
    leaf: int
    sample: bytes


def _sample_of(leaf: object) -> bytes:
    """Returns some of the items of an array that can be changed in place."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biufcV":
        return b""
    return leaf.flat[:: max(leaf.size // _SAMPLED, 1)].tobytes()


@dataclasses.dataclass
class Kept:
    """An array that is to be kept; `parts` has one for each replica here, or one.

    `position` is that of the element that it is of, if it is of data that is tied to this worker.
    """

    kind: str
    parts: Sequence[Any]
    position: int | None = None


def describe(elements: Elements, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Returns for each leaf of the arguments what JSON takes, or a `Kept`."""
    return [_described(elements, leaf) for leaf in _tree.leaves_of((args, kwargs), is_leaf)]


def _described(elements: Elements, leaf: object) -> Any:
    place = elements.place_of(leaf)
    if place is not None:
        return place
    if isinstance(leaf, PositionedIterator):
        return ["iterator", elements.number_of(leaf), leaf.position]
    if isinstance(leaf, Variable):
        return ["object", f"variable {leaf.name}"]
    if isinstance(leaf, DistributedValues):
        kind = "mirrored" if isinstance(leaf, Mirrored) else "per replica"
        return Kept(kind, [_lasting(each) for each in leaf.values], elements.position_of(leaf))
    if isinstance(leaf, jax.Array):
        return Kept("array", [leaf], elements.position_of(leaf))
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OSUMm":
        return Kept("numpy", [_lasting(leaf)], elements.position_of(leaf))
    if leaf is None or isinstance(leaf, bool | int):
        return ["value", leaf]
    if isinstance(leaf, str):
        return ["value", leaf] if len(leaf) <= _LONGEST else ["object", "a long text"]
    if isinstance(leaf, float):
        return ["float", leaf.hex()]
    if isinstance(leaf, complex):
        return ["complex", leaf.real.hex(), leaf.imag.hex()]
    if isinstance(leaf, bytes) and len(leaf) <= _LONGEST:
        return ["bytes", leaf.hex()]
    return ["object", type(leaf).__qualname__]


def _lasting(array: Any) -> Any:
    """Returns an array that is the same when it is written: a program may fill its own anew."""
    return np.array(array) if isinstance(array, np.ndarray | np.generic) else array


def structure_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the structure of arguments, as JSON has it; None of one that it cannot say."""
    try:
        return _structure((args, kwargs))
    except TypeError:
        return None


def _structure(value: PyTree) -> Any:
    if is_leaf(value) or value is None:
        return 0
    if type(value) in (list, tuple):
        return [type(value).__name__, [_structure(each) for each in value]]
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return ["dict", [[key, _structure(each)] for key, each in value.items()]]
    if _tree.one_level(value, is_leaf) is None:
        return 0
    raise TypeError


def leaves_in(structure: object) -> int:
    """Returns how many leaves a structure of arguments has, which is to be `(args, kwargs)`."""
    try:
        (args, kwargs) = put_together(structure, itertools.repeat(None))
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise TypeError
        return _count(structure)
    except (TypeError, ValueError, RecursionError):
        raise _no_structure(structure) from None


def _count(structure: Any) -> int:
    if structure == 0:
        return 1
    kind, parts = structure
    return sum(_count(each[1] if kind == "dict" else each) for each in parts)


def put_together(structure: object, leaves: Iterator[Any]) -> Any:
    """Returns the arguments of a structure."""
    match structure:
        case 0:
            return next(leaves)
        case ["list", [*parts]]:
            return [put_together(each, leaves) for each in parts]
        case ["tuple", [*parts]]:
            return tuple(put_together(each, leaves) for each in parts)
        case ["dict", [*pairs]]:
            return {str(key): put_together(each, leaves) for key, each in pairs}
    raise _no_structure(structure)


def _no_structure(structure: object) -> DataLossError:
    text = reprlib.repr(structure)
    return DataLossError(f"A capsule has no sound structure of arguments: {text}.")


# ------------------------------------------------------------------ arrays


def bits_of(array: jax.Array | np.ndarray) -> np.ndarray:
    """Returns an array on the host; the data of random keys for those."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array)


def dtype_of(array: jax.Array | np.ndarray) -> str:
    """Returns the name of an array's dtype; of random keys, that of their kind."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return f"key<{jax.random.key_impl(array)}>"
    return str(array.dtype)


def in_line(array: jax.Array | np.ndarray) -> list[Any]:
    """Returns a small array as JSON has it: dtype, shape and the bytes."""
    data = bits_of(array)
    return [dtype_of(array), list(data.shape), data.tobytes().hex()]


def is_small(parts: Sequence[Any]) -> bool:
    """Returns whether arrays are to be a part of a line."""
    return sum(part.nbytes for part in parts) <= _IN_LINE


def plain_bytes(array: jax.Array | np.ndarray) -> np.ndarray:
    """Returns the bytes of an array, which any NumPy can read from a file."""
    return np.frombuffer(bits_of(array).tobytes(), np.uint8)


def from_bytes(dtype: object, shape: object, data: bytes) -> Any:
    """Returns the array that `in_line` or `plain_bytes` wrote, on the host."""
    if not (
        isinstance(dtype, str)
        and _DTYPE.fullmatch(dtype)
        and isinstance(shape, list)
        and all(type(size) is int and size >= 0 for size in shape)
    ):
        what = f"dtype {str(dtype)[:80]!r}, shape {str(shape)[:80]}"
        raise DataLossError(f"A capsule has no sound array: {what}.")
    is_key = dtype.startswith("key<")
    try:
        kind = np.dtype(np.uint32) if is_key else jnp.dtype(dtype)
        if kind != np.bool_ and not jnp.issubdtype(kind, jnp.number):
            raise TypeError(f"its dtype is {dtype!r}")
        array = np.frombuffer(data, kind).reshape(shape).copy()
        return jax.random.wrap_key_data(jnp.asarray(array), impl=dtype[4:-1]) if is_key else array
    except (TypeError, ValueError, OverflowError) as error:
        raise DataLossError(f"A capsule has no sound array: {error}.") from None


def from_line(found: object) -> Any:
    """Returns the array that `in_line` wrote, on the host."""
    match found:
        case [dtype, shape, str(data)]:
            try:
                return from_bytes(dtype, shape, bytes.fromhex(data))
            except ValueError:
                pass
    raise DataLossError(f"A capsule has no sound array: {str(found)[:80]}.")


def as_argument(kind: str, parts: Sequence[Any], replicas: int) -> Any:
    """Returns a leaf of arguments of what was kept of it, for so many replicas."""
    if kind == "numpy":
        return parts[0]
    arrays = [jnp.asarray(part) for part in parts]
    if kind == "per replica" and len(arrays) != replicas:
        if any(not np.ndim(each) for each in arrays):
            raise DataLossError(
                f"An argument has a number for each of {len(arrays)} replicas, and no rows that "
                f"could be shared out among {replicas}."
            )
        arrays = list(jnp.array_split(jnp.concatenate(arrays), replicas))
        if replicas == 1:
            return arrays[0]
    makers: dict[str, Callable[[Sequence[Any]], Any]] = {
        "per replica": PerReplica,
        "mirrored": Mirrored,
        "array": lambda each: each[0],
    }
    if kind not in makers:
        raise DataLossError(f"A capsule has an argument of an unknown kind, {kind!r}.")
    return makers[kind](arrays)
