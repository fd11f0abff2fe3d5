"""Adam with the numbers of TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from replicax._src._typing import PyTree

if TYPE_CHECKING:
    import optax


def adam(
    learning_rate: optax.ScalarOrSchedule = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> optax.GradientTransformation:
    """Returns an optax transformation with the numbers of `tf.keras.optimizers.Adam`.

    TensorFlow adds `epsilon` to the root of the second moment, and `optax.adam` to the root of the
    corrected one, which is up to 30 times as large in the first steps: where gradients are small,
    the two train differently. The state is that of `optax.adam`.

    >>> import jax.numpy as jnp, replicax as rx
    >>> w = rx.Variable([1.0, 2.0])
    >>> optimizer = rx.Optimizer(rx.train.adam(0.1))
    >>> optimizer.apply_gradients([(jnp.array([1e-6, 1.0]), w)])
    >>> w.numpy().round(4)
    array([0.976, 1.9  ], dtype=float32)

    Args:
      learning_rate: a number, or an optax schedule.
      beta_1: how much of the first moment is kept in each step.
      beta_2: how much of the second moment is kept in each step.
      epsilon: added to the root of the second moment. Programs of TensorFlow 1, where the default
        of `tf.train.AdamOptimizer` is 1e-8, pass `epsilon=1e-8`.
    """
    import optax  # loaded with the first optimizer, not with replicax

    scale = optax.scale_by_adam(b1=beta_1, b2=beta_2)

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.OptState]:
        _, state = scale.update(updates, state, params)
        assert isinstance(state, optax.ScaleByAdamState)
        steps = jnp.asarray(state.count, jnp.float32)
        factor = jnp.sqrt(1 - beta_2**steps) / (1 - beta_1**steps)
        scaled = jax.tree.map(
            lambda first, second: (factor * first / (jnp.sqrt(second) + epsilon)).astype(
                first.dtype
            ),
            state.mu,
            state.nu,
        )
        return scaled, state

    return optax.chain(
        optax.GradientTransformation(scale.init, update),
        optax.scale_by_learning_rate(learning_rate),
    )
