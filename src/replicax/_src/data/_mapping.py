"""Functions of elements: map and filter."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import jax
import numpy as np

from replicax._src._element_draws import at_element, no_draws
from replicax._src._errors import add_note
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._batching import Batch
from replicax._src.data._binding import names_any
from replicax._src.data._blocks import EMPTY, Block, Broken, Columns, Held
from replicax._src.data._composed_blocks import ElementFunction, Mapped
from replicax._src.data._elements import (
    Element,
    ElementSpec,
    Structure,
    as_element,
    leaves_with_names,
    map_leaves,
    own,
)
from replicax._src.data._node import (
    Generated,
    Node,
    NoElements,
    OneInput,
    Reader,
    ReaderOfOne,
    Slices,
    chunk_of,
    first_elements,
    merged_specs,
    observed_spec,
    spec_of,
)
from replicax._src.data._ordering import EnumerateReader
from replicax._src.data._parsed_records import ParsedRecords
from replicax._src.data._run import Run, draw

DRAWING = frozenset(
    """random_brightness random_contrast random_crop random_flip_left_right random_flip_up_down
    random_hue random_jpeg_quality random_saturation""".split()
)


class MapMode(enum.Enum):
    """How `map` calls its function; the values are for printing."""

    PER_ELEMENT = "per element"
    VECTORIZED = "vectorized"
    ON_DEVICE = "on the device"


def call(fn: Callable[..., Any], element: Element, operation: str) -> Any:
    """Returns `fn` of an element, as in tf.data: a tuple is several arguments."""
    try:
        return fn(*element) if type(element) is tuple else fn(element)
    except StopIteration as error:  # which would pass for the end of the data
        raise RuntimeError(
            f"{name_of(fn)}, the function of {operation}, raised StopIteration."
        ) from error
    except Exception as error:
        add_note(error, f"Raised by {name_of(fn)}, the function of {operation}.")
        raise


def name_of(fn: object) -> str:
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _result(fn: Callable[..., Any], value: object, operation: str) -> Any:
    if value is None:
        raise TypeError(
            f"{name_of(fn)}, the function of {operation}, returned None. Return the new element: "
            "is there a `return` missing?"
        )
    try:
        return as_element(value, list_is_tuple=True)
    except (TypeError, ValueError) as error:
        add_note(error, f"Returned by {name_of(fn)}, the function of {operation}.")
        raise


@final
class PerElement(ElementFunction):
    """Calls the function for one element at a time."""

    def __init__(self, fn: Callable[..., Any], parallel: int = 1):
        self._fn = fn
        self._parallel = parallel

    @override
    def rows(self, block: Block) -> list[Any]:
        return self.each(self.one, block.rows())

    def each(self, one: Callable[[Element], Any], elements: list[Any]) -> list[Any]:
        """Returns what a function makes of each element, in as many threads as were asked for."""
        if self._parallel == 1 or len(elements) == 1:
            return [one(element) for element in elements]
        # Threads for this block only: they cost less than what is worth running in parallel.
        with ThreadPoolExecutor(min(self._parallel, len(elements)), "rx.data.map") as pool:
            return list(pool.map(one, elements))

    def one(self, element: Element) -> Any:
        """Returns what the user's function makes of an element."""
        # No name for the result: `own` looks at whether somebody else holds it.
        return own(_result(self._fn, call(self._fn, element, "map()"), "map()"))


@final
class WithDraws(ElementFunction):
    """Calls a function that draws random numbers: those of an element follow from its place.

    The blocks that it gets have the place of each element before it.
    """

    def __init__(self, function: PerElement, key: Sequence[int]):
        self._function = function
        self._key = key  # of this walk

    @override
    def rows(self, block: Block) -> list[Any]:
        return self._function.each(self._one, block.rows())

    def _one(self, numbered: tuple[Any, Element]) -> Any:
        place, element = numbered
        with at_element([*self._key, int(place)]):
            return self._function.one(element)


_NO_PLACE = (
    "A random_ function of rx.image was called in map(vectorized=True), which gets many elements "
    "at once, another number of them each time. Use map() without it, after batch() if you like."
)


