"""Options of a data set, and the policies by which it is sharded over workers."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, Self

AUTOTUNE = -1
SHARD_HINT = -1


class AutoShardPolicy(enum.IntEnum):
    """How a data set is divided among workers."""

    OFF = -1
    """Every worker reads all of it."""
    AUTO = 0
    """By file if it is read from files, by data if not."""
    FILE = 1
    """Each worker reads its files: file i goes to worker i mod workers."""
    DATA = 2
    """Each worker takes its part of every batch."""
    HINT = 3
    """`shard(SHARD_HINT, SHARD_HINT)` in the pipeline says where."""


class _Checked:
    """Options that refuse names they do not have, and values of the wrong type, at once."""

    _chosen: set[str]  # what the user has set, be it to the default

    def __post_init__(self) -> None:
        object.__setattr__(self, "_chosen", set())

    def __setattr__(self, name: str, value: object) -> None:
        fields = {field.name: field for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        if name not in fields:
            known = ", ".join(fields)
            raise AttributeError(
                f"{type(self).__name__} has no option {name!r}. The options are: {known}."
            )
        wanted = fields[name].metadata.get("type")
        if wanted is not None and not isinstance(value, wanted):
            raise TypeError(
                f"{type(self).__name__}.{name} must be of {wanted.__name__}; got {value!r}."
            )
        object.__setattr__(self, name, value)
        if hasattr(self, "_chosen"):
            self._chosen.add(name)

    def _take(self, other: Self) -> None:
        """Sets what was set in `other`."""
        default = type(self)()
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(other, field.name)
            if field.name in other._chosen or value != getattr(default, field.name):
                setattr(self, field.name, value)


def _anything() -> Any:
    return dataclasses.field(default_factory=types.SimpleNamespace)


@dataclasses.dataclass
class DistributeOptions(_Checked):
    """Options for distributing: `rx.data.experimental.DistributeOptions`."""

    auto_shard_policy: AutoShardPolicy = dataclasses.field(
        default=AutoShardPolicy.AUTO, metadata={"type": AutoShardPolicy}
    )
    num_devices: int | None = None


@dataclasses.dataclass
class Options(_Checked):
    """Options of a data set, for `dataset.with_options(options)`.

    >>> import replicax as rx
    >>> options = rx.data.Options()
    >>> options.experimental_distribute.auto_shard_policy = (
    ...     rx.data.experimental.AutoShardPolicy.DATA)
    >>> dataset = rx.data.Dataset.range(8).batch(4).with_options(options)

    The others are kept for ported code, and change nothing: pipelines are always deterministic
    here, and nothing is tuned.
    """

    experimental_distribute: DistributeOptions = dataclasses.field(
        default_factory=DistributeOptions, metadata={"type": DistributeOptions}
    )
    deterministic: bool | None = None
    experimental_deterministic: bool | None = None
    autotune: Any = _anything()
    threading: Any = _anything()
    experimental_optimization: Any = _anything()
    experimental_threading: Any = _anything()
    experimental_slack: Any = None
    experimental_external_state_policy: Any = None
    experimental_warm_start: Any = None
    experimental_symbolic_checkpoint: Any = None
    framework_type: Any = None
    dataset_name: Any = None

    def merge(self, options: Options) -> Options:
        """Returns these options, with everything that `options` sets in their place."""
        new, distribute = Options(), DistributeOptions()
        for each in (self, options):
            new._take(each)
            distribute._take(each.experimental_distribute)
        new.experimental_distribute = distribute
        return new
