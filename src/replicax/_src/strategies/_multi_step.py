"""`experimental_run_steps_on_iterator`: many steps in one call, as TensorFlow 1 spelled it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from replicax._src import _tree
from replicax._src._typing import PyTree, Tracer
from replicax._src.collectives import ReduceOpLike, as_reduce_op
from replicax._src.context import get_replica_context, get_strategy
from replicax._src.functions import Function, FunctionCache, last_of_steps
from replicax._src.values import is_leaf

if TYPE_CHECKING:
    from replicax._src.strategies._strategy import Strategy


class MultiStepContext:
    """What a step function of `experimental_run_steps_on_iterator` uses to hand out results."""

    def __init__(self) -> None:
        self._last_step_outputs: dict[str, Any] = {}
        self._non_tensor_outputs: dict[str, Any] = {}

    @property
    def last_step_outputs(self) -> dict[str, Any]:
        """What the last step set with `set_last_step_output`, by name."""
        return self._last_step_outputs

    @property
    def non_tensor_outputs(self) -> dict[str, Any]:
        """What the function set with `set_non_tensor_output`, by name."""
        return self._non_tensor_outputs

    @property
    def run_op(self) -> None:
        """Kept for ported code: the steps have been made when the context is returned."""
        return None

    def set_last_step_output(
        self, name: str, output: PyTree, reduce_op: ReduceOpLike | None = None
    ) -> None:
        """Sets `output`, an array or a per-replica value, to be returned from the last step.

        Args:
          name: the key in `last_step_outputs`.
          output: the value. In replica context, this replica's.
          reduce_op: how to combine the replicas' values; None to return them all.
        """
        op = None if reduce_op is None else as_reduce_op(reduce_op)

        def keep(strategy: Strategy, value: PyTree) -> None:
            if op is not None:
                value = strategy.reduce(op, value, axis=None)
            self._last_step_outputs[name] = value

        self._in_cross_replica(keep, output)

    def set_non_tensor_output(self, name: str, output: PyTree) -> None:
        """Sets `output`, anything at all, to be returned. In replica context, a tuple of all."""

        came_from_replica = get_replica_context() is not None
        if any(isinstance(leaf, Tracer) for leaf in _tree.leaves_of(output, is_leaf)):
            raise TypeError(
                f"set_non_tensor_output({name!r}, ...) was given an array, which has no value "
                "before the compiled step runs. Use set_last_step_output for arrays."
            )

        def keep(strategy: Strategy, value: PyTree) -> None:
            if came_from_replica:
                value = strategy.experimental_local_results(value)
            self._non_tensor_outputs[name] = value

        self._in_cross_replica(keep, output)

    def _in_cross_replica(self, keep: Callable[[Any, Any], None], value: PyTree) -> None:
        context = get_replica_context()
        if context is None:
            keep(get_strategy(), value)
        else:
            context.merge_call(keep, args=(value,))


def run_steps(
    functions: FunctionCache,
    fn: Callable[..., Any],
    iterator: Iterable[PyTree],
    iterations: int,
    initial: dict[str, Any] | None,
) -> MultiStepContext:
    """Runs `fn(context, inputs)` `iterations` times, as one program where it can be one."""
    result = MultiStepContext()
    if initial is not None and not isinstance(initial, dict):
        raise TypeError(
            f"`initial_loop_values` must be a dict from names of outputs to values; got "
            f"{_tree.describe(initial)}."
        )
    if iterations == 0:
        result._last_step_outputs = dict(initial or {})
        return result

    def step(inputs: PyTree) -> Any:
        context = MultiStepContext()
        fn(context, inputs)
        return context.last_step_outputs, _Kept(context.non_tensor_outputs)

    outputs, kept = functions.call(
        fn,
        Function,
        lambda found: last_of_steps(found, iterator, iterations, step),
        lambda: last_of_steps(Function(step), iterator, iterations),
    )
    result._last_step_outputs = outputs
    result._non_tensor_outputs = kept.values
    return result


class _Kept:
    """Carries outputs that are no arrays through a compiled function, as they are."""

    def __init__(self, values: dict[str, Any]):
        self.values = values