@final
class WholeBlocks(ElementFunction):
    """Calls the function once for many elements, stacked into arrays."""

    whole_blocks = True

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    @override
    def rows(self, block: Block) -> list[Any]:
        element = self.stacked(block)
        structure = Structure(element)
        return Columns(structure.leaves(element), structure).rows()

    @override
    def stacked(self, block: Block) -> Any:
        where = "map(vectorized=True)"
        with no_draws(_NO_PLACE):
            result = _result(self._fn, call(self._fn, block.stacked(), where), where)
        for name, leaf in leaves_with_names(result):
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or len(leaf) != len(block):
                raise ValueError(
                    f"{name_of(self._fn)}, the function of {where}, was given {len(block)} "
                    "elements as rows of arrays and must return as many; "
                    f"result{name} has the shape {np.shape(leaf)}."
                )
        return result


@final
class Map(OneInput, runs_user_code=True):
    """A function of each element."""

    fn: Callable[..., Any]
    mode: MapMode = MapMode.PER_ELEMENT
    parallel: int = 1
    parsed: ParsedRecords | None = None  # what `fn` does to one record, where that is known
    drawn: int = dataclasses.field(default_factory=draw)

    @functools.cached_property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether the function draws random numbers, as far as its code shows."""
        return self.mode is MapMode.PER_ELEMENT and names_any(self.fn, DRAWING)

    @override
    def open(self, run: Run) -> Reader:
        if self._as_rows is not None:
            return self._as_rows.open(run)
        parallel = 1 if self.mode is not MapMode.PER_ELEMENT else self.parallel
        reader = self.input.open(run)
        if self.draws:
            key = run.key(run.seed_of(self.drawn), self.drawn)
            function = WithDraws(PerElement(self.fn, self.parallel), key)
            return MapReader(EnumerateReader(reader, 0), function, parallel)
        return MapReader(reader, self._function, parallel)

    @functools.cached_property
    def _as_rows(self) -> Node | None:
        """If all it does is to parse batches of records, batches of parsed records: the same."""
        batch = self.input
        if self.mode is not MapMode.PER_ELEMENT or not isinstance(batch, Batch):
            return None
        parsed = ParsedRecords.behind(self.fn, batch.input, of_batches=True)
        if parsed is None:
            return None
        return batch.with_inputs([dataclasses.replace(self, input=batch.input, parsed=parsed)])

    @functools.cached_property
    def _function(self) -> ElementFunction:
        if self.parsed is not None:
            return self.parsed
        if self.mode is MapMode.VECTORIZED:
            return WholeBlocks(self.fn)
        if self.mode is MapMode.ON_DEVICE:
            return PerElement(jax.jit(self.fn))
        parsed = ParsedRecords.behind(self.fn, self.input, of_batches=False)
        return parsed or PerElement(self.fn, self.parallel)

    @override
    def _spec(self) -> Any:
        if self.mode is MapMode.ON_DEVICE:
            return abstract_spec(self.fn, self.input.spec)
        if self.mode is MapMode.VECTORIZED:
            return observed_spec(self)
        function = PerElement(self.fn)
        return seen_spec(self.input, lambda element: spec_of(function.one(element)), self)

    @override
    def details(self) -> str:
        mode = "" if self.mode is MapMode.PER_ELEMENT else f", {self.mode.value}"
        return name_of(self.fn) + mode


def abstract_spec(fn: Callable[..., Any], spec: ElementSpec) -> Any:
    """Returns what a function for the device makes of an element that looks like `spec`."""

    def spec_for(size: int) -> ElementSpec:
        def sized(leaf: TensorSpec) -> Any:
            shape = [size if each is None else each for each in leaf.shape]
            return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

        element = map_leaves(sized, spec)
        result = jax.eval_shape(fn, *(element if type(element) is tuple else (element,)))
        if isinstance(result, list):
            result = tuple(result)
        return map_leaves(lambda leaf: TensorSpec.on_host(leaf.shape, leaf.dtype), result)

    for name, leaf in leaves_with_names(spec):
        if leaf.shape is None:
            raise ValueError(
                f"The shape of element{name} is not known, so that it cannot be told what "
                f"{name_of(fn)} makes of it. Give from_generator an `output_signature` with shapes."
            )
    return merged_specs(spec_for(2), spec_for(3))


def seen_spec(
    input: Node, spec_of_result: Callable[[Element], ElementSpec], node: Node
) -> ElementSpec:
    """Returns the spec of a node whose elements a function makes of those of its input.

    Args:
      input: is read, for its first elements.
      spec_of_result: returns the spec of what the function makes of an element.
      node: is read instead where those show nothing.
    """
    elements = first_elements(input)
    specs: list[Any] = []
    # A batch may have another number of rows than the first one.
    for element in [*elements, *(_of_another_length(elements[0], input.spec) if elements else ())]:
        try:
            specs.append(spec_of_result(element))
        except NoElements:
            continue
        except Exception:
            if not specs:
                raise
    if not specs:
        return observed_spec(node)
    return functools.reduce(lambda one, other: merged_specs(one, other) or one, specs)


def _of_another_length(element: Element, spec: ElementSpec) -> list[Any]:
    """Returns a batch with another number of rows, if `spec` says that there may be one."""
    leaves = [leaf for _, leaf in leaves_with_names(element)]
    specs = [leaf for _, leaf in leaves_with_names(spec)]
    if any(not getattr(each, "shape", None) or each.shape[0] is not None for each in specs):
        return []
    if any(not isinstance(leaf, np.ndarray) or len(leaf) == 0 for leaf in leaves):
        return []
    if any(len(leaf) == 1 for leaf in leaves):
        return [map_leaves(lambda leaf: np.repeat(leaf, 2, 0), element)]
    return [map_leaves(lambda leaf: leaf[:-1], element)]


@final
class MapReader(ReaderOfOne):
    """A walk with a function still to be applied."""

    def __init__(self, reader: Reader, function: ElementFunction, parallel: int):
        super().__init__(reader)
        self._function = function
        self._parallel = parallel
        self._ready = Slices(EMPTY)

    @override
    def take(self, count: int) -> Block:
        block = self._ready.take(count)
        if len(block):
            return block
        block = self._reader.take(max(count, self._parallel))
        if len(block) == 0:
            return block
        if count >= self._parallel:
            return Mapped(self._function, block)
        # Fewer are asked for than are to be computed side by side.
        try:
            self._ready = Slices(Held(self._function.rows(block)))
        except Exception:  # of one of them: it is to fail alone, when its turn comes
            self._ready = Slices(Mapped(self._function, block))
        return self._ready.take(count)

    @override
    def skip(self, count: int) -> int:
        ready = self._ready.skip(count)
        return ready + self._reader.skip(count - ready)


@final
class Filter(Generated, runs_user_code=True, pulls_user_code=True):
    """The elements of which a function says True."""

    predicate: Callable[..., Any]

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        """Yields the elements that are kept, and in the place of one that fails its error."""
        chunk = chunk_of(self.input)
        while len(block := reader.take(chunk)):
            try:
                rows = block.rows()
            except Exception as error:  # there is one row where functions run: see `chunk_of`
                yield Broken(error)
                continue
            kept: list[Any] = []
            for row in rows:
                try:
                    if is_kept(self.predicate, row, "filter()"):
                        kept.append(own(row))  # not its whole block as well
                except Exception as error:
                    yield Held(kept)
                    yield Broken(error)
                    kept = []
            yield Held(kept)

    @override
    def details(self) -> str:
        return name_of(self.predicate)


def is_kept(predicate: Callable[..., Any], element: Element, operation: str) -> bool:
    """Returns what a user's function says of an element."""
    answer = np.asarray(call(predicate, element, operation))
    if answer.dtype != bool or answer.size != 1:
        raise TypeError(
            f"{name_of(predicate)}, the function of {operation}, must return one bool for an "
            f"element; got {answer!r}."
        )
    return bool(answer)
