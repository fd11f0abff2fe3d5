"""`rx.distribute.cluster_resolver`: where the description of a cluster comes from."""

from replicax.cluster.resolvers import ClusterResolver as ClusterResolver
from replicax.cluster.resolvers import GCEClusterResolver as GCEClusterResolver
from replicax.cluster.resolvers import KubernetesClusterResolver as KubernetesClusterResolver
from replicax.cluster.resolvers import (
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from replicax.cluster.resolvers import SimpleClusterResolver as SimpleClusterResolver
from replicax.cluster.resolvers import SlurmClusterResolver as SlurmClusterResolver
from replicax.cluster.resolvers import TFConfigClusterResolver as TFConfigClusterResolver
from replicax.cluster.resolvers import TPUClusterResolver as TPUClusterResolver
from replicax.cluster.resolvers import UnionResolver as UnionResolver
