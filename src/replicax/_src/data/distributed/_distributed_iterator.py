"""`DistributedIterator`: for each step, a value with a part for each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from replicax._src import _tree
from replicax._src._errors import WrongContextError
from replicax._src._typing import PyTree, override
from replicax._src.context import default_strategy, get_replica_context
from replicax._src.data._ahead import Failed, ReadAhead
from replicax._src.data._blocks import EMPTY
from replicax._src.data._iterator import Feed, PositionedIterator
from replicax._src.data._node import Node
from replicax._src.data._run import Run
from replicax._src.data._whence import Whence, whence
from replicax._src.data.distributed._options import Exchange
from replicax._src.data.distributed._placing import Shares
from replicax._src.data.distributed._splitting import Step, Steps
from replicax._src.data.foreign import Distributed
from replicax._src.values import (
    DistributedValues,
    PerReplica,
    component_looks,
    is_leaf,
    set_uneven,
)


class DistributedIterator(PositionedIterator, Distributed):
    """What `iter(distributed_dataset)` gives: for each step, a value with a part for each replica.

    `get_state` and `set_state` take the position along, into another process too; where workers
    take their parts of global batches, also to another number of replicas or workers.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        run: Run,
        on_resume: Callable[[Run], None],
        make_feed: Callable[[Run, int], StepFeed],
        ahead: int,
        spec: Callable[[], Any],
        tied_to: dict[str, Any],
        open_as: Callable[[Run, int, int, int], tuple[Node, Steps] | None],
    ):
        super().__init__(nodes, run, on_resume)
        self._make_feed = make_feed
        self._ahead = ahead
        self._spec = spec
        self._ties = tied_to
        self._open_as = open_as

    @override
    def _check_context(self) -> None:
        context = get_replica_context()
        if context is not None and context.strategy is not default_strategy():
            raise WrongContextError(
                "The next batch of a distributed data set was asked for in a replica function. It "
                "has a part for every replica: take it outside, and pass it to "
                "strategy.run(fn, args=(batch,)), which hands each replica its part."
            )
        super()._check_context()

    @property
    @override
    def element_spec(self) -> Any:
        """What the elements look like."""
        return self._spec()

    @override
    def tied_to(self) -> dict[str, Any]:
        return self._ties

    @override
    def _start(self) -> Feed:
        feed = self._make_feed(self._run.restarted(), self._position)
        if self._ahead == 0:
            return feed
        # One is being made while the others wait.
        return ReadAhead(
            feed.get,
            self._ahead + 1,
            feed.close,
            "rx.input.ahead",
            feed.interrupt,
            may_rest=feed.is_ours_alone,
        )

    @override
    def whence(
        self, position: int, row: int, local: int, workers: int = 1, worker: int = 0
    ) -> Whence:
        opened = self._open_as(self._run.restarted(), local, workers, worker)
        if opened is not None:
            node, steps = opened
            try:
                steps.skip(position - 1)
                step = steps.next_step()
            finally:
                steps.close()
            found = Whence("", []) if step is None else whence(step.rows, row, node)
            if found.text or workers > 1:
                return found
        return super().whence(position, row, local)

    def __repr__(self) -> str:
        return f"<DistributedIterator at step {self._position}>"


