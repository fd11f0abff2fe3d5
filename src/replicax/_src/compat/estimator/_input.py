"""From an `input_fn` to the batches of a strategy's replicas.

As in TensorFlow, the function is called once on each worker, and each batch that its data set
yields goes to one replica.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import numpy as np

from replicax._src._typing import PyTree
from replicax._src.compat.estimator._spec import ModeKeys
from replicax._src.data import Dataset
from replicax._src.data.distributed import InputContext
from replicax._src.strategies import Strategy


def parameters_of(function: Callable[..., Any], argument: str) -> set[str]:
    """Returns the names of what a function takes; `*args` and `**kwargs` are given nothing."""
    if not callable(function):
        raise TypeError(f"`{argument}` must be a function; got {function!r}.")
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


@final
class Batches:
    """Iterates over `(features, labels)` of all replicas; `close` ends what reads ahead."""

    def __init__(
        self,
        input_fn: Callable[..., Any],
        mode: str,
        strategy: Strategy,
        is_bounded: bool,
        **kwargs: object,
    ):
        """
        Args:
          input_fn: the user's.
          mode: one of `ModeKeys`.
          strategy: of the replicas.
          is_bounded: whether somebody counts the steps.
          **kwargs: what the function may ask for, besides its `mode` and `input_context`.
        """
        wanted = parameters_of(input_fn, "input_fn")

        def dataset_fn(input_context: InputContext) -> Any:
            given = {"mode": mode, "input_context": input_context} | kwargs
            made = input_fn(**{name: given[name] for name in given.keys() & wanted})
            return _as_dataset(made, mode, is_bounded)

        self._mode = mode
        self._iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    def __next__(self) -> tuple[Any, Any]:
        element = next(self._iterator)
        if not isinstance(element, tuple):
            return element, None
        if self._mode == ModeKeys.PREDICT:
            return element[0], None
        if len(element) != 2:
            raise ValueError(
                "The data set of an input_fn must yield (features, labels), or features alone; it "
                f"yields tuples of {len(element)}. Put several features into a dictionary."
            )
        return element

    def first(self) -> tuple[Any, Any]:
        """Returns the next batch, where there must be one."""
        try:
            return next(self)
        except StopIteration:
            raise ValueError(
                "The data set of the input_fn is empty: there is not one batch. Look at its files "
                "and filters, and whether its shard has any data."
            ) from None

    def close(self) -> None:
        """Ends what reads ahead."""
        self._iterator.close()


def _as_dataset(made: PyTree, mode: str, is_bounded: bool) -> Any:
    if made is None:
        raise ValueError(
            "The input_fn returned nothing (None). It must return an rx.data.Dataset of (features, "
            "labels), or a pair of arrays (features, labels): is a `return` missing?"
        )
    leaves = jax.tree.leaves(made)
    if isinstance(made, Dataset) or not all(isinstance(x, np.ndarray | jax.Array) for x in leaves):
        return made
    if isinstance(made, list | tuple) and len(made) == 2:
        made = made[0] if made[1] is None else tuple(made)
    if mode != ModeKeys.TRAIN:
        # One batch that may be smaller, so that it counts where it is not enough for all replicas.
        return Dataset.from_tensor_slices(made).batch(max(1, len(leaves[0])))
    if not is_bounded:
        raise ValueError(
            "The input_fn returned arrays, which are the batch of every step: such training has no "
            "end. Pass `steps` or `max_steps`, or return an rx.data.Dataset."
        )
    return Dataset.from_tensors(made).repeat()
