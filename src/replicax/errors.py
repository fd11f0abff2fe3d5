"""`rx.errors`: exceptions that can be caught by name."""

from replicax._src._errors import AggregationError as AggregationError
from replicax._src._errors import AlreadyExistsError as AlreadyExistsError
from replicax._src._errors import CancelledError as CancelledError
from replicax._src._errors import CheckpointError as CheckpointError
from replicax._src._errors import ClusterConfigError as ClusterConfigError
from replicax._src._errors import DataLossError as DataLossError
from replicax._src._errors import DeviceError as DeviceError
from replicax._src._errors import FailedPreconditionError as FailedPreconditionError
from replicax._src._errors import NotFoundError as NotFoundError
from replicax._src._errors import OutOfRangeError as OutOfRangeError
from replicax._src._errors import PermissionDeniedError as PermissionDeniedError
from replicax._src._errors import PerReplicaValueError as PerReplicaValueError
from replicax._src._errors import PlannedValueError as PlannedValueError
from replicax._src._errors import ReplicaMismatchError as ReplicaMismatchError
from replicax._src._errors import TrappedStepError as TrappedStepError
from replicax._src._errors import UnavailableError as UnavailableError
from replicax._src._errors import WorkerLostError as WorkerLostError
from replicax._src._errors import WorkersMissingError as WorkersMissingError
from replicax._src._errors import WrongContextError as WrongContextError
