"""`rx.data.experimental`: names that TensorFlow keeps there."""

from replicax._src.data import AUTOTUNE as AUTOTUNE
from replicax._src.data import INFINITE as INFINITE_CARDINALITY
from replicax._src.data import SHARD_HINT as SHARD_HINT
from replicax._src.data import UNKNOWN as UNKNOWN_CARDINALITY
from replicax._src.data import AutoShardPolicy as AutoShardPolicy
from replicax._src.data import DistributeOptions as DistributeOptions
from replicax._src.data import cardinality as cardinality

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "DistributeOptions",
    "cardinality",
]
