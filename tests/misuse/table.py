"""What a row is, and what the rows are written with."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import replicax

rx: Any = replicax  # untyped, because wrong types are passed on purpose
errors: Any = replicax.errors

NONE = rx.VariableSynchronization.NONE
ON_READ = rx.VariableSynchronization.ON_READ
SUM = rx.VariableAggregation.SUM
MEAN = rx.VariableAggregation.MEAN
ONLY_FIRST = rx.VariableAggregation.ONLY_FIRST_REPLICA
USE_RUN_OR_REDUCE = r"strategy\.run\(fn.*strategy\.reduce\(.*experimental_local_results"


@dataclasses.dataclass(frozen=True)
class Misuse:
    """One row: what is done, with a strategy of two replicas, and how it must be refused."""

    do: Callable[[Any], Any]
    error: type[BaseException] | tuple[type[BaseException], ...]
    wrong: str
    """A pattern for what was wrong."""
    remedy: str
    """A pattern for what to do instead."""

    @property
    def area(self) -> str:
        """The file that the row is in."""
        return self.do.__module__.rpartition(".")[2]

    @property
    def name(self) -> str:
        return f"{self.area}-{self.do.__name__}"


MISUSES: list[Misuse] = []


def misuse(error: Any, wrong: str, remedy: str) -> Callable[..., Any]:
    """Adds the decorated function to the table."""

    def add(do: Callable[[Any], Any]) -> Callable[[Any], Any]:
        MISUSES.append(Misuse(do, error, wrong, remedy))
        return do

    return add


def two_replicas() -> Any:
    return rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def context() -> Any:
    return rx.distribute.get_replica_context()


def replica_id() -> int:
    return context().replica_id_in_sync_group


def per_replica(strategy: Any) -> Any:
    """What a replica function returned: three numbers on each replica."""
    return strategy.run(lambda: jnp.arange(3.0) + replica_id())


def variable(strategy: Any, value: Any = 1.0, **kwargs: Any) -> Any:
    with strategy.scope():
        return rx.Variable(value, **kwargs)
