"""Random reductions and gathers over dtypes, shapes and axes, beside NumPy."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.fuzz.sources import differences
from tests.replicas import parts_of
from tests.under_test import cpus

LAW = "Reductions and gathers, of replicas and across them, give what NumPy gives."
COUNT = 20

DTYPES = ["float32", "float32", "bfloat16", "float16", "int32", "int8", "uint8", "complex64"]
CROSS_DEVICE_OPS = {
    "default": lambda: None,
    "hierarchical": rx.distribute.HierarchicalCopyAllReduce,
    "one device": rx.distribute.ReductionToOneDevice,
}


class Case:
    """Some per-replica values and one operation on them."""

    def __init__(self, random: np.random.Generator):
        self.replicas = int(random.choice([1, 2, 3, 4, 8], p=[0.1, 0.3, 0.3, 0.2, 0.1]))
        self.dtype = str(random.choice(DTYPES))
        self.kind = str(random.choice(list(KINDS)))
        self.cross_device_ops = str(random.choice(list(CROSS_DEVICE_OPS)))
        inexact = jnp.issubdtype(jnp.dtype(self.dtype), jnp.inexact)
        self.op = str(random.choice(["SUM", "MEAN"])) if inexact else "SUM"
        self.axis = int(random.integers(3))
        self.values = [self._parts(random) for _ in range(random.integers(1, 4))]

    def _parts(self, random: np.random.Generator) -> list[np.ndarray]:
        """One array for each replica; their sizes differ along the axis where they may."""
        by_axis = self.kind in ("reduce by axis", "gather", "all_gather")
        rank = int(random.integers(self.axis + 1 if by_axis else 0, 4))
        shape = [int(size) for size in random.integers(0, 4, rank)]
        parts = []
        for _ in range(self.replicas):
            if by_axis:
                shape[self.axis] = int(random.integers(0, 4))
            parts.append(np.asarray(random.integers(0, 4, shape)).astype(jnp.dtype(self.dtype)))
        if by_axis and not sum(part.shape[self.axis] for part in parts):
            shape[self.axis] = 1
            parts[0] = np.ones(shape, jnp.dtype(self.dtype))  # of nothing there is no mean
        return parts

    def __str__(self) -> str:
        values = "\n".join(f"  {[part.tolist() for part in parts]}" for parts in self.values)
        return (
            f"{self.kind}, {self.op}, axis {self.axis}, of {self.dtype} on {self.replicas} "
            f"replicas, cross_device_ops: {self.cross_device_ops}\n{values}"
        )

    def expected(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        wide = np.complex128 if self.dtype == "complex64" else np.float64
        arrays = [part.astype(wide) for part in parts]
        if self.kind in ("gather", "all_gather"):
            result = np.concatenate(arrays, self.axis)
        elif self.kind == "reduce by axis":
            result = np.sum(np.concatenate(arrays, self.axis), self.axis)
            if self.op == "MEAN":
                result = result / sum(array.shape[self.axis] for array in arrays)
        else:
            result = np.sum(arrays, axis=0)
            if self.op == "MEAN":
                result = result / len(arrays)
        return np.asarray(result).astype(jnp.dtype(self.dtype))

    def run(self, wrap: Any) -> list[list[np.ndarray]]:
        """Returns, for each value, what each replica or destination has of the result."""
        ops = CROSS_DEVICE_OPS[self.cross_device_ops]()
        strategy = rx.distribute.MirroredStrategy(cpus(self.replicas), cross_device_ops=ops)
        values = [rx.distribute.PerReplica(list(map(jnp.asarray, each))) for each in self.values]
        results = wrap(lambda values: KINDS[self.kind](self, strategy, values))(values)
        return [parts_of(strategy, result) for result in results]


def _reduce(case: Case, strategy: Any, values: Any) -> Any:
    return [strategy.reduce(case.op, value, axis=None) for value in values]


def _reduce_by_axis(case: Case, strategy: Any, values: Any) -> Any:
    return [strategy.reduce(case.op, value, axis=case.axis) for value in values]


def _gather(case: Case, strategy: Any, values: Any) -> Any:
    return [strategy.gather(value, axis=case.axis) for value in values]


def _all_reduce(case: Case, strategy: Any, values: Any) -> Any:
    def replica_fn(values: Any) -> Any:
        context: Any = rx.get_replica_context()
        return context.all_reduce(case.op, values)

    return strategy.run(replica_fn, args=(values,))


def _all_gather(case: Case, strategy: Any, values: Any) -> Any:
    def replica_fn(values: Any) -> Any:
        context: Any = rx.get_replica_context()
        return context.all_gather(values, axis=case.axis)

    return strategy.run(replica_fn, args=(values,))


def _reduce_to(case: Case, strategy: Any, values: Any) -> Any:
    with strategy.scope():
        return [strategy.extended.reduce_to(case.op, value, destinations=value) for value in values]


def _batch_reduce_to(case: Case, strategy: Any, values: Any) -> Any:
    with strategy.scope():
        return strategy.extended.batch_reduce_to(case.op, [(value, value) for value in values])


KINDS: dict[str, Any] = {
    "reduce": _reduce,
    "reduce by axis": _reduce_by_axis,
    "gather": _gather,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_to": _reduce_to,
    "batch_reduce_to": _batch_reduce_to,
}


def program(seed: int) -> int:
    case = Case(np.random.default_rng(seed))
    for way, wrap in {"eagerly": lambda fn: fn, "compiled": rx.function}.items():
        while problem := _problem(case, wrap):
            if len(case.values) == 1:
                raise AssertionError(f"{way}: {problem}\n{case}")
            case.values.pop()  # as few values as show it
            if not _problem(case, wrap):
                raise AssertionError(f"{way}, with one value more: {problem}\n{case}")
    return 2 * len(case.values)


def _problem(case: Case, wrap: Any) -> str | None:
    try:
        results = case.run(wrap)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for index, (parts, found) in enumerate(zip(case.values, results, strict=True)):
        for part in found:
            problems = differences(case.expected(parts), part, f"the result of value {index}")
            if problem := next(problems, None):
                return problem
    return None


@pytest.mark.parametrize("seed", range(COUNT))
def test_collectives(seed: int):
    assert program(seed) > 0
