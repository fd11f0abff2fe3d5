"""Where a name of Keras is not what a file needs: what goes with objects of replicax."""

from replicax._src.cli.migrate._lookup import exists
from replicax._src.cli.migrate._reader import Use


class WithReplicax:
    """Says what takes the place of a name of Keras in a file."""

    def __init__(self, has_estimator: bool, trains_own_variables: bool) -> None:
        """Prepares for a file.

        Args:
          has_estimator: it has an Estimator, which takes metrics of replicax.
          trains_own_variables: its optimizers update Variables, which those of Keras do not.
        """
        self._has_estimator = has_estimator
        self._trains_own_variables = trains_own_variables

    def new_name(self, new: str) -> str | None:
        """Returns the name to write for one of Keras; None if somebody has to think."""
        if self._has_estimator and new.startswith("keras.metrics."):
            return f"rx{new[5:]}" if exists(f"rx{new[5:]}") else None
        if self._trains_own_variables and new.startswith("keras.optimizers."):
            return None
        return new

    def advice(self, new: str) -> tuple[str, str]:
        """Returns what to write, and why, where `new_name` knows none."""
        if new.startswith("keras.metrics."):
            return "", "rx.metrics, which an Estimator takes, does not have it"
        optimizer = f"optax.{new.rpartition('.')[2].lower()}"  # optax.adamw is Keras's AdamW
        found = f"rx.Optimizer({optimizer}(...))" if exists(optimizer) else "rx.Optimizer"
        return found, "that of Keras trains Keras's variables"


def is_name_for_keras(use: Use) -> bool:
    """Whether it is that of `keras = tf.keras`."""
    binding = use.defines
    return binding is not None and (binding.local, binding.target) == ("keras", "tf.keras")
