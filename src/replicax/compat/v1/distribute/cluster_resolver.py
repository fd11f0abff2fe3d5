"""`rx.compat.v1.distribute.cluster_resolver`: the same as `rx.distribute.cluster_resolver`."""

from replicax.distribute.cluster_resolver import ClusterResolver as ClusterResolver
from replicax.distribute.cluster_resolver import GCEClusterResolver as GCEClusterResolver
from replicax.distribute.cluster_resolver import (
    KubernetesClusterResolver as KubernetesClusterResolver,
)
from replicax.distribute.cluster_resolver import (
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from replicax.distribute.cluster_resolver import SimpleClusterResolver as SimpleClusterResolver
from replicax.distribute.cluster_resolver import SlurmClusterResolver as SlurmClusterResolver
from replicax.distribute.cluster_resolver import TFConfigClusterResolver as TFConfigClusterResolver
from replicax.distribute.cluster_resolver import TPUClusterResolver as TPUClusterResolver
from replicax.distribute.cluster_resolver import UnionResolver as UnionResolver
