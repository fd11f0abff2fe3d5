"""`ExponentialMovingAverage`: averages of variables over the steps of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from replicax._src.context import default_strategy, get_replica_context, meet_replicas
from replicax._src.values import PerReplica
from replicax._src.variable import Variable, copies_differ, root_of, variable_of


@final
class ExponentialMovingAverage:
    """Averages of variables, each in a variable of its own beside them, as TensorFlow's.

    `apply` moves each average towards its variable: `average -= (1 - decay) * (average - value)`.
    It is called after the optimizer, in a replica function or outside. The first call makes the
    averages, which start as what the variables are.

    >>> import replicax as rx
    >>> w = rx.Variable([1.0, 2.0], name="w")
    >>> ema = rx.train.ExponentialMovingAverage(decay=0.9)
    >>> ema.apply([w])
    >>> _ = w.assign([11.0, 2.0])
    >>> ema.apply([w])
    >>> ema.average(w).numpy().round(3).tolist()
    [2.0, 2.0]

    To evaluate with the averages, assign them to the variables: `w.assign(ema.average(w))`. They
    are saved with a checkpoint that has the `ExponentialMovingAverage` in it.

    Args:
      decay: how much of the average is kept at each `apply`, such as 0.999.
      num_updates: a number of steps, as a number or variable: the decay is then at most
        `(1 + num_updates) / (10 + num_updates)`, so that the first averages move faster.
      zero_debias: kept for ported code; averages of variables do not start at zero.
      name: for the names of its variables.
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ):
        if isinstance(decay, int | float) and not 0 <= decay <= 1:
            raise ValueError(f"`decay` is from 0 to 1, such as 0.999; got {decay!r}.")
        self._decay = decay
        self._num_updates = num_updates
        self._name = name
        self._averages: dict[int, tuple[Variable, Variable]] = {}  # by id, with the variable

    @property
    def name(self) -> str:
        """What the names of its variables end with."""
        return self._name

    def apply(self, var_list: Sequence[Any] | None = None) -> None:
        """Moves the averages of these variables; in replica context, all replicas do it together.

        Args:
          var_list: variables of floating-point numbers, ours or those of a Keras model. None for
            those that have averages already.
        """
        given = self._known() if var_list is None else var_list
        variables = [_checked(variable) for variable in given]
        if not variables:
            return
        context = get_replica_context()
        if context is None:
            self._move(variables)
            return

        def move_once(_: object) -> None:
            self._move(variables)

        what = f"ExponentialMovingAverage.apply of {len(variables)} variables"
        meet_replicas(context, ("moving average", id(self)), what, None, move_once)

    def average(self, var: Any) -> Variable | None:
        """Returns the variable with the average of `var`; None before the first `apply` of it."""
        variable = variable_of(var)
        found = None if variable is None else self._averages.get(id(root_of(variable)))
        return None if found is None else found[1]

    def average_name(self, var: Variable) -> str:
        """Returns the name of that variable."""
        return f"{var.name.removesuffix(':0')}/{self._name}"

    def variables_to_restore(self) -> dict[str, Variable]:
        """Returns the variables that have averages, by the names of these."""
        return {self.average_name(variable): variable for variable in self._known()}

    def _known(self) -> list[Variable]:
        return [variable for variable, _ in self._averages.values()]

    def _move(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            if id(variable) not in self._averages:
                self._averages[id(variable)] = (variable, self._started(variable))
        decay = self._decay_now()
        for variable in variables:
            average = self._averages[id(variable)][1]
            rate = (1.0 - decay).astype(average.dtype)
            average.assign_sub((average - _mean_of(variable)) * rate)

    def _started(self, variable: Variable) -> Variable:
        strategy = variable.distribute_strategy or default_strategy()
        first = strategy.experimental_local_results(variable)[0]
        with strategy.scope():
            return Variable(
                first.value() if copies_differ(variable) else variable.value(),
                trainable=False,
                name=self.average_name(variable),
            )

    def _decay_now(self) -> jax.Array:
        decay = jnp.asarray(_value(self._decay), jnp.float32)
        if self._num_updates is None:
            return decay
        updates = jnp.asarray(_value(self._num_updates), jnp.float32)
        return jnp.minimum(decay, (1.0 + updates) / (10.0 + updates))

    def _checkpoint_children(self) -> dict[str, Any]:
        return {
            f"average_{index}": average
            for index, (_, average) in enumerate(self._averages.values())
        }


def _checked(given: object) -> Variable:
    variable = variable_of(given)
    if variable is None:
        raise TypeError(
            "ExponentialMovingAverage.apply takes a list of rx.Variables; it has "
            f"{type(given).__name__} in it. Make a Keras model in the strategy's scope; for arrays "
            "use optax.ema."
        )
    if not jnp.issubdtype(variable.dtype, jnp.floating):
        raise TypeError(
            f"Averages are of floating-point numbers; variable {variable.name!r} has dtype "
            f"{variable.dtype}."
        )
    return root_of(variable)


def _mean_of(variable: Variable) -> Any:
    """Returns the value of a variable; the mean of its copies, if each replica has its own."""
    if not copies_differ(variable):
        return variable.value()
    strategy: Any = variable.distribute_strategy
    copies = [copy.value() for copy in strategy.experimental_local_results(variable)]
    return strategy.reduce("MEAN", PerReplica(copies), axis=None)


def _value(given: Any) -> Any:
    return given.value() if isinstance(given, Variable) else given
