"""What replicax does otherwise than TensorFlow on purpose, and why: the one table of it.

`tf.x.Y` is a name, `tf.x.Y()` what its constructor takes, `tf.x.Y.z` a member of the class. Whole
names that are not there have their reason in the table of `replicax migrate`, which tells it to
those who port a program.
"""

from __future__ import annotations

# Names that are in another place.
MOVED: dict[str, str] = {
    "tf.types.experimental.distributed": "rx.types.experimental",
}

# Classes whose members are those of another one: a reason given there holds for them as well.
SAME_MEMBERS: dict[str, str] = {
    **dict.fromkeys(
        [
            *["tf.distribute.MirroredStrategy", "tf.distribute.MultiWorkerMirroredStrategy"],
            *["tf.distribute.OneDeviceStrategy", "tf.distribute.TPUStrategy"],
            "tf.distribute.experimental.CentralStorageStrategy",
            "tf.distribute.experimental.MultiWorkerMirroredStrategy",
            "tf.distribute.experimental.TPUStrategy",
        ],
        "tf.distribute.Strategy",
    ),
    **dict.fromkeys(
        ["tf.data.FixedLengthRecordDataset", "tf.data.TFRecordDataset", "tf.data.TextLineDataset"],
        "tf.data.Dataset",
    ),
    **{
        f"{place}.{name}": f"{place}.CrossDeviceOps"
        for place in ("tf.distribute", "tf.compat.v1.distribute")
        for name in ("HierarchicalCopyAllReduce", "NcclAllReduce", "ReductionToOneDevice")
    },
    **dict.fromkeys(
        [
            "tf.compat.v1.distribute.MirroredStrategy",
            "tf.compat.v1.distribute.OneDeviceStrategy",
            "tf.compat.v1.distribute.experimental.CentralStorageStrategy",
            "tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy",
            "tf.compat.v1.distribute.experimental.TPUStrategy",
        ],
        "tf.compat.v1.distribute.Strategy",
    ),
    **{
        f"tf.distribute.cluster_resolver.{name}": "tf.distribute.cluster_resolver.ClusterResolver"
        for name in """GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver
        SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver UnionResolver""".split()
    },
    **{
        f"tf.compat.v1.distribute.cluster_resolver.{name}": f"tf.distribute.cluster_resolver.{name}"
        for name in """ClusterResolver GCEClusterResolver KubernetesClusterResolver
        KubernetesExecutableLocation SimpleClusterResolver SlurmClusterResolver
        TFConfigClusterResolver TPUClusterResolver UnionResolver""".split()
    },
}

_OF_TENSORFLOW_1 = "a method of TensorFlow 1: `rx.compat.v1.distribute` has it"
_MADE_BY_OTHERS = "programs do not make it themselves"
_GRAPH = "it is of graphs and sessions; there are none"
_TYPES = "it is of TensorFlow's own tracing types"
_RANDOM_STATE = "the state is a key of JAX and a number of draws; algorithms cannot be chosen"

