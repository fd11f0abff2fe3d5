"""The workers of a job: who they are, how they meet, and what happens when one is lost.

`_spec.py` and `resolvers/` describe a cluster; `_view.py` checks the description, as far as one
worker can. JAX is not loaded by any of these. `_membership.py` is how a process becomes a worker,
`control/` how workers know of each other, `_runtime.py` what `jax.distributed` is told.
"""

from replicax.cluster._addresses import split_address as split_address
from replicax.cluster._connecting import (
    experimental_connect_to_cluster as experimental_connect_to_cluster,
)
from replicax.cluster._connecting import (
    experimental_connect_to_host as experimental_connect_to_host,
)
from replicax.cluster._membership import Membership as Membership
from replicax.cluster._membership import Series as Series
from replicax.cluster._membership import current_membership as current_membership
from replicax.cluster._membership import join as join
from replicax.cluster._spec import ClusterDef as ClusterDef
from replicax.cluster._spec import ClusterSpec as ClusterSpec
from replicax.cluster._spec import JobDef as JobDef
from replicax.cluster._view import WorkerView as WorkerView
from replicax.cluster._view import checked_cluster as checked_cluster
from replicax.cluster.resolvers import ClusterResolver as ClusterResolver
from replicax.cluster.resolvers import resolver_from_environment as resolver_from_environment
