"""`RunConfig`: how an estimator runs, with TensorFlow's names and defaults."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from replicax._src.cluster import ClusterSpec
from replicax._src.cluster.resolvers import TFConfigClusterResolver

_UNSET: Any = "<default>"
_DEFAULT_SECONDS = 600


@dataclasses.dataclass(frozen=True, eq=False, kw_only=False)
class RunConfig:
    """How an `Estimator` runs: where it saves, how often, and on which replicas.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> config = rx.compat.v1.estimator.RunConfig(train_distribute=strategy)
    >>> config.save_checkpoints_steps, config.save_checkpoints_secs
    (None, 600)
    >>> config = config.replace(save_checkpoints_steps=50)
    >>> config.save_checkpoints_steps, config.save_checkpoints_secs
    (50, None)

    Args:
      model_dir: where checkpoints go; by default what the estimator says.
      tf_random_seed: for `model_fn`, which makes its keys from it; it has no effect by itself.
      save_summary_steps: kept for ported code; there are no summaries.
      save_checkpoints_steps: how many steps lie between two checkpoints.
      save_checkpoints_secs: or how many seconds; 600 if neither is given. If both are None, nothing
        is saved.
      session_config: kept for ported code.
      keep_checkpoint_max: how many checkpoints to keep; 0 or None for all.
      keep_checkpoint_every_n_hours: of those that would be removed, keep one in so many hours.
      log_step_count_steps: how often the loss goes to the log (`logging`, named
        "replicax.estimator").
      train_distribute: the strategy to train with.
      device_fn: must be None.
      protocol: kept for ported code.
      eval_distribute: the strategy to evaluate with; without one, evaluation runs on one device.
      experimental_distribute: must be None.
      experimental_max_worker_delay_secs: kept for ported code.
      session_creation_timeout_secs: kept for ported code.
      checkpoint_save_graph_def: kept for ported code.
    """

    model_dir: str | os.PathLike[str] | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: Any = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: int | None = None
    session_creation_timeout_secs: int = 7200
    checkpoint_save_graph_def: bool = True

    def __post_init__(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is _UNSET and seconds is _UNSET:
            seconds = _DEFAULT_SECONDS
        steps, seconds = (None if each is _UNSET else each for each in (steps, seconds))
        if steps is not None and seconds is not None:
            raise ValueError(
                "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set: give one "
                f"of them; got {steps} steps and {seconds} seconds."
            )
        object.__setattr__(self, "save_checkpoints_steps", steps)
        object.__setattr__(self, "save_checkpoints_secs", seconds)
        if self.model_dir is not None:
            object.__setattr__(self, "model_dir", os.fspath(self.model_dir))
            if not self.model_dir:
                raise ValueError("`model_dir` is an empty text. Pass a directory, or None.")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"`{name}` must be at least {least}; got {value!r}.")
        for name in ("train_distribute", "eval_distribute"):
            strategy = getattr(self, name)
            if strategy is not None and not hasattr(strategy, "num_replicas_in_sync"):
                raise TypeError(
                    f"`{name}` must be a strategy, such as rx.distribute.MirroredStrategy(); got "
                    f"{strategy!r}."
                )
        if self.device_fn is not None or self.experimental_distribute is not None:
            raise ValueError(
                "`device_fn` and `experimental_distribute` are not supported. What runs where is "
                "the strategy's business: RunConfig(train_distribute=..., eval_distribute=...)."
            )

    def replace(self, **kwargs: Any) -> RunConfig:
        """Returns a copy with other values; one way to time checkpoints replaces the other."""
        names = {field.name for field in dataclasses.fields(self)}
        if unknown := sorted(kwargs.keys() - names):
            raise ValueError(
                f"RunConfig has no property {', '.join(unknown)} that could be replaced. There "
                f"are: {', '.join(sorted(names))}."
            )
        if kwargs.keys() & _TIMES:
            kwargs = dict.fromkeys(_TIMES) | kwargs
        return dataclasses.replace(self, **kwargs)

    # ------------------------------------------------------------------ from TF_CONFIG

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster that `TF_CONFIG` describes; empty without it."""
        return TFConfigClusterResolver().cluster_spec()

    @property
    def task_type(self) -> str:
        """The task of this process: "worker" without `TF_CONFIG`."""
        return TFConfigClusterResolver().task_type or "worker"

    @property
    def task_id(self) -> int:
        """The number of this process among those of its type."""
        return TFConfigClusterResolver().task_id or 0

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker, which saves."""
        if any(job in ("chief", "master") for job in self.cluster_spec.jobs):
            return self.task_type in ("chief", "master")
        return self.task_type == "worker" and self.task_id == 0

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers, the chief among them."""
        jobs = self.cluster_spec.as_dict()
        return sum(len(jobs.get(name, ())) for name in ("chief", "master", "worker")) or 1


_TIMES = ("save_checkpoints_steps", "save_checkpoints_secs")
_LEAST = {
    "save_checkpoints_steps": 0,
    "save_checkpoints_secs": 0,
    "save_summary_steps": 0,
    "keep_checkpoint_max": 0,
    "keep_checkpoint_every_n_hours": 0,
    "log_step_count_steps": 1,
}
