"""Whether the copies of variables are equal on all replicas and workers."""

from replicax._src.divergence._check import ReplicaCheck as ReplicaCheck
from replicax._src.divergence._check import check_replicas as check_replicas
from replicax._src.divergence._check import check_replicas_every as check_replicas_every
from replicax._src.divergence._fingerprints import sum_of_bits as sum_of_bits
