"""How scenarios are declared: `@scenario` over parameters, `@ours` for differences on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._layout import LAYOUTS, Layout
from ._library import Library
from ._observation import Observation

Body = Callable[..., Any]


@dataclass(frozen=True)
class Difference:
    """A case in which replicax deliberately does otherwise than TensorFlow."""

    reason: str
    expected: Observation
    where: Mapping[str, Any]

    def applies_to(self, parameters: Mapping[str, Any]) -> bool:
        """Says whether the case with these parameters is one of ours."""
        return all(
            parameters[name] in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.where.items()
        )


@dataclass(frozen=True)
class Scenario:
    """One playable case: a function, the values of its parameters, and where it is played."""

    topic: str
    body: Body
    parameters: Mapping[str, Any]
    places: tuple[str, ...]
    """All strategies and layouts of workers in which the function is played."""
    difference: Difference | None
    eager_only: str
    """Why the case has no meaning for a compiled executor; empty where it has one."""
    not_in_tensorflow: str
    """What keeps TensorFlow from playing it; all of it is ours then. Empty where nothing does."""

    @property
    def layout(self) -> Layout | None:
        """The workers that play it; None where one process does."""
        return LAYOUTS.get(self.parameters.get("strategy", ""))

    @property
    def name(self) -> str:
        """The function and its parameters, as in `sums[mirrored2-int32]` or `sums[2x1-int32]`."""
        labels = "-".join(str(value) for value in self.parameters.values())
        return f"{self.body.__name__}[{labels}]" if labels else self.body.__name__

    @property
    def full_name(self) -> str:
        """The name with the topic before it."""
        return f"{self.topic}.{self.name}"

    @property
    def ours(self) -> Observation:
        """What replicax is to do where it differs from TensorFlow on purpose; of each worker."""
        if self.difference is None:
            return None
        expected, layout = self.difference.expected, self.layout
        if layout is None:
            return expected(**self.parameters) if callable(expected) else expected
        if not callable(expected):
            return [expected] * layout.workers
        rest = {name: value for name, value in self.parameters.items() if name != "strategy"}
        return [expected(layout=layout, worker=worker, **rest) for worker in range(layout.workers)]

    def play(self, library: Library) -> Observation:
        """Plays the case in a library and describes what it returned."""
        arguments = dict(self.parameters)
        if "strategy" in arguments:
            arguments["strategy"] = library.strategy(arguments["strategy"])
        return library.observe(self.body(library, **arguments))


_SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *places: str, eager_only: str = "", not_in_tensorflow: str = "", **axes: tuple[Any, ...]
) -> Callable[[Body], Body]:
    """Registers a function once for each place and each combination of the other parameters.

    Args:
        *places: Labels of strategies that `Library.strategy` knows, and names of layouts of
            workers, each of which plays it. None: the function takes no strategy.
        eager_only: Why a compiled executor need not play it, if it need not.
        not_in_tensorflow: Why TensorFlow cannot play it, if it cannot.
        **axes: The values of each further parameter.
    """

    def register(body: Body) -> Body:
        topic = body.__module__.rpartition(".")[2]
        table = {"strategy": places, **axes} if places else axes
        differences = body.__dict__.pop("differences", [])
        unmatched = list(differences)
        for values in itertools.product(*table.values()):
            parameters = dict(zip(table, values, strict=True))
            found = [each for each in differences if each.applies_to(parameters)]
            unmatched = [each for each in unmatched if each not in found]
            difference = found[0] if found else None
            case = Scenario(
                topic, body, parameters, places, difference, eager_only, not_in_tensorflow
            )
            if _SCENARIOS.setdefault(case.full_name, case) is not case:
                raise ValueError(f"two scenarios are called {case.full_name}; rename one")
        if unmatched:
            raise ValueError(f"no case of {topic}.{body.__name__} has {unmatched[0].where}")
        return body

    return register


def ours(reason: str, expected: Observation, **where: Any) -> Callable[[Body], Body]:
    """Says what replicax does where it differs from TensorFlow on purpose; goes below `@scenario`.

    Args:
        reason: Why, in one line.
        expected: The observation to expect, or a function that makes it from the parameters; of
            many workers, what each observes, or a function that takes `layout` and `worker` too.
        **where: The parameter values (one, or a tuple of them) for which it holds; all if none.
    """

    def note(body: Body) -> Body:
        body.__dict__.setdefault("differences", []).insert(0, Difference(reason, expected, where))
        return body

    return note


def all_scenarios() -> Iterator[Scenario]:
    """Yields every scenario that has been registered, in the order of declaration."""
    yield from _SCENARIOS.values()
