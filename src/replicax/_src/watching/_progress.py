"""`rx.progress`: how far a loop is, how fast it goes, and whether it waits for its input."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, final

from replicax._src.context import world
from replicax._src.functions import NotOneProgram
from replicax._src.watching import _pace
from replicax._src.watching._held_values import (
    held,
    is_one_number,
    is_there,
    is_traced,
    number_as_text,
    rows_of,
    settled,
    speaks_for_the_job,
)
from replicax._src.watching._pace import Pace, Rates, duration
from replicax._src.watching._surfaces import Surface, surface_for

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")

# How long the end of a loop that was left early waits for its last values. It may have been left by
# an error, after which they never come.
_PATIENCE = 1.0


def progress(
    iterable: Iterable[Item],
    description: str = "",
    *,
    total: int | None = None,
    batch_size: int | None = None,
    transient: bool = False,
    seconds_between: float | None = None,
    console: Console | None = None,
) -> Progress[Item]:
    """Shows how far a loop is: a bar on a terminal or in a notebook, lines in a log.

    Beside the bar: the number of steps, the values passed to `show`, examples per second, the time
    left, and the fraction of the time spent waiting for input. On the first worker only.

    >>> import jax.numpy as jnp, replicax as rx
    >>> bar = rx.progress(range(3), "epoch 1")
    >>> for step in bar:
    ...     bar.show(loss=jnp.float32(1 / (1 + step)))
    epoch 1: step 3/3, loss 0.3333, ...

    Args:
      iterable: what to loop over: a distributed data set, an `rx.data.Dataset`, a range, an
        iterator, anything.
      description: stands in front.
      total: the number of elements, if `len(iterable)` does not tell.
      batch_size: how many examples an element has, on all workers. By default the first dimension
        of its arrays.
      transient: whether nothing is left behind at the end.
      seconds_between: how often it is drawn. By default ten times a second on a terminal, and every
        ten seconds in a log; there is a last line in any case.
      console: a `rich.console.Console`; by default it is where `print` prints.

    Returns:
      A `Progress`, to be iterated over.
    """
    total, batch_size = _count("total", total), _count("batch_size", batch_size)
    if seconds_between is not None and not isinstance(seconds_between, int | float):
        raise TypeError(f"rx.progress: `seconds_between` is a number; got {seconds_between!r}.")
    if isinstance(iterable, int):
        raise TypeError(
            f"rx.progress loops over an iterable; got {iterable}. Write "
            f"rx.progress(range({iterable}))."
        )
    if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
        raise TypeError(f"rx.progress loops over an iterable; got {iterable!r}.")
    return Progress(iterable, description, total, batch_size, transient, seconds_between, console)


def _count(name: str, number: SupportsIndex | None) -> int | None:
    if number is None:
        return None
    try:
        count = operator.index(number)  # also NumPy's
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"rx.progress: `{name}` must be a whole number; got {number!r}.")
    return count


@dataclasses.dataclass(eq=False, repr=False)
class Progress(Generic[Item]):
    """A loop whose progress is shown; made by `rx.progress`. Each iteration begins again."""

    _iterable: Iterable[Item]
    description: str
    _total: int | None
    _batch_size: int | None
    _transient: bool
    _seconds_between: float | None
    _console: Console | None

    def __post_init__(self) -> None:
        self._loop = Loop(self, Surface())

    def __iter__(self) -> Iterator[Item]:
        iterator = iter(self._iterable)  # in a trace, data sets have their own way to refuse
        world().refuse_in_program(lambda: NotOneProgram("it shows progress"))
        surface = surface_for(self._console) if speaks_for_the_job() else Surface()
        self._loop = loop = Loop(self, surface)
        return self._items(iterator, loop)

    def _items(self, iterator: Iterator[Item], loop: Loop) -> Iterator[Item]:
        to_the_end = False
        try:
            loop.surface.begin(loop)
            while True:
                loop.pace.wait()
                try:
                    item = next(iterator)
                except StopIteration:
                    to_the_end = True
                    return
                finally:
                    loop.pace.go_on()
                loop.begin_step(rows_of(item) if self._batch_size is None else self._batch_size)
                yield item
                loop.end_step()
                loop.draw_if_due()
        finally:  # also when the loop was left by `break` or an exception
            loop.close(to_the_end)

    def show(self, **values: object) -> None:
        """Shows numbers beside the bar from now on: `bar.show(loss=loss, accuracy=accuracy)`.

        They are not waited for: what is drawn is the newest value that has been computed. Arrays,
        variables, metrics and values of the replicas are taken as they are; of values that differ
        by replica, the smallest and the largest are shown.

        Called in a step, it says that the step is done.
        """
        for name, value in values.items():
            if is_traced(value):
                raise TypeError(
                    f"Progress.show: {name!r} has no value yet: it belongs to a program that is "
                    "being compiled. Return it from the compiled function, and show what that "
                    "returns."
                )
            if not is_one_number(value):
                raise ValueError(
                    f"Progress.show: {name!r} must be one number; got {value!r}. Reduce it first, "
                    "for example with jnp.mean."
                )
        self._loop.show({name: held(value) for name, value in values.items()})

    def __len__(self) -> int:
        if (total := self._known_total) is None:
            raise TypeError("The loop has no known length. Give it to rx.progress as total=...")
        return total

    def __bool__(self) -> bool:
        return True

    @property
    def _known_total(self) -> int | None:
        if self._total is not None:
            return self._total
        try:
            length = operator.length_hint(self._iterable, -1)
        except Exception:  # of a user's own class; then it is not known
            return None
        return length if length >= 0 else None

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._loop.steps

    @property
    def steps_per_second(self) -> float | None:
        """Since the end of the first step, which compiles; None before."""
        return rates.steps if (rates := self._rates) else None

    @property
    def examples_per_second(self) -> float | None:
        """The same of examples, on all workers; None if elements have no arrays."""
        return rates.examples if (rates := self._rates) else None

    @property
    def input_wait(self) -> float | None:
        """The share of the time that was spent waiting for elements, from 0 to 1."""
        return rates.waiting if (rates := self._rates) else None

    @property
    def _rates(self) -> Rates | None:
        return self._loop.pace.rates(recent=False)


@final
class Loop:
    """One iteration over a `Progress`, which a surface draws."""

    def __init__(self, progress: Progress[Any], surface: Surface) -> None:
        self._progress = progress
        self.surface = surface
        self.total = progress._known_total
        self.pace = Pace()
        between = progress._seconds_between
        self._seconds_between = surface.seconds_between if between is None else between
        self._drawn_at = self.pace.began
        self._examples: int | None = None  # of the step that is being made
        self._in_step = False
        self._closed = False
        self._newest: dict[str, Any] = {}
        self._awaited: dict[str, Any] = {}  # the newest when it was last drawn
        self._texts: dict[str, str] = {}
        self._rates: Rates | None = None

    @property
    def description(self) -> str:
        return self._progress.description

    @property
    def steps(self) -> int:
        return self.pace.steps

    def begin_step(self, examples: int | None) -> None:
        self._examples = examples
        self._in_step = True

    def end_step(self) -> None:
        if self._in_step:
            self._in_step = False
            self.pace.step(self._examples)

    def show(self, values: dict[str, Any]) -> None:
        self._newest.update(values)
        self.end_step()
        self.draw_if_due()

    def draw_if_due(self) -> None:
        now = _pace.clock()
        if now - self._drawn_at < self._seconds_between or self._closed:
            return
        self._drawn_at = now
        self._read_values(wait=self.surface.waits_for_values)
        self._rates = self.pace.rates(recent=True) or self._rates
        self.pace.remember()
        self.surface.draw(self)

    def close(self, to_the_end: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if type(self.surface) is not Surface:
                self._newest = {name: settled(value) for name, value in self._newest.items()}
                self._read_values(wait=to_the_end or self._come_soon())
        finally:
            self.pace.stop()
            self._rates = self.pace.rates(recent=False)
            self.surface.end(self, keep=not self._progress._transient)

    def _come_soon(self) -> bool:
        end = time.monotonic() + _PATIENCE
        while not (there := all(map(is_there, self._newest.values()))) and time.monotonic() < end:
            time.sleep(0.01)
        return there

    def _read_values(self, wait: bool) -> None:
        """Turns into text what is there: the newest, or what was the newest the last time."""
        for name, value in self._newest.items():
            newest, awaited = settled(value), self._awaited.get(name)
            if wait or is_there(newest):
                self._texts[name] = number_as_text(newest)
                self._awaited.pop(name, None)
            elif awaited is None or is_there(awaited):
                if awaited is not None:
                    self._texts[name] = number_as_text(awaited)
                self._awaited[name] = newest

    def facts(self, last: bool) -> list[str]:
        """Returns what stands beside the bar; after the end, if it is the `last` time."""
        facts = [f"{name} {text}" for name, text in self._texts.items()]
        rates = self._rates
        if rates is not None:
            if rates.examples is not None:
                facts.append(f"{rates.examples:,.0f} examples/s")
            else:
                facts.append(f"{rates.steps:,.{0 if rates.steps >= 100 else 1}f} steps/s")
        if last:
            facts.append(f"in {duration(self.pace.seconds)}")
        elif rates is not None and self.total is not None:
            facts.append(f"{duration(max(0, self.total - self.steps) / rates.steps)} left")
        if rates is not None:
            facts.append(f"input wait {rates.waiting:.0%}")
        return facts