@final
class StepFeed:
    """Makes the values of one walk, one after the other. Knows nothing of who reads them."""

    def __init__(
        self,
        steps: Steps,
        position: int,
        local_replicas: int,
        compute: Callable[[Step], Shares | None],
        place: Callable[[Shares], Any],
        apply: Callable[[Any], Any] | None,
        exchange: Exchange | None,
        in_memory: bool,
    ):
        """
        Args:
          steps: of this worker.
          position: the step to start at.
          local_replicas: of this worker.
          compute: returns the rows of a step, in arrays; None if they cannot be made.
          place: puts those on the devices.
          apply: the functions that run there, if there are any.
          exchange: with the other workers at each step, if workers may have different numbers of
            them, or rows in them.
          in_memory: whether everything is there, and nothing of the user's runs or is read.
        """
        self._steps = steps
        self._position = position
        self._nothing = Step(EMPTY, [0] * local_replicas)
        self._compute = compute
        self._place = place
        self._apply = apply
        self._exchange = exchange
        self._in_memory = in_memory

    @property
    def is_ours_alone(self) -> bool:
        """Whether nobody is waited for, and nothing of the user's runs: a thread is not needed."""
        return self._in_memory and self._exchange is None and self._apply is None

    def get(self) -> Any:
        if self._position:
            position, self._position = self._position, 0
            self._steps.skip(position)
        step = self._steps.next_step()
        value = None if step is None else self._made(step)
        is_uneven = step is not None and step.is_uneven
        reported: Sequence[Any] = ()
        if self._exchange is not None:
            # What each worker has for this step: nothing more, or arrays of some shapes.
            reported = self._exchange(None if step is None else shapes_of(value)) or ()
            if all(shapes is None for shapes in reported):
                raise StopIteration
            if step is None:
                value = self._made(self._nothing)
            if any(shapes is None for shapes in reported):  # and now those of empty shares
                reported = self._exchange(shapes_of(value)) or ()
            is_uneven = differ(reported)
        if value is None:
            raise StopIteration
        if is_uneven:
            if step is not None and step.everywhere and self._apply is None:
                reported = [_with_rows(shapes_of(value), step.everywhere)]
            mark_uneven(value, reported)
        return value

    def _made(self, step: Step) -> Any:
        try:
            shares = self._compute(step)
            if shares is None:
                return None
            value = self._place(shares)
            return value if self._apply is None else self._apply(value)
        except Exception as error:
            return Failed(error)

    def interrupt(self) -> None:
        """Releases the thread that waits for other workers in `get`, and those workers."""
        if self._exchange is not None:
            self._exchange.close()

    def close(self) -> None:
        self.interrupt()
        self._steps.close()


FAILED = "failed"  # what a worker reports that could not make its part


def shapes_of(value: PyTree) -> list[list[list[int]]] | str:
    """Returns the shapes of what each replica here gets, leaf by leaf, to be told others."""
    if isinstance(value, Failed):
        return FAILED
    found: list[list[list[int]]] = []
    for leaf in _tree.leaves_of(value, is_leaf):
        looks = component_looks(leaf) if isinstance(leaf, DistributedValues) else [leaf]
        found.append([list(getattr(each, "shape", ())) for each in looks])
    return found


def differ(said: Sequence[Any]) -> bool:
    """Returns whether replicas have different shapes, by what the workers have reported."""
    if any(not isinstance(shapes, list) for shapes in said):
        return any(shapes != said[0] for shapes in said)
    return any(
        shape != of_leaf[0][0] for of_leaf in zip(*said) for shapes in of_leaf for shape in shapes
    )


def mark_uneven(value: PyTree, said: Sequence[Any] = ()) -> None:
    """Says of per-replica values that other workers have other shapes, if not this one.

    Args:
      value: what the replicas here have.
      said: what `shapes_of` gives on each worker, if that is known.
    """
    for index, leaf in enumerate(_tree.leaves_of(value, is_leaf)):
        if isinstance(leaf, PerReplica):
            known = all(isinstance(each, list) and index < len(each) for each in said)
            shapes = [tuple(shape) for each in said for shape in each[index]] if known else []
            if len(set(shapes)) != 1:
                set_uneven(leaf, shapes)


def _with_rows(shapes: Any, sizes: Sequence[int]) -> Any:
    """Returns the shapes of leaves on all replicas, which have these numbers of rows of each."""
    if not isinstance(shapes, list):
        return shapes
    return [[[size, *of_leaf[0][1:]] for size in sizes] for of_leaf in shapes]
