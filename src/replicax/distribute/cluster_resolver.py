"""`rx.distribute.cluster_resolver`: where the description of a cluster comes from."""

from replicax._src.cluster.resolvers import ClusterResolver as ClusterResolver
from replicax._src.cluster.resolvers import GCEClusterResolver as GCEClusterResolver
from replicax._src.cluster.resolvers import KubernetesClusterResolver as KubernetesClusterResolver
from replicax._src.cluster.resolvers import (
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from replicax._src.cluster.resolvers import RayClusterResolver as RayClusterResolver
from replicax._src.cluster.resolvers import SimpleClusterResolver as SimpleClusterResolver
from replicax._src.cluster.resolvers import SlurmClusterResolver as SlurmClusterResolver
from replicax._src.cluster.resolvers import TFConfigClusterResolver as TFConfigClusterResolver
from replicax._src.cluster.resolvers import TPUClusterResolver as TPUClusterResolver
from replicax._src.cluster.resolvers import UnionResolver as UnionResolver
