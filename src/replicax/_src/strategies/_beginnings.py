"""What several workers make from the first worker's value: variables, many in one exchange."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._errors import ReplicaMismatchError
from replicax._src._typing import override
from replicax._src.cluster import Membership
from replicax._src.collectives import of_first_worker
from replicax._src.context import StrategyLike, StrategyScope, has_strategy
from replicax._src.devices import Beginning, ReplicaMesh
from replicax._src.variable import outside_of_everything

_TOPIC = "variables"
_MOST_BYTES = 1 << 26  # values of which the strategy may want to keep parts only
_MOST_AT_ONCE = 4096  # what is said of them is one message
_NOTHING = "nothing more"


class _Waiting(NamedTuple):
    """Something that has not begun on all workers.

    Attributes:
      mesh: of its strategy.
      beginning: what it is.
      look: what it is in words, the same on all workers.
      value: what this worker has for it.
      patience: for how many seconds to wait for others.
    """

    mesh: ReplicaMesh
    beginning: Beginning
    look: str
    value: jax.Array
    patience: float


@final
class Beginnings:
    """What this worker has made, and not yet compared with what the others have.

    Each worker makes the same things in the same order, and all of them compare what has gathered
    when one of them cannot go on without: it leaves a scope, or waits for the others in any way,
    or needs a value, which the first worker has already. Nobody waits for what another one has
    not come to: those that all have are compared, and the rest next time.
    """

    def __init__(self, membership: Membership):
        self._membership = membership
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._lock = threading.RLock()
        self._is_settling = False
        membership.before_waiting(self.settle)

    def add(self, mesh: ReplicaMesh, beginning: Beginning, what: str, patience: float) -> None:
        """Lets something begin when the workers have compared what they have for it.

        Args:
          mesh: of its strategy.
          beginning: what it is.
          what: the same in words, in which all workers have to agree.
          patience: for how many seconds to wait for others.
        """
        value = beginning.value
        look = f"{what}: {value.dtype}{list(value.shape)}"
        self._waiting.append(_Waiting(mesh, beginning, look, value, patience))
        self._bytes += value.nbytes
        if self._bytes > _MOST_BYTES:
            self.settle()

    def begin(self, beginning: Beginning) -> None:
        """Waits until it has begun; the first worker has its value already."""
        if self._membership.worker == 0:
            with outside_of_everything():
                beginning.begin(beginning.value)
        else:
            self.settle()

    def settle(self, is_all: bool = False) -> None:
        """Compares what has gathered, and lets it begin.

        Args:
          is_all: whether other workers that come here must have made as many.

        Raises:
          ReplicaMismatchError: They have made other things; on all workers.
        """
        if not self._waiting:
            return
        with self._lock:
            if self._is_settling:
                return
            self._is_settling = True
            try:
                with outside_of_everything():
                    left = len(self._waiting)
                    while left > 0:
                        left -= self._settle_some(is_all)
                    self._bytes = 0
            finally:
                self._is_settling = False

    def _settle_some(self, is_all: bool) -> int:
        """Compares as many as all workers have; returns how many these are."""
        mine = list(itertools.islice(self._waiting, _MOST_AT_ONCE))
        hosts = [_on_host(each.value) for each in mine]
        digests = [hashlib.blake2b(host.tobytes()).hexdigest() for host in hosts]
        is_all = is_all and len(mine) == len(self._waiting)
        payload = [is_all, [each.look for each in mine], digests]
        answers = self._membership.exchange(_TOPIC, payload, timeout=mine[0].patience)
        try:
            self._require_same([(bool(answer[0]), answer[1]) for answer in answers])
        except ReplicaMismatchError as error:
            for each in mine:
                each.beginning.fail(error)
                self._waiting.popleft()
            raise
        count = min(len(answer[1]) for answer in answers)
        said = [answer[2][:count] for answer in answers]
        differ = [index for index, each in enumerate(zip(*said)) if len(set(each)) > 1]
        values = [each.value for each in mine[:count]]
        for mesh, group in itertools.groupby(differ, lambda index: mine[index].mesh):
            indices = [index for index in group if hosts[index].size]
            received = of_first_worker(mesh, [hosts[index] for index in indices])
            for index, host in zip(indices, received, strict=True):
                values[index] = _like(values[index], host)
        for each, value in zip(mine[:count], values, strict=True):
            each.beginning.begin(value)
            self._waiting.popleft()
        return count

    def _require_same(self, answers: Sequence[tuple[bool, list[str]]]) -> None:
        """Raises if workers have made different things, or one has made too few."""
        count = min(len(looks) for _, looks in answers)
        said = [looks[:count] for _, looks in answers]
        most = max(len(looks) for _, looks in answers)
        index = next((i for i, each in enumerate(zip(*said)) if len(set(each)) > 1), None)
        if index is None and any(is_all and len(looks) < most for is_all, looks in answers):
            index = count
        if index is not None:
            said = [[*looks, _NOTHING][min(index, len(looks))] for _, looks in answers]
            raise mismatch(self._membership.names, said)


def mismatch(names: Sequence[str], said: Sequence[str]) -> ReplicaMismatchError:
    """Returns the error for workers that each do something else."""
    listing = "\n".join(f"  {name}: {each}" for name, each in zip(names, said, strict=True))
    return ReplicaMismatchError(
        f"The workers do not do the same thing:\n{listing}\nEvery worker must run the same "
        "program: make the same variables and call the same functions, with arrays of the same "
        "shapes, in the same order. Look for an `if` that depends on the worker, on its data "
        "or on the order of a set."
    )


@final
class ScopeOfWorkers(StrategyScope):
    """As any scope; what was made in it has begun on all workers when the outermost is left."""

    def __init__(self, strategy: StrategyLike, beginnings: Beginnings):
        super().__init__(strategy)
        self._beginnings = beginnings

    @override
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc, traceback)
        if exc_type is None and not has_strategy():
            self._beginnings.settle(is_all=True)


def _on_host(value: jax.Array) -> np.ndarray:
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _like(value: jax.Array, host: np.ndarray) -> jax.Array:
    """Returns what `_on_host` was made of."""
    array = jnp.asarray(host)
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return array
    return jax.random.wrap_key_data(array, impl=jax.random.key_impl(value))


@functools.lru_cache(maxsize=1)  # a process joins one cluster
def beginnings_of(membership: Membership) -> Beginnings:
    """Returns those of all strategies of a worker: the order is that of the program."""
    return Beginnings(membership)
