"""`rx.data.experimental`: names that TensorFlow keeps there."""

from replicax.data._dataset import cardinality as cardinality
from replicax.data._node import INFINITE as INFINITE_CARDINALITY
from replicax.data._node import UNKNOWN as UNKNOWN_CARDINALITY
from replicax.data._options import AUTOTUNE as AUTOTUNE
from replicax.data._options import SHARD_HINT as SHARD_HINT
from replicax.data._options import AutoShardPolicy as AutoShardPolicy
from replicax.data._options import DistributeOptions as DistributeOptions

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "DistributeOptions",
    "cardinality",
]
