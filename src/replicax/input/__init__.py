"""Data sets for replicas: sharding, splitting, placing, reading ahead."""

from replicax.input._distributed_dataset import DistributedDataset as DistributedDataset
from replicax.input._distributed_dataset import distributed_dataset as distributed_dataset
from replicax.input._distributed_dataset import (
    distributed_from_function as distributed_from_function,
)
from replicax.input._distributed_iterator import DistributedIterator as DistributedIterator
from replicax.input._options import Exchange as Exchange
from replicax.input._options import InputContext as InputContext
from replicax.input._options import InputLayout as InputLayout
from replicax.input._options import InputOptions as InputOptions
from replicax.input._options import InputReplicationMode as InputReplicationMode
from replicax.input._options import NoOthers as NoOthers
from replicax.input._options import as_input_options as as_input_options
from replicax.input._unevenness import differ as differ
from replicax.input._unevenness import mark_uneven as mark_uneven
from replicax.input._unevenness import shapes_of as shapes_of
