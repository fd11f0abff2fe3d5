"""`Generator`: random numbers whose state is a variable.

Every replica draws its own numbers, because its number is folded into the key, and draws the same
ones eagerly and compiled, because what is counted are the draws of the replica itself. The state is
a sync-on-read variable: it lives with the strategy, is lifted into compiled functions like any
other, and is saved with a checkpoint.
"""

from __future__ import annotations

import contextlib
import operator
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._errors import WrongContextError
from replicax._src._typing import ArrayInput, DTypeLike
from replicax._src.context import (
    current_replica,
    get_replica_context,
    get_strategy,
    meet_replicas,
    sharing_worker,
    world,
)
from replicax._src.variable import (
    DistributedVariable,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    outside_of_everything,
)

_LARGEST_SEED = 2**63


class Generator:
    """A stream of random numbers, of its own on each replica.

    Make it in the strategy's scope. Draw with its methods, or take keys from it for anything in
    `jax.random`.

    >>> import jax, replicax as rx
    >>> generator = rx.random.Generator.from_seed(1)
    >>> a, b = generator.normal([2]), generator.normal([2])
    >>> bool((a == b).any())
    False
    >>> bool((rx.random.Generator.from_seed(1).normal([2]) == a).all())
    True
    >>> coin = jax.random.bernoulli(generator.next_key())

    Args:
      seed: a whole number; by default one from the operating system.
      name: of its variable.
    """

    def __init__(self, seed: int | None = None, name: str = "generator"):
        self._state = Variable(
            _initial_state(_checked_seed(seed)),
            name=f"{name}/state",
            trainable=False,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @classmethod
    def from_seed(cls, seed: int, alg: object = None) -> Generator:
        """Returns a generator from a seed; `alg` is kept for ported code."""
        return cls(seed)

    @classmethod
    def from_non_deterministic_state(cls, alg: object = None) -> Generator:
        """Returns a generator from a seed of the operating system."""
        return cls()

    @property
    def state(self) -> Variable:
        """The variable that holds the key and the number of draws so far."""
        return self._state

    @property
    def variables(self) -> list[Variable]:
        """Its variables, for checkpoints."""
        return [self._state]

    def _checkpoint_children(self) -> dict[str, Any]:
        return {"state": self._state}

    def reset_from_seed(self, seed: int) -> None:
        """Starts again, from this seed, on all replicas."""
        self._state.assign(_initial_state(_checked_seed(seed)))

    def skip(self, delta: int) -> None:
        """Goes on as if `delta` draws had been made."""
        if not jnp.issubdtype(jnp.result_type(delta), jnp.integer):
            raise TypeError(f"Generator.skip takes a whole number of draws; got {delta!r}.")
        self._state.assign_add(self._draws(delta))

    def next_key(self) -> jax.Array:
        """Returns a key for `jax.random` that was not drawn before, here or on another replica.

        In cross-replica context, one key for all.
        """
        context = get_replica_context()
        number: Any = 0 if context is None else context.replica_id_in_sync_group + 1
        has_one_state = not isinstance(self._state, DistributedVariable)
        if context is not None and current_replica() is not None and has_one_state:
            # One state for all of them: they draw together, and their numbers tell them apart.
            what = "a draw from a generator that was made outside of the strategy's scope"
            state = meet_replicas(
                context, ("draw", id(self)), what, None, lambda _: self._advanced()
            )
        else:
            state = self._advanced()
        key = jax.random.wrap_key_data(state[:-1])
        worker = sharing_worker(get_strategy())
        if worker is not None:  # another one may have read the same state
            key = jax.random.fold_in(key, worker + 1)
        return jax.random.fold_in(jax.random.fold_in(key, number), state[-1])

    def _advanced(self) -> jax.Array:
        """Returns the state, which is then that after a draw."""
        state = self._state.read_value()
        self._state.assign_add(self._draws(1))
        return state

    def _draws(self, count: Any) -> jax.Array:
        if isinstance(count, int | np.integer):
            count = int(count) % 2**32
        return jnp.zeros(self._state.shape, jnp.uint32).at[-1].set(jnp.asarray(count, jnp.uint32))

    def split(self, count: int = 1) -> list[Generator]:
        """Returns generators that are independent of this one and of each other."""
        if current_replica() is not None:
            raise WrongContextError(
                "Generator.split makes variables, and was called in replica context. Split in "
                "strategy.scope(), before strategy.run."
            )
        world().refuse_in_program(
            lambda: WrongContextError(
                "Generator.split was called inside an rx.function. Split before, and use the new "
                "generators in the function."
            )
        )
        seeds = jax.random.bits(self.next_key(), _shape((count,)), jnp.uint32)
        return [Generator(int(seed)) for seed in np.asarray(seeds)]

    # ------------------------------------------------------------------ numbers

    # `name` is that of an operation, in TensorFlow; here nothing has it.

    def normal(
        self,
        shape: Sequence[int],
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns normally distributed numbers."""
        numbers = jax.random.normal(self.next_key(), _shape(shape), dtype)
        return (numbers * stddev + mean).astype(dtype)

    def truncated_normal(
        self,
        shape: Sequence[int],
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns normally distributed numbers, none further than two `stddev` from the mean."""
        numbers = jax.random.truncated_normal(self.next_key(), -2.0, 2.0, _shape(shape), dtype)
        return (numbers * stddev + mean).astype(dtype)

    def uniform(
        self,
        shape: Sequence[int],
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = jnp.float32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns numbers from `minval` (included) to `maxval` (excluded; 1 for floats).

        Limits that are Python's or NumPy's numbers are compared; those in JAX arrays are not.
        """
        dtype = jnp.dtype(dtype)
        if jnp.issubdtype(dtype, jnp.integer):
            if maxval is None:
                raise ValueError("uniform needs `maxval` for integers.")
            _check_range(minval, maxval, np.greater_equal, "below")
            _check_fits(minval, maxval, dtype)
            return jax.random.randint(self.next_key(), _shape(shape), minval, maxval, dtype)
        top = 1.0 if maxval is None else maxval
        _check_range(minval, top, np.greater, "not above")
        return jax.random.uniform(self.next_key(), _shape(shape), dtype, minval, top)

    def uniform_full_int(
        self, shape: Sequence[int], dtype: DTypeLike = jnp.uint32, name: str | None = None
    ) -> jax.Array:
        """Returns integers over the whole range of their dtype."""
        dtype = jnp.dtype(dtype)
        unsigned = f"uint{dtype.itemsize * 8}"
        bits = jax.random.bits(self.next_key(), _shape(shape), unsigned)
        return jax.lax.bitcast_convert_type(bits, dtype)

    def binomial(
        self,
        shape: Sequence[int],
        counts: Any,
        probs: Any,
        dtype: Any = jnp.int32,
        name: str | None = None,
    ) -> jax.Array:
        """Returns numbers of successes in `counts` trials with probability `probs`."""
        counts, probs = jnp.asarray(counts), jnp.asarray(probs)
        return jax.random.binomial(self.next_key(), counts, probs, _shape(shape)).astype(dtype)

    def __repr__(self) -> str:
        return f"<rx.random.Generator {self._state.name!r}>"


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """Returns the generator of the program, made when first asked for.

    A worker of a `ParameterServerStrategy` has one of its own.
    """
    if not _global:
        shares = sharing_worker(get_strategy()) is not None
        with outside_of_everything() if shares else contextlib.nullcontext():
            _global.append(Generator())
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Makes `generator` the one that `get_global_generator` returns."""
    if not isinstance(generator, Generator):
        raise TypeError(f"set_global_generator takes a rx.random.Generator; got {generator!r}.")
    _global[:] = [generator]


# ------------------------------------------------------------------ numbers of the program

# `seed`: an operation of TensorFlow may have one of its own; one generator has one seed.


def set_seed(seed: int) -> None:
    """Seeds the global generator, from which the functions of `rx.random` draw.

    Layers of Keras draw from generators of their own: `keras.utils.set_random_seed`. So do data
    sets: `dataset.shuffle(n, seed=seed)`.

    >>> import replicax as rx
    >>> rx.random.set_seed(1)
    >>> a = rx.random.normal([2])
    >>> rx.random.set_seed(1)
    >>> bool((rx.random.normal([2]) == a).all())
    True
    """
    get_global_generator().reset_from_seed(seed)


def normal(
    shape: Sequence[int],
    mean: ArrayInput = 0.0,
    stddev: ArrayInput = 1.0,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns normally distributed numbers of the global generator; each replica draws its own.

    >>> import replicax as rx
    >>> rx.random.normal([2, 3]).shape
    (2, 3)

    Args:
      shape: of the result.
      mean: of the distribution.
      stddev: its standard deviation.
      dtype: of the numbers.
      seed: must be None: `rx.random.set_seed` seeds all draws; a generator of its own has its own.
      name: not used; as in TensorFlow.
    """
    return _global_for("normal", seed).normal(shape, mean, stddev, dtype)


def truncated_normal(
    shape: Sequence[int],
    mean: ArrayInput = 0.0,
    stddev: ArrayInput = 1.0,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers as `normal` does, none further than two `stddev` from the mean.

    >>> import replicax as rx
    >>> bool((abs(rx.random.truncated_normal([100])) <= 2).all())
    True
    """
    return _global_for("truncated_normal", seed).truncated_normal(shape, mean, stddev, dtype)


def uniform(
    shape: Sequence[int],
    minval: ArrayInput = 0,
    maxval: ArrayInput | None = None,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of the global generator from `minval` to `maxval`, which is excluded.

    >>> import replicax as rx
    >>> numbers = rx.random.uniform([100], maxval=3, dtype="int32")
    >>> sorted(set(numbers.tolist()))
    [0, 1, 2]
    """
    return _global_for("uniform", seed).uniform(shape, minval, maxval, dtype)


def shuffle(value: ArrayInput, seed: int | None = None, name: str | None = None) -> jax.Array:
    """Returns the rows of an array in an order that the global generator draws.

    >>> import jax.numpy as jnp, replicax as rx
    >>> sorted(rx.random.shuffle(jnp.arange(4)).tolist())
    [0, 1, 2, 3]
    """
    key, rows = _global_for("shuffle", seed).next_key(), jnp.asarray(value)
    return rows if rows.ndim == 0 else jax.random.permutation(key, rows)


def _global_for(function: str, seed: int | None) -> Generator:
    if seed is not None:
        raise ValueError(
            f"rx.random.{function} draws from the global generator, and takes no seed of its own; "
            f"got seed={seed!r}. Call rx.random.set_seed(seed) once, at the start of the program, "
            "or draw from a generator: rx.random.Generator.from_seed(seed)."
        )
    return get_global_generator()


def _checked_seed(seed: object) -> int:
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"A seed is a whole number; got {seed!r}.")
    return int(seed) % _LARGEST_SEED


def _initial_state(seed: int) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        key = jax.random.fold_in(jax.random.key(seed & 0x7FFFFFFF), seed >> 31)
        return np.append(np.asarray(jax.random.key_data(key)), np.uint32(0)).astype(np.uint32)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(
            operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,))
        )
    except TypeError:
        raise TypeError(
            f"The shape of random numbers is a list of sizes, [] for one number; got {shape!r}."
        ) from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"The sizes in the shape of random numbers are 0 or more; got {shape!r}.")
    return sizes


def _check_range(
    minval: ArrayInput, maxval: ArrayInput | None, is_wrong: Callable[..., Any], wanted: str
) -> None:
    known = all(
        isinstance(each, int | float | np.generic | np.ndarray) for each in (minval, maxval)
    )
    if known and np.any(is_wrong(minval, maxval)):
        raise ValueError(
            f"uniform draws from `minval` up to `maxval`, so `minval` must be {wanted} `maxval`; "
            f"got minval={minval!r} and maxval={maxval!r}."
        )


def _check_fits(minval: ArrayInput, maxval: ArrayInput, dtype: np.dtype[Any]) -> None:
    """Raises `ValueError` for limits that JAX would move into the range of the dtype."""
    limits = np.iinfo(dtype)
    known = [each for each in (minval, maxval) if isinstance(each, int | np.generic | np.ndarray)]
    if any(np.any(np.less(each, limits.min)) for each in known) or any(
        np.any(np.greater(each, int(limits.max) + 1)) for each in known
    ):
        raise ValueError(
            f"uniform draws numbers of {dtype.name}, which are from {limits.min} to {limits.max}; "
            f"got minval={minval!r} and maxval={maxval!r}."
        )
