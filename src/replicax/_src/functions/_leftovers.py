"""What replicas leave in Python objects, where later code finds it.

Eager replicas run one after the other, and of what they leave in a list, an attribute or a global
the last one's is there when they have run. A variant (`_variants.py`) is called for some of the
replicas. So, in each variant but the last replica's, a replica function is called once more at the
end of a run, as the last replica would call it, and what that computes is dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from replicax._src import _jax_internals
from replicax._src._tree import leaves_of
from replicax._src._typing import PyTree, Tracer
from replicax._src.functions._retry import OnlyPython, Uneven
from replicax._src.functions._structure import flatten
from replicax._src.values import DistributedValues, TracedBuffers, is_leaf, storage_of


class EndedRuns:
    """The runs of replicas in a program, and what may be used of them when they have ended."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace  # of the program
        self._runs: list[tuple[range, dict[int, Any]]] = []  # with what they have released
        self._in_common: list[range] = []  # the operations of meetings

    @contextlib.contextmanager
    def meeting(self) -> Iterator[None]:
        """Around what replicas do together, once for all."""
        start = _jax_internals.operations_so_far(self._trace)
        yield
        self._in_common.append(range(start, _jax_internals.operations_so_far(self._trace)))

    def note(self, start: int, result: PyTree, released: Iterable[Any]) -> None:
        """Replicas have run, since the operation at `start`.

        Args:
          start: the number of the operation.
          result: what they give.
          released: what else may be used of them.
        """
        values = list(released)
        for leaf in leaves_of(result, is_leaf):
            buffers = storage_of(leaf) if isinstance(leaf, DistributedValues) else None
            values.append(buffers.local if isinstance(buffers, TracedBuffers) else leaf)
        places = range(start, _jax_internals.operations_so_far(self._trace))
        self._runs.append((places, {id(each): each for each in values}))

    def require_nothing_left(self, outputs: Sequence[jax.Array]) -> None:
        """Gives up if code finds what replicas have left in Python: the last one's, if eager."""
        if not self._runs:
            return
        for user, value, made in _jax_internals.uses_of_results(self._trace, outputs):
            if any(made in places for places in self._in_common):
                continue
            for places, released in self._runs:
                if made in places and user not in places and id(value) not in released:
                    raise OnlyPython("it uses an array that the last replica has left in Python")


class _Given(NamedTuple):
    """What a replica function got in one run."""

    structure: Any
    looks: Sequence[Any]


class Leftovers:
    """The arguments of the last replica in each run, and the order of the runs.

    Attributes:
      replica: its number, if each replica has a variant of its own.
    """

    def __init__(self, replica: int | None) -> None:
        self.replica = replica
        self._of_last: list[_Given] = []
        self._run: int | None = None  # the next one of a variant that is not the last replica's

    def start(self, is_last: bool) -> None:
        """Called when a variant is traced. The first of all must be that of the last replica."""
        self._run = None if is_last else 0

    def leave(
        self, arguments: PyTree, mesh: Any, name: Callable[..., Any], call: Callable[[Any], Any]
    ) -> None:
        """Called when a replica function has been called.

        Args:
          arguments: that it was called with.
          mesh: the abstract mesh that it sees, if any.
          name: the replica function.
          call: calls it with other arguments, for a program that nobody runs.
        """
        leaves, rebuild, structure = flatten(arguments)
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
        looks = [jax.typeof(leaves[index]) for index in places]
        if self._run is None:
            self._of_last.append(_Given((structure, places), looks))
            return
        if self._run >= len(self._of_last) or self._of_last[self._run].structure != (
            structure,
            places,
        ):
            raise Uneven("replicas run other functions with another number of rows")
        wanted = self._of_last[self._run].looks
        self._run += 1

        def as_last(*tracers: Any) -> list[Any]:
            for index, tracer in zip(places, tracers, strict=True):
                leaves[index] = tracer
            call(rebuild(leaves))
            return []

        names = [f"number {index}" for index in range(len(wanted))]
        _jax_internals.trace_to_program(as_last, name, names, wanted, [], mesh)
