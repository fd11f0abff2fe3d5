"""Where the description of a cluster comes from: one file for each source."""

from replicax._src.cluster.resolvers._environment import (
    resolver_from_environment as resolver_from_environment,
)
from replicax._src.cluster.resolvers._gce import GCEClusterResolver as GCEClusterResolver
from replicax._src.cluster.resolvers._kubernetes import (
    KubernetesClusterResolver as KubernetesClusterResolver,
)
from replicax._src.cluster.resolvers._kubernetes import (
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from replicax._src.cluster.resolvers._ray import RayClusterResolver as RayClusterResolver
from replicax._src.cluster.resolvers._resolver import ClusterResolver as ClusterResolver
from replicax._src.cluster.resolvers._simple import SimpleClusterResolver as SimpleClusterResolver
from replicax._src.cluster.resolvers._simple import UnionResolver as UnionResolver
from replicax._src.cluster.resolvers._slurm import SlurmClusterResolver as SlurmClusterResolver
from replicax._src.cluster.resolvers._tf_config import (
    TFConfigClusterResolver as TFConfigClusterResolver,
)
from replicax._src.cluster.resolvers._tpu import TPUClusterResolver as TPUClusterResolver
from replicax._src.cluster.resolvers._tpu import TPUSystemMetadata as TPUSystemMetadata
