"""Data sets for replicas: sharding, splitting, placing, reading ahead."""

from replicax._src.data.distributed._distributed_dataset import (
    DistributedDataset as DistributedDataset,
)
from replicax._src.data.distributed._distributed_dataset import (
    distributed_dataset as distributed_dataset,
)
from replicax._src.data.distributed._distributed_dataset import (
    distributed_from_function as distributed_from_function,
)
from replicax._src.data.distributed._distributed_iterator import (
    DistributedIterator as DistributedIterator,
)
from replicax._src.data.distributed._distributed_iterator import differ as differ
from replicax._src.data.distributed._distributed_iterator import mark_uneven as mark_uneven
from replicax._src.data.distributed._distributed_iterator import shapes_of as shapes_of
from replicax._src.data.distributed._options import Exchange as Exchange
from replicax._src.data.distributed._options import InputContext as InputContext
from replicax._src.data.distributed._options import InputLayout as InputLayout
from replicax._src.data.distributed._options import InputOptions as InputOptions
from replicax._src.data.distributed._options import InputReplicationMode as InputReplicationMode
from replicax._src.data.distributed._options import NoOthers as NoOthers
from replicax._src.data.distributed._options import as_input_options as as_input_options
from replicax._src.data.distributed._placing import Placement as Placement
from replicax._src.data.distributed._placing import Shares as Shares
