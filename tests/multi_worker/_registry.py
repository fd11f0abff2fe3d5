"""How scenarios of many workers are declared: `@scenario` over parameters, `@ours` below it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..parity._observation import Observation
from ..parity._registry import Body, Difference, take_differences
from ..parity._registry import ours as ours
from ._layout import LAYOUTS, Layout
from ._worker import InJob


@dataclass(frozen=True)
class Scenario:
    """One playable case: a function, the values of its parameters, and where it can be played."""

    topic: str
    body: Body
    parameters: Mapping[str, Any]
    layouts: Collection[str]
    differences: tuple[Difference, ...]
    eager_only: str
    """Why the case has no meaning for a compiled executor; empty where it has one."""
    not_in_tensorflow: str
    """What keeps TensorFlow from playing it; all of it is ours then. Empty where nothing does."""

    @property
    def name(self) -> str:
        """Topic, function and parameters, as in `reducing.sums[MEAN-int32]`."""
        labels = "-".join(str(value) for value in self.parameters.values())
        name = f"{self.topic}.{self.body.__name__}"
        return f"{name}[{labels}]" if labels else name

    def difference(self, layout: Layout) -> Difference | None:
        """Returns how replicax differs on purpose in this layout, if it does."""
        given = {**self.parameters, "layout": layout.name}
        return next((each for each in self.differences if each.applies_to(given)), None)

    def ours(self, layout: Layout) -> list[Observation] | None:
        """Returns what each worker is to observe where replicax differs on purpose."""
        if (found := self.difference(layout)) is None:
            return None
        if not callable(found.expected):
            return [found.expected] * layout.workers
        return [
            found.expected(layout=layout, worker=worker, **self.parameters)
            for worker in range(layout.workers)
        ]

    def play(self, library: InJob) -> Observation:
        """Plays the case in this worker and describes what it returned."""
        return library.observe(self.body(library, library.job_strategy, **self.parameters))


_SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *,
    layouts: Collection[str] = tuple(LAYOUTS),
    eager_only: str = "",
    not_in_tensorflow: str = "",
    topic: str | None = None,
    **axes: tuple[Any, ...],
) -> Callable[[Body], Body]:
    """Registers a function of a library and a strategy, once for each combination of parameters.

    What says the same of one process is written there, and registered here as well:

        scenario(op=("SUM", "MEAN"))(one_process.reduce_matrices)

    Args:
        layouts: The names of the layouts in which it is played.
        eager_only: Why a compiled executor need not play it, if it need not.
        not_in_tensorflow: Why TensorFlow cannot play it, if it cannot.
        topic: What it is about; by default, the name of the module that the function is in.
        **axes: The values of each parameter.
    """

    def register(body: Body) -> Body:
        subject = topic or body.__module__.rpartition(".")[2]
        differences = tuple(take_differences(body))
        for values in itertools.product(*axes.values()):
            parameters = dict(zip(axes, values, strict=True))
            case = Scenario(
                subject, body, parameters, layouts, differences, eager_only, not_in_tensorflow
            )
            if _SCENARIOS.setdefault(case.name, case) is not case:
                raise ValueError(f"two scenarios are called {case.name}; rename one")
        return body

    return register


def all_scenarios() -> Iterator[Scenario]:
    """Yields every scenario that has been registered, in the order of declaration."""
    yield from _SCENARIOS.values()