REASONS: dict[str, str] = {
    # --- strategies
    "tf.distribute.Strategy.colocate_vars_with": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.configure": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.experimental_run": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.group": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.make_dataset_iterator": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.make_input_fn_iterator": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.unwrap": _OF_TENSORFLOW_1,
    "tf.distribute.Strategy.update_config_proto": _OF_TENSORFLOW_1,
    "tf.compat.v1.distribute.StrategyExtended.batch_reduce_to": (
        "TensorFlow has since put `options` before `experimental_hints`; both take the same objects"
    ),
    "tf.compat.v1.distribute.StrategyExtended.reduce_to": (
        "TensorFlow has since put `options` before `experimental_hints`; both take the same objects"
    ),
    **{
        f"tf.distribute.{place}ParameterServerStrategy.{name}": _OF_TENSORFLOW_1
        for place in ("", "experimental.")
        for name in """colocate_vars_with configure experimental_run group make_dataset_iterator
        make_input_fn_iterator unwrap update_config_proto""".split()
    },
    **{
        f"tf.distribute.{name}()": f"{_MADE_BY_OTHERS}: the coordinator's methods return it"
        for name in """coordinator.PerWorkerValue coordinator.RemoteValue
        experimental.coordinator.PerWorkerValues experimental.coordinator.RemoteValue""".split()
    },
    "tf.compat.v1.distribute.experimental.ParameterServerStrategy": (
        "`rx.distribute.ParameterServerStrategy`, with a `ClusterCoordinator`"
    ),
    # --- values and input
    "tf.distribute.DistributedDataset()": f"{_MADE_BY_OTHERS}: `experimental_distribute_dataset`",
    "tf.distribute.DistributedIterator()": f"{_MADE_BY_OTHERS}: `iter(distributed_dataset)`",
    "tf.distribute.DistributedValues()": "it has `values`: a `PerReplica` can be made for a test",
    "tf.types.experimental.distributed.Mirrored()": "it has `values`",
    "tf.types.experimental.distributed.PerReplica()": "it has `values`: one can be made for a test",
    # --- clusters and TPUs
    "tf.distribute.cluster_resolver.TPUClusterResolver.set_tpu_topology": (
        "JAX's devices say where they are: `rx.tpu.experimental.initialize_tpu_system`"
    ),
    "tf.tpu.experimental.HardwareFeature": "it is about embeddings, which are variables here",
    # --- variables and functions
    "tf.Variable.SaveSliceInfo": _GRAPH,
    "tf.Variable.count_up_to": _GRAPH,
    "tf.Variable.eval": "`v.numpy()`",
    "tf.Variable.experimental_ref": "the older name of `ref`",
    "tf.Variable.from_proto": _GRAPH,
    "tf.Variable.get_shape": "`v.shape`, a tuple",
    "tf.Variable.graph": _GRAPH,
    "tf.Variable.initial_value": _GRAPH,
    "tf.Variable.initialized_value": _GRAPH,
    "tf.Variable.initializer": "variables are ready when they are made",
    "tf.Variable.load": "`v.assign(value)`",
    "tf.Variable.op": _GRAPH,
    "tf.Variable.set_shape": "shapes are known",
    "tf.Variable.to_proto": _GRAPH,
    "tf.TensorSpec.cast": _TYPES,
    "tf.TensorSpec.experimental_as_proto": _TYPES,
    "tf.TensorSpec.experimental_from_proto": _TYPES,
    "tf.TensorSpec.experimental_type_proto": _TYPES,
    "tf.TensorSpec.flatten": _TYPES,
    "tf.TensorSpec.from_tensors": _TYPES,
    "tf.TensorSpec.is_subtype_of": _TYPES,
    "tf.TensorSpec.most_specific_common_supertype": _TYPES,
    "tf.TensorSpec.most_specific_compatible_type": _TYPES,
    "tf.TensorSpec.placeholder_value": _TYPES,
    "tf.TensorSpec.to_tensors": _TYPES,
    "tf.TensorSpec.value_type": _TYPES,
    "tf.experimental.Optional()": f"{_MADE_BY_OTHERS}: `Optional.from_value`, `Optional.empty`",
    # --- data sets
    "tf.data.Dataset()": f"{_MADE_BY_OTHERS}: `from_tensor_slices` and the like",
    "tf.data.Dataset.fingerprint": "it is of TensorFlow's graph of the data set",
    "tf.data.Dataset.range": "its keywords, `output_type` and `name`, are written out; no others",
    "tf.data.Dataset.sparse_batch": "arrays are dense: `padded_batch`",
    "tf.data.Iterator()": f"{_MADE_BY_OTHERS}: `iter(dataset)`",
    "tf.data.Options.experimental_service": "there is no input service",
    "tf.io.TFRecordOptions.compression_type_map": "of TensorFlow 1: `compression_type` is the name",
    "tf.io.TFRecordOptions.get_compression_type_string": (
        "of TensorFlow 1: `compression_type` is the name"
    ),
    # --- random numbers and summaries
    "tf.random.Generator()": f"`seed` and `name`: {_RANDOM_STATE}",
    "tf.random.Generator.algorithm": _RANDOM_STATE,
    "tf.random.Generator.from_key_counter": _RANDOM_STATE,
    "tf.random.Generator.from_state": _RANDOM_STATE,
    "tf.random.Generator.key": _RANDOM_STATE,
    "tf.random.Generator.make_seeds": "`next_key` gives keys for `jax.random`",
    "tf.random.Generator.reset": _RANDOM_STATE,
    "tf.random.Generator.reset_from_key_counter": _RANDOM_STATE,
    "tf.random.Generator.uniform_full_int": "32 bits by default: JAX has 64 only if asked",
    "tf.summary.SummaryWriter()": f"{_MADE_BY_OTHERS}: `rx.summary.create_file_writer`",
    "tf.summary.create_file_writer()": "nothing for graphs (`experimental_trackable`) and DTensor",
}

# Names on the pages of the reference that TensorFlow itself has never had under them.
MENTIONED: dict[str, str] = {
    "tf.distribute.InputIterator": "what `make_dataset_iterator` returns",
    "tf.distribute.experimental_make_numpy_dataset": "`Strategy.experimental_make_numpy_dataset`",
    "tf.saved_model.save": "`rx.train.Checkpoint` for variables, `jax.export` for programs",
}


def reason_of(name: str) -> str:
    """The reason that is given for a name, here or for the class that has its members from."""
    owner, _, member = name.rpartition(".")
    other = f"{SAME_MEMBERS[owner]}.{member}" if owner in SAME_MEMBERS else ""
    return REASONS.get(name) or REASONS.get(other, "")
