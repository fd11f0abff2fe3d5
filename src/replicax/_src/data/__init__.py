"""Input pipelines, and what workers and replicas get of them (`distributed/`)."""

from replicax._src.data._dataset import Dataset as Dataset
from replicax._src.data._dataset import cardinality as cardinality
from replicax._src.data._elements import Structure as Structure
from replicax._src.data._file_datasets import ArrayRecordDataset as ArrayRecordDataset
from replicax._src.data._file_datasets import FixedLengthRecordDataset as FixedLengthRecordDataset
from replicax._src.data._file_datasets import ParquetDataset as ParquetDataset
from replicax._src.data._file_datasets import TextLineDataset as TextLineDataset
from replicax._src.data._file_datasets import TFRecordDataset as TFRecordDataset
from replicax._src.data._iterator import DatasetIterator as DatasetIterator
from replicax._src.data._iterator import Optional as Optional
from replicax._src.data._iterator import PositionedIterator as PositionedIterator
from replicax._src.data._iterator import delivery_watchers as delivery_watchers
from replicax._src.data._iterator import live_iterators as live_iterators
from replicax._src.data._iterator import positions_now as positions_now
from replicax._src.data._iterator import refuse_in_trace as refuse_in_trace
from replicax._src.data._node import INFINITE as INFINITE
from replicax._src.data._node import UNKNOWN as UNKNOWN
from replicax._src.data._options import AUTOTUNE as AUTOTUNE
from replicax._src.data._options import SHARD_HINT as SHARD_HINT
from replicax._src.data._options import AutoShardPolicy as AutoShardPolicy
from replicax._src.data._options import DistributeOptions as DistributeOptions
from replicax._src.data._options import Options as Options
