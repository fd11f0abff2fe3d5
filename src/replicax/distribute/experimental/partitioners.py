"""`rx.distribute.experimental.partitioners`: into how many parts variables are cut."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.parameter_servers import FixedShardsPartitioner as FixedShardsPartitioner
from replicax._src.parameter_servers import MaxSizePartitioner as MaxSizePartitioner
from replicax._src.parameter_servers import MinSizePartitioner as MinSizePartitioner
from replicax._src.parameter_servers import Partitioner as Partitioner

_name_publicly(__name__)
