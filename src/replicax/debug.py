"""`rx.debug`: looking for what should not be."""

from replicax.checkpoints._divergence import ReplicaCheck as ReplicaCheck
from replicax.checkpoints._divergence import check_replicas as check_replicas
from replicax.checkpoints._divergence import check_replicas_every as check_replicas_every
