"""What traps look at, computed in the program of the step itself.

For each variable, and the gradient that each replica gives for it, the program computes the largest
absolute value and, if it is asked for, the sum of the bits. They are returned beside the step's own
result, and looked at later. Where an update is to be skipped, the program decides by itself, on
all replicas together.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._errors import ReplicaMismatchError
from replicax._src._typing import DTypeLike, PyTree
from replicax._src._warnings import users_line
from replicax._src.checkpoints import Checkpoint, named_variables_in, variables_in
from replicax._src.cluster import current_membership
from replicax._src.context import get_replica_context, get_strategy
from replicax._src.divergence import check_replicas, sum_of_bits
from replicax._src.functions import Discarding, Proceed, Substitute
from replicax._src.recording._inputs import from_line
from replicax._src.recording._others import who_waited
from replicax._src.recording._traps import Finding, Traps
from replicax._src.strategies import Strategy
from replicax._src.training import gradient_watchers, metric_watchers
from replicax._src.values import DistributedValues, is_leaf
from replicax._src.variable import (
    DistributedVariable,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)

_MEDIAN_OF = 101  # steps
_FIRST_STEPS = 10  # of which nothing is said about time
PEAKS, BITS, WHOLE = "largest", "bits", "gradient of "


@final
class Probe:
    """Looks at the steps of one function."""

    def __init__(
        self, traps: Traps, checkpoint: Checkpoint, discards: bool, is_replay: bool = False
    ):
        """
        Args:
          traps: what to look for.
          checkpoint: what the program has.
          discards: whether the updates of a bad step are discarded.
          is_replay: whether all that traps can see is wanted, and the gradients themselves.
        """
        self._traps = traps
        self._checkpoint = checkpoint
        self._discards = discards
        self._is_replay = is_replay
        self._looks = traps.finite or traps.bound is not None or traps.bits or is_replay
        self._seconds: collections.deque[float] = collections.deque(maxlen=_MEDIAN_OF)
        self._steps = 0
        self._gradients: _Gradients | None = None
        self._names: Sequence[str] = ()

    # ------------------------------------------------------------------ in the program

    def carried_out(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Any, Any]:
        """Makes a call; returns what it returns, and what is to be looked at besides."""
        substitute = self._compiled(body)
        if substitute is body:
            return proceed(body, args, kwargs), None
        result, names, figures, *_ = proceed(substitute, args, kwargs)
        return result, (names, figures)

    def variables(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[list[Variable], list[Variable]]:
        """Returns what a call would change, and read alone, as far as it can be known before."""
        changed, read = proceed.variables(self._compiled(body), args, kwargs) or ((), ())
        own = set(map(id, () if self._gradients is None else self._gradients.own))
        return [each for each in changed if id(each) not in own], list(read)

    def _compiled(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what is compiled in the place of a function."""
        if not self._looks:
            return body
        if self._gradients is None:
            strategy = strategy_of(self._checkpoint)
            self._gradients = _Gradients(
                self._variables(), strategy, self._traps.bits, self._is_replay
            )

        def watched(*args: object, **kwargs: object) -> Any:
            assert self._gradients is not None
            with self._gradients.watching():
                result = body(*args, **kwargs)
            return result, *self._looked_at(result)

        if self._discards:
            return Discarding(watched, self, lambda: variables_in(self._checkpoint))
        return Substitute(watched, self)

    def seen(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Makes a call; returns what it returns and, when that is there, what traps see."""
        result, figures = self.carried_out(proceed, body, args, kwargs)
        return result, self.on_host(figures)

    def _variables(self) -> dict[str, Variable]:
        """Returns those that are looked at: not the state of optimizers, which follows them."""
        found = variables_by_name(self._checkpoint)
        return {  # sorted, since modules of NNX change the order of their attributes
            name: each
            for name, each in sorted(found.items())
            if each.trainable and jnp.issubdtype(each.dtype, jnp.floating)
        }

    def _looked_at(self, result: PyTree) -> tuple[Any, ...]:
        """Computes what is looked at, in cross-replica context."""
        assert self._gradients is not None
        gradients = self._gradients
        by_name = self._variables() | gradients.metrics
        variables = list(by_name.values())
        strategy = strategy_of(self._checkpoint) or get_strategy()
        floats = [leaf for leaf in _tree.leaves_of(result, is_leaf) if _is_floating(leaf)]
        bound = jnp.asarray(np.inf if self._traps.bound is None else self._traps.bound, float)

        def on_replica(*floats: jax.Array) -> tuple[Any, ...]:
            values = [variable.read_value() for variable in variables]
            found: dict[str, Any] = {
                name: jnp.concatenate([_each(function, values), seen.read_value()])
                for name, (function, seen) in gradients.figures.items()
            }
            if gradients.whole:
                found[WHOLE] = [each.read_value() for each in gradients.whole]
            if not self._discards:
                return (found,)
            all_peaks = jnp.concatenate([found[PEAKS], _each(_peak, floats)])
            # A NaN is not below anything.
            bad = ~jnp.all(all_peaks < bound)
            context = get_replica_context()
            if context is not None:
                bad = context.all_reduce("SUM", bad.astype(jnp.int32)) > 0
            return found, bad

        names = list(by_name)
        names += [f"the gradient of {name}" for name in gradients.names]
        return tuple(names), *strategy.run(on_replica, args=tuple(floats))

    # ------------------------------------------------------------------ on the host

    def on_host(self, figures: tuple[Any, ...] | None) -> dict[str, np.ndarray]:
        """Returns what was computed, with a row for each replica; waits for it."""
        if figures is None:
            return {}
        _, by_name = figures
        found = {name: _rows(by_name[name]) for name in (PEAKS, BITS) if name in by_name}
        if WHOLE in by_name:
            assert self._gradients is not None
            for name, gradient in zip(self._gradients.names, by_name[WHOLE], strict=True):
                found[f"{WHOLE}{name}"] = _rows(gradient)
        return found

    def finding(
        self,
        step: int,
        results: Sequence[Sequence[Any]],
        names: Sequence[str],
        figures: dict[str, np.ndarray],
        times: dict[str, float],
        is_first: bool = False,
    ) -> Finding | None:
        """Returns what is wrong with a step; None if nothing is.

        Args:
          step: its number.
          results: the small arrays that it returned.
          names: what the columns of `figures` are of.
          figures: what was looked at.
          times: that it took.
          is_first: whether a program was compiled for it, which takes long.
        """
        self._names = names
        finding = self._bad_value(step, results, figures) if self._looks else None
        return finding or (None if is_first else self._slow(step, times))

    def of_all(self, finding: Finding, lines: Mapping[int, dict[str, Any]]) -> Finding:
        """Returns a finding as it is with what all workers have recorded of the step.

        A bad gradient of one worker makes the variables of all of them bad; and who finds that a
        step was slow has often waited for another.
        """
        if finding.kind == "slow":
            return dataclasses.replace(
                finding, text=finding.text + who_waited(lines, finding.excess)
            )
        figures = [line.get("figures", {}) for _, line in sorted(lines.items())]
        if finding.kind != "value" or not all(PEAKS in each for each in figures):
            return finding
        rows = [from_line(each[PEAKS]) for each in figures]
        if len({each.shape for each in rows}) != 1:
            return finding
        found = self._bad_value(finding.step, (), {PEAKS: np.concatenate(rows)}, sorted(lines))
        return found or finding

    def _bad_value(
        self,
        step: int,
        results: Sequence[Sequence[Any]],
        figures: dict[str, np.ndarray],
        workers: Sequence[int] | None = None,
    ) -> Finding | None:
        """Finds a bad value among the figures of this worker, or those of `workers`."""
        names = self._names
        bound = np.inf if self._traps.bound is None else self._traps.bound
        peaks = figures[PEAKS]
        here = _worker()
        each_has = peaks.shape[0] // len(workers or (here,))
        replicas = [w * each_has + i for w in workers or (here,) for i in range(each_has)]
        said = " Its updates were discarded." if self._discards else ""
        line = "" if self._gradients is None else self._gradients.line
        where = f" (given to the optimizer at {line})" if line else ""
        bad = [(str(names[i]), int(r)) for r, i in np.argwhere(~(peaks < bound))]
        # A bad gradient makes all variables bad: it is the cause.
        bad.sort(key=lambda each: not each[0].startswith("the gradient of "))
        if bad:
            name, replica = bad[0]
            value = peaks[replica, list(names).index(name)]
            others = sorted({each[0] for each in bad} - {name})
            more = f", and {len(others)} more: {', '.join(others[:4])}" if others else ""
            at = where if name.startswith("the gradient of ") else ""
            what = name if at or name.startswith("metric ") else f"variable {name!r}"
            return Finding(
                step,
                "value",
                f"{what} on replica {replicas[replica]}{at} {_said(value)}{more}.{said}",
                replicas[replica] // each_has,
            )
        for index, parts in enumerate(results):
            for replica, part in enumerate(parts):
                array = np.asarray(part)
                if not jnp.issubdtype(array.dtype, jnp.floating) or not array.size:
                    continue
                peak = np.max(np.abs(array.astype(np.float64)))
                if not peak < bound:
                    on = f" of replica {replicas[replica]}" if len(parts) > 1 else ""
                    return Finding(step, "value", f"result {index}{on} {_said(peak)}.{said}")
        return None

    def _slow(self, step: int, times: dict[str, float]) -> Finding | None:
        factor = self._traps.slower_than
        if factor is None:
            return None
        seconds = times["step"]  # what the program does between two steps is no part of one
        self._steps += 1
        if self._steps <= _FIRST_STEPS:
            return None
        if len(self._seconds) < _FIRST_STEPS:
            self._seconds.append(seconds)
            return None
        median = statistics.median(self._seconds)
        self._seconds.append(seconds)
        if seconds <= factor * median:
            return None
        return Finding(
            step,
            "slow",
            f"it took {seconds:.3g} s, {seconds / median:.0f} times the median of {median:.3g} s, "
            f"from the call on; this program called it {times['idle']:.3g} s after the step "
            "before.",
            excess=seconds - median,
        )

    def copies_at(self, step: int) -> Finding | None:
        """Compares the copies of variables if it is time; returns what differs."""
        every = self._traps.copies_every
        if every is None or step % every:
            return None
        try:
            check_replicas(self._checkpoint)
        except ReplicaMismatchError as error:
            return Finding(step, "copies", str(error))
        return None


def gradients_in(figures: dict[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Returns each gradient on each replica, by variable."""
    return {
        name.removeprefix(WHOLE): list(rows)
        for name, rows in figures.items()
        if name.startswith(WHOLE)
    }


def variables_by_name(checkpoint: Checkpoint) -> dict[str, Variable]:
    """Returns the variables of a checkpoint; where names are not unique, by their path in it."""
    found = named_variables_in(checkpoint)
    counts = collections.Counter(variable.name for _, variable in found)
    return {
        variable.name if counts[variable.name] == 1 else path: variable for path, variable in found
    }


def unsaved_among(variables: Sequence[Variable], checkpoint: Checkpoint) -> list[Variable]:
    """Returns the variables that a checkpoint does not hold: generators, perhaps, or metrics."""
    saved = set(map(id, variables_in(checkpoint)))
    return [each for each in variables if id(each) not in saved]


def strategy_of(checkpoint: Checkpoint) -> Strategy | None:
    """Returns the strategy of what a checkpoint holds; None without one."""
    for variable in variables_in(checkpoint):
        if isinstance(variable, DistributedVariable):
            return variable.distribute_strategy
    return None


@final
class _Gradients:
    """What replicas have given to optimizers in this step: a number or two for each variable."""

    def __init__(
        self,
        variables: dict[str, Variable],
        strategy: Strategy | None,
        bits: bool,
        whole: bool,
    ):
        self.names = list(variables)
        self.metrics: dict[str, Variable] = {}
        """The sums of metrics that the step adds to."""
        self._places = {id(each): index for index, each in enumerate(variables.values())}
        self.line = ""

        def own(name: str, shape: Sequence[int], dtype: DTypeLike) -> Any:
            return Variable(
                jnp.zeros(shape, dtype),
                trainable=False,
                name=name,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )

        count = (len(variables),)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            self.figures: dict[str, tuple[Callable[[Any], Any], Any]] = {
                PEAKS: (_peak, own("largest_gradients", count, jnp.result_type(float)))
            }
            if bits:
                self.figures[BITS] = (sum_of_bits, own("bits_of_gradients", count, jnp.uint32))
            self.whole = [
                own("gradient", each.shape, each.dtype) for each in variables.values() if whole
            ]

    @property
    def own(self) -> list[Variable]:
        """The variables that this is kept in."""
        return [*(seen for _, seen in self.figures.values()), *self.whole]

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Inside the block, gradients and metrics are looked at."""
        gradient_watchers.append(self._seen)
        metric_watchers.append(self._added)
        try:
            yield
        finally:
            gradient_watchers.remove(self._seen)
            metric_watchers.remove(self._added)

    def _added(self, weight: Variable) -> None:
        if jnp.issubdtype(weight.dtype, jnp.floating):
            self.metrics.setdefault(f"metric {weight.name}", weight)

    def _seen(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        found = [
            (self._places[id(variable)], gradient)
            for gradient, variable in zip(gradients, variables, strict=True)
            if id(variable) in self._places and isinstance(gradient, jax.Array)
        ]
        if not found:
            return
        line = users_line()
        self.line = f"{os.path.basename(line.file)}:{line.number}"
        places = [place for place, _ in found]
        arrays = [gradient for _, gradient in found]
        is_all = places == list(range(len(self.names)))
        for place, gradient in found if self.whole else ():
            self.whole[place].assign(gradient)
        for function, seen in self.figures.values():
            values = _each(function, arrays)
            if not is_all:  # of another optimizer, or of variables that have none
                values = seen.read_value().at[jnp.asarray(places)].set(values)
            seen.assign(values)


def _each(function: Callable[[Any], Any], arrays: Sequence[Any]) -> Any:
    dtype = jnp.result_type(float) if function is _peak else jnp.uint32
    return jnp.stack([function(each) for each in arrays]) if arrays else jnp.zeros(0, dtype)


def _peak(array: jax.Array) -> jax.Array:
    # As wide as JAX has them: what is finite there is finite here.
    return jnp.max(jnp.abs(array), initial=0).astype(jnp.result_type(float))


def _rows(value: object) -> np.ndarray:
    parts = list(value.values) if isinstance(value, DistributedValues) else [value]
    return np.stack([np.asarray(part) for part in parts])


def _is_floating(leaf: object) -> bool:
    if isinstance(leaf, DistributedValues):
        leaf = leaf.values[0]
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.floating)


def _said(value: float) -> str:
    if np.isfinite(value):
        return f"is beyond the bound: its largest value is {value:.4g}"
    return f"is not finite ({value})"


def _worker() -> int:
    membership = current_membership()
    return 0 if membership is None else membership.worker
