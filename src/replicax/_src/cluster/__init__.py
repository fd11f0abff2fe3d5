"""The workers of a job: who they are, how they meet, and what happens when one is lost.

`_spec.py` and `resolvers/` describe a cluster; `_view.py` checks the description, as far as one
worker can. None of these starts JAX. `_membership.py` is how a process becomes a worker,
`control/` how workers know of each other, `_runtime.py` what `jax.distributed` is told.
"""

from replicax._src.cluster import _ray
from replicax._src.cluster._addresses import reachable_host as reachable_host
from replicax._src.cluster._addresses import split_address as split_address
from replicax._src.cluster._connecting import (
    experimental_connect_to_cluster as experimental_connect_to_cluster,
)
from replicax._src.cluster._connecting import (
    experimental_connect_to_host as experimental_connect_to_host,
)
from replicax._src.cluster._membership import Membership as Membership
from replicax._src.cluster._membership import current_membership as current_membership
from replicax._src.cluster._membership import join as join
from replicax._src.cluster._spec import ClusterDef as ClusterDef
from replicax._src.cluster._spec import ClusterSpec as ClusterSpec
from replicax._src.cluster._spec import JobDef as JobDef
from replicax._src.cluster._view import WorkerView as WorkerView
from replicax._src.cluster._view import checked_cluster as checked_cluster
from replicax._src.cluster.resolvers import ClusterResolver as ClusterResolver
from replicax._src.cluster.resolvers import RayClusterResolver as RayClusterResolver
from replicax._src.cluster.resolvers import resolver_from_environment as resolver_from_environment

connect_to_ray = _ray.connect
imported_ray = _ray.imported
