"""Where the description of a cluster comes from: one file for each source."""

from replicax.cluster.resolvers._environment import (
    resolver_from_environment as resolver_from_environment,
)
from replicax.cluster.resolvers._gce import GCEClusterResolver as GCEClusterResolver
from replicax.cluster.resolvers._kubernetes import (
    KubernetesClusterResolver as KubernetesClusterResolver,
)
from replicax.cluster.resolvers._kubernetes import (
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from replicax.cluster.resolvers._resolver import ClusterResolver as ClusterResolver
from replicax.cluster.resolvers._simple import SimpleClusterResolver as SimpleClusterResolver
from replicax.cluster.resolvers._simple import UnionResolver as UnionResolver
from replicax.cluster.resolvers._slurm import SlurmClusterResolver as SlurmClusterResolver
from replicax.cluster.resolvers._tf_config import (
    TFConfigClusterResolver as TFConfigClusterResolver,
)
from replicax.cluster.resolvers._tpu import TPUClusterResolver as TPUClusterResolver
from replicax.cluster.resolvers._tpu import TPUSystemMetadata as TPUSystemMetadata
