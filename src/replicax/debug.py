"""`rx.debug`: looking for what should not be."""

from replicax._src.divergence import ReplicaCheck as ReplicaCheck
from replicax._src.divergence import check_replicas as check_replicas
from replicax._src.divergence import check_replicas_every as check_replicas_every
