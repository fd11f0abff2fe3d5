"""Older names that still work: what each is called today, and the line to write instead.

One table, for the warning that the first use of a name gives and for the page `docs/old-names.md`,
which `scripts/old_names_page.py` writes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicax._src import _warnings


class OldNameWarning(FutureWarning):
    """An older name was used; the text says what to write instead.

    Not a `DeprecationWarning`: Python shows that to the authors of the main program only, and old
    names are mostly in the other files of a project.
    """


@dataclass(frozen=True)
class OldName:
    """A row of the table.

    Attributes:
      old: the name; an argument ends in "=".
      new: what has taken its place; empty if nothing has.
      line: the line to write instead.
      note: what else to know.
    """

    old: str
    new: str
    line: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """What the warning says."""
        replaced = (
            f"the older name of {self.new}" if self.new else "an older name without a new one"
        )
        written = f"Write: {self.line}" if self.line else ""
        return " ".join(part for part in (f"{self.old} is {replaced}.", self.note, written) if part)


_OPTIONS = "rx.distribute.experimental.CommunicationOptions"

# By the TensorFlow that programs with these names were written for.
OLD_NAMES: dict[str, tuple[OldName, ...]] = {
    "TensorFlow 2.0 to 2.3": (
        OldName("Strategy.experimental_run_v2", "Strategy.run", "strategy.run(fn, args=(x,))"),
        OldName(
            "Strategy.experimental_distribute_datasets_from_function",
            "Strategy.distribute_datasets_from_function",
            "strategy.distribute_datasets_from_function(dataset_fn)",
        ),
        OldName(
            "Strategy.experimental_make_numpy_dataset",
            "rx.data.Dataset.from_tensor_slices",
            "rx.data.Dataset.from_tensor_slices(arrays)",
        ),
        OldName(
            "rx.distribute.experimental.MultiWorkerMirroredStrategy",
            "rx.distribute.MultiWorkerMirroredStrategy",
            "rx.distribute.MultiWorkerMirroredStrategy(cluster_resolver, communication_options="
            f"{_OPTIONS}(implementation=communication))",
        ),
        OldName(
            "rx.distribute.experimental.TPUStrategy",
            "rx.distribute.TPUStrategy",
            "rx.distribute.TPUStrategy(resolver, experimental_device_assignment=device_assignment)",
        ),
        OldName(
            "rx.distribute.experimental.CollectiveCommunication",
            "rx.distribute.experimental.CommunicationImplementation",
            "rx.distribute.experimental.CommunicationImplementation.NCCL",
        ),
        OldName(
            "rx.distribute.experimental.CollectiveHints",
            _OPTIONS,
            f"{_OPTIONS}(bytes_per_pack=50 * 1024 * 1024)",
        ),
        OldName(
            "experimental_hints=",
            "options=",
            f'context.all_reduce("SUM", x, options={_OPTIONS}(bytes_per_pack=50 * 1024 * 1024))',
        ),
    ),
    "TensorFlow 1": (
        OldName(
            "Strategy.experimental_run", "Strategy.run", "strategy.run(fn, args=(next(iterator),))"
        ),
        OldName(
            "Strategy.make_dataset_iterator",
            "Strategy.experimental_distribute_dataset",
            "iterator = iter(strategy.experimental_distribute_dataset(dataset))",
        ),
        OldName(
            "Strategy.make_input_fn_iterator",
            "Strategy.distribute_datasets_from_function",
            "iterator = iter(strategy.distribute_datasets_from_function(input_fn))",
        ),
        OldName(
            "InputIterator.initialize",
            "",
            "iterator = iter(distributed_dataset)",
            "An iterator is ready when it is made; to begin again, make another.",
        ),
        OldName(
            "InputIterator.output_types",
            "InputIterator.element_spec",
            "dtypes = jax.tree.map(lambda spec: spec.dtype, dataset.element_spec)",
        ),
        OldName(
            "InputIterator.output_shapes",
            "InputIterator.element_spec",
            "shapes = jax.tree.map(lambda spec: spec.shape, dataset.element_spec)",
        ),
        OldName(
            "Strategy.configure",
            "",
            "strategy = rx.distribute.MultiWorkerMirroredStrategy(cluster_resolver)",
            "A strategy is told of its cluster when it is made.",
        ),
        OldName(
            "Strategy.colocate_vars_with",
            "StrategyExtended.colocate_vars_with",
            "strategy.extended.colocate_vars_with(variable)",
        ),
        OldName(
            "Strategy.unwrap",
            "Strategy.experimental_local_results",
            "strategy.experimental_local_results(value)",
        ),
        OldName(
            "Strategy.group",
            "",
            note="Leave it out: what the replicas do is done when run returns.",
        ),
        OldName(
            "Strategy.update_config_proto",
            "",
            note="Leave it out: there are no sessions to configure. JAX's own options are set with "
            "jax.config.update.",
        ),
        OldName(
            "StrategyExtended.experimental_make_numpy_dataset",
            "rx.data.Dataset.from_tensor_slices",
            "rx.data.Dataset.from_tensor_slices(arrays)",
        ),
        OldName(
            "StrategyExtended.experimental_run_steps_on_iterator",
            "rx.function(...).steps",
            "rx.function(step).steps(iterator, iterations)",
        ),
        OldName(
            "rx.compat.v1.distribute.get_loss_reduction",
            "rx.distribute.ReduceOp.SUM",
            "rx.distribute.ReduceOp.SUM",
            "Gradients are summed: divide the loss by the global batch size.",
        ),
    ),
}

_by_name: dict[str, OldName] = {row.old: row for rows in OLD_NAMES.values() for row in rows}
_used: set[str] = set()  # the names that were warned of in this process
_lock = threading.RLock()  # threads that use a name at once warn once; a filter may use one itself


def row_of(old: str) -> OldName:
    """Returns the row of a name."""
    return _by_name[old]


def warn_of(old: str) -> None:
    """Warns at the user's line that it uses an older name; once for each name."""
    with _lock:
        if old in _used:
            return
        _warnings.warn(row_of(old).text, category=OldNameWarning)
        _used.add(old)  # not where the warning was raised as an error: then every use is one


def options_or_hints(options: Any, experimental_hints: Any) -> Any:
    """Returns the `options` of a collective, also if they came under their older name."""
    if experimental_hints is None:
        return options
    warn_of("experimental_hints=")
    return experimental_hints if options is None else options


def old_attribute(namespace: str, name: str, found: Mapping[str, Any]) -> Any:
    """Returns what has an older name in a namespace, for the `__getattr__` of that.

    Args:
      namespace: the namespace, as users write it.
      name: the attribute that was asked for.
      found: the values of the older names.
    """
    if name not in found:
        raise AttributeError(f"{namespace} has no attribute {name!r}")
    warn_of(f"{namespace}.{name}")
    return found[name]
