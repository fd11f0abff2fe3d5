"""`rx.errors`: exceptions that can be caught by name."""

from replicax._errors import AggregationError as AggregationError
from replicax._errors import CheckpointError as CheckpointError
from replicax._errors import ClusterConfigError as ClusterConfigError
from replicax._errors import DataLossError as DataLossError
from replicax._errors import DeviceError as DeviceError
from replicax._errors import OutOfRangeError as OutOfRangeError
from replicax._errors import PerReplicaValueError as PerReplicaValueError
from replicax._errors import ReplicaMismatchError as ReplicaMismatchError
from replicax._errors import WorkerLostError as WorkerLostError
from replicax._errors import WorkersMissingError as WorkersMissingError
from replicax._errors import WrongContextError as WrongContextError
