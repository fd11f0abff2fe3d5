"""`check_replicas`: are the copies of mirrored variables equal, on all replicas of all workers?

They are by construction, until a program changes one copy alone, workers run programs that are not
the same, or memory or a link is faulty. Then training goes on with wrong numbers, and nothing says
so. The work is done on the devices, in `_fingerprints.py`; here is what is compared, and what is
said. Variables are found as a checkpoint finds them.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import math
from typing import Any

import jax
import numpy as np

from replicax._src._errors import ReplicaMismatchError
from replicax._src.checkpoints import variables_in
from replicax._src.cluster import current_membership
from replicax._src.context import get_strategy, require_between_steps
from replicax._src.devices import ReplicaMesh
from replicax._src.divergence._fingerprints import Difference, differences, fingerprints
from replicax._src.strategies import Strategy, replica_mesh_of
from replicax._src.variable import (
    UPDATING,
    ComponentVariable,
    DistributedVariable,
    Variable,
    copies_differ,
    mesh_of,
    number_of_copies,
    own_storage,
)

_NAMED = 8  # so many variables, or replicas, are named in a text
_compiled: set[tuple[ReplicaMesh, str]] = set()  # what there is a program for


@dataclasses.dataclass(frozen=True)
class ReplicaCheck:
    """What `check_replicas` has found to be equal.

    Attributes:
      variables: how many variables were compared; those with one copy count.
      replicas: over how many replicas.
      workers: over how many workers.
      skipped: how many variables were not: sync-on-read ones, and plain ones of many workers.
    """

    variables: int
    replicas: int
    workers: int
    skipped: int = 0


def check_replicas(
    *variables_or_objects: object, strategy: Strategy | None = None, plain: bool = False
) -> ReplicaCheck:
    """Checks that the copies of mirrored variables are equal, bit by bit, on all replicas.

    In a job of many workers all of them call it, at the same point of their programs, with the same
    variables. Sync-on-read variables are skipped: their copies differ by design.

    The copies are hashed where they are, and only the hashes travel: a few milliseconds for a small
    model. See `check_replicas_every` to do so now and then.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     model = {"w": rx.Variable([1.0, 2.0], name="w"), "b": rx.Variable(0.0, name="b")}
    >>> rx.debug.check_replicas(model)
    ReplicaCheck(variables=2, replicas=2, workers=1, skipped=0)

    Args:
      *variables_or_objects: variables, or whatever holds them: models, optimizers, dictionaries,
        checkpoints.
      strategy: checks variables of this strategy only; None: of every one.
      plain: whether variables that were made outside of a scope are compared between workers, too.

    Returns:
      How many variables, replicas and workers there were.

    Raises:
      rx.errors.ReplicaMismatchError: some copy is not the same. The text names the first variable,
        the replicas, and the elements.
    """
    require_between_steps(
        "check_replicas was called",
        "It compares the copies of all replicas: call it between the steps, outside of "
        "strategy.run and rx.function.",
    )
    membership = current_membership()
    workers = 1 if membership is None else membership.workers
    groups: dict[ReplicaMesh, list[Variable]] = collections.defaultdict(list)
    alone = skipped = 0
    found = _variables_in(variables_or_objects)
    for variable in found:
        is_distributed = isinstance(variable, DistributedVariable)
        is_others = strategy is not None and variable.distribute_strategy is not strategy
        if isinstance(variable, ComponentVariable):  # of a sync-on-read variable: else, its whole
            skipped += 1
        elif is_distributed and (copies_differ(variable) or is_others):
            skipped += 1
        elif is_distributed and variable.layout.replica_dim is not None:
            alone += 1  # there are no copies, but one in parts
        elif is_distributed and number_of_copies(variable) > 1:
            groups[mesh_of(variable)].append(variable)
        elif workers == 1:
            alone += 1
        elif not is_distributed and plain:
            groups[_mesh_of_workers(strategy, found)].append(variable)
        else:
            skipped += 1
    for mesh, variables in groups.items():
        _check(mesh, variables)
    return ReplicaCheck(
        variables=alone + sum(map(len, groups.values())),
        replicas=max((mesh.size for mesh in groups), default=1),
        workers=workers,
        skipped=skipped,
    )


class check_replicas_every:
    """Calls `check_replicas` at every n-th call: to be called once a step.

        check = rx.debug.check_replicas_every(100, model, optimizer)
        for batch in batches:
            train_step(batch)
            check()

    Args:
      n: the number of calls from one check to the next.
      *variables_or_objects: as for `check_replicas`. They are looked through again at each check.
      strategy: likewise.
      plain: likewise.
    """

    def __init__(
        self,
        n: int,
        *variables_or_objects: object,
        strategy: Strategy | None = None,
        plain: bool = False,
    ):
        if not isinstance(n, int) or n < 1:
            raise ValueError(
                f"check_replicas_every takes a number of steps first, as in "
                f"check_replicas_every(100, model); got {n!r}."
            )
        self._every = n
        self._calls = 0
        self._objects = variables_or_objects
        self._options = {"strategy": strategy, "plain": plain}

    def __call__(self) -> ReplicaCheck | None:
        """Checks if it is time; returns what `check_replicas` does, or None."""
        self._calls += 1
        if self._calls % self._every:
            return None
        return check_replicas(*self._objects, **self._options)


def _variables_in(objects: tuple[Any, ...]) -> list[Variable]:
    found = variables_in(list(objects))
    if not found:
        given = ", ".join(type(each).__name__ for each in objects) or "nothing"
        raise ValueError(
            f"check_replicas found no variables in what it was given: {given}. Pass variables, or "
            "models, optimizers and dictionaries that hold them."
        )
    return found


def _mesh_of_workers(strategy: Strategy | None, found: list[Variable]) -> ReplicaMesh:
    for each in (strategy, get_strategy(), *(each.distribute_strategy for each in found)):
        mesh = None if each is None else replica_mesh_of(each)
        if mesh is not None and mesh.spans_workers:
            return mesh
    raise ValueError(
        "check_replicas(..., plain=True) compares variables between workers, and none of them "
        "belongs to a strategy of many workers. Pass strategy=, the MultiWorkerMirroredStrategy."
    )


def _check(mesh: ReplicaMesh, variables: list[Variable]) -> None:
    summary = _summary(variables)
    mesh.require_same("check_replicas", summary)
    # Programs for several devices cannot take arrays without items, which cannot differ either.
    variables = [each for each in variables if math.prod(each.shape)]
    if not variables:
        return
    is_new = (mesh, summary) not in _compiled
    membership = current_membership()
    with contextlib.ExitStack() as stack:
        if is_new and membership is not None:
            stack.enter_context(membership.phase("compiling check_replicas"))
        stack.enter_context(UPDATING)  # no program may write here before ours has got the values
        arrays = [_laid_out(mesh, each) for each in variables]
        marks = fingerprints(mesh, arrays)
    _compiled.add((mesh, summary))
    unequal = np.flatnonzero((marks != marks[0]).any(axis=(0, 2)))
    if not len(unequal):
        return
    first = int(unequal[0])
    reference = _most_common(marks[:, first])
    with UPDATING:
        found = differences(mesh, _laid_out(mesh, variables[first]), reference)
    others = [variables[index].name for index in unequal[1:]]
    raise ReplicaMismatchError(_finding(mesh, variables[first], reference, found, others))


def _laid_out(mesh: ReplicaMesh, variable: Variable) -> jax.Array:
    # Not read in the usual way, after which the next step would have to copy it.
    array = own_storage(variable).assembled
    return array if isinstance(variable, DistributedVariable) else mesh.spread(array)


def _summary(variables: list[Variable]) -> str:
    """Returns what is compared, in a line that is the same if and only if the programs are."""
    described = [f"{each.name} {each.dtype}{list(each.shape)}" for each in variables]
    rest = hashlib.sha256("\n".join(described).encode()).hexdigest()[:8]
    more = f", ... ({rest})" if described[_NAMED:] else ""
    return f"check_replicas of {len(described)} variables: {', '.join(described[:_NAMED])}{more}"


def _most_common(marks: np.ndarray) -> int:
    """Returns the first replica whose copy most replicas have; of equals, the first."""
    kinds = [tuple(mark) for mark in marks.tolist()]
    (kind, _), *_ = collections.Counter(kinds).most_common(1)  # of equals, the first to appear
    return kinds.index(kind)


def _finding(
    mesh: ReplicaMesh,
    variable: Variable,
    reference: int,
    found: list[Difference],
    others: list[str],
) -> str:
    look = f"{variable.dtype}[{','.join(map(str, variable.shape))}]"
    lines = [
        f"Variable {variable.name!r}, {look}, is not the same on all replicas. Compared with "
        f"{mesh.describe_replica(reference)}:"
    ]
    for each in found[:_NAMED]:
        where = f", first at {list(each.index)}" if each.index else ""
        lines.append(
            f"  {mesh.describe_replica(each.replica)}: {each.elements} of "
            f"{max(int(np.prod(variable.shape)), 1)} elements differ{where}: {each.value} instead "
            f"of {each.expected}"
        )
    if found[_NAMED:]:
        lines.append(f"  and {len(found) - _NAMED} more replicas")
    if others:
        more = f" and {len(others) - _NAMED} more" if others[_NAMED:] else ""
        lines.append(f"Also unequal: {', '.join(others[:_NAMED])}{more}.")
    lines.append(
        "Copies stay equal if every worker runs the same program and all replicas are updated "
        "together. Look for an assignment to one copy, for values that depend on the worker "
        "(random numbers, the time, its data) assigned outside of strategy.run, and for faulty "
        "hardware. To go on, restore a checkpoint from before."
    )
    return "\n".join(lines)
