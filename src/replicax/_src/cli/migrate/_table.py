"""What of TensorFlow is what in replicax: the table of names, as data.

Names are written as users write them after `import tensorflow as tf`, `import replicax as rx`,
`import jax.numpy as jnp`, `import keras`. A name of `tf.compat.v1` is looked up as it is, and then
as that of `tf`. Calls that are rewritten are in `_calls_table.py`, methods in `_objects_table.py`.
`_lookup.py` reads the tables. Older names of what replicax has are in `_src/_old_names.py`.
"""

import re
from typing import NamedTuple, final

from replicax._src.cli.migrate._rows import pairs, said

# --- names that are only spelled differently -----------------------------------------------------

# Where replicax and Keras 3 have the same names. What is there is asked of them: `tf.data.Dataset`
# is `rx.data.Dataset` because there is one, unless the name has a line of its own below.
PLACES: dict[str, str] = {
    "tf.estimator": "rx.compat.v1.estimator",
    "tf.flags": "absl_flags",
    "tf.logging": "absl_logging",
    "tf.keras": "keras",
    "tf": "rx",
}

# tf.NAME is jnp.NAME: arguments of functions and signatures.
DTYPES = """bfloat16 complex128 complex64 float16 float32 float64 int16 int32 int64 int8 uint16
    uint32 uint64 uint8"""

RENAMED = dict(
    pairs("""
    tf.NAME -> rx.compat.v1.NAME | ConfigProto GPUOptions GraphOptions OptimizerOptions;
    tf.NAME -> rx.io.NAME | FixedLenFeature FixedLenSequenceFeature SparseTensor VarLenFeature
        parse_example parse_single_example;
    tf.Tensor -> jax.Array; tf.bool -> jnp.bool_; tf.double -> jnp.float64; tf.half -> jnp.float16;
    tf.newaxis -> None; tf.compat.v1.data.make_one_shot_iterator -> iter;
    tf.config.experimental.VirtualDeviceConfiguration -> rx.config.LogicalDeviceConfiguration;
    tf.config.experimental.NAME -> rx.config.NAME | list_logical_devices list_physical_devices;
    tf.config.experimental.set_virtual_device_configuration
        -> rx.config.set_logical_device_configuration;
    tf.data.experimental.NAME -> rx.data.NAME | AUTOTUNE INFINITE_CARDINALITY UNKNOWN_CARDINALITY;
    tf.data.experimental.Optional -> rx.experimental.Optional;
    tf.errors.AlreadyExistsError -> FileExistsError; tf.errors.InvalidArgumentError -> ValueError;
    tf.errors.NotFoundError -> FileNotFoundError;
    tf.errors.PermissionDeniedError -> PermissionError;
    tf.constant_initializer -> keras.initializers.Constant;
    tf.ones_initializer -> keras.initializers.Ones;
    tf.zeros_initializer -> keras.initializers.Zeros;
    tf.random_normal_initializer -> keras.initializers.RandomNormal;
    tf.random_uniform_initializer -> keras.initializers.RandomUniform;
    tf.layers.NAME -> keras.layers.NAME | BatchNormalization Conv2D Dense Dropout Flatten
        MaxPooling2D;
    tf.keras.__version__ -> keras.__version__;
    tf.keras.experimental.NAME -> keras.optimizers.schedules.NAME | CosineDecay CosineDecayRestarts;
    tf.keras.NAME.SidecarEvaluator -> rx.train.SidecarEvaluator | experimental utils;
    tf.keras.losses.Reduction.NAME -> "sum_over_batch_size" | AUTO SUM_OVER_BATCH_SIZE;
    tf.keras.losses.Reduction.NONE -> None; tf.keras.losses.Reduction.SUM -> "sum";
    tf.python_io.NAME -> rx.io.NAME | TFRecordOptions TFRecordWriter;
    tf.random.experimental.NAME -> rx.random.NAME | Generator get_global_generator
        set_global_generator;
    tf.random_NAME -> rx.random.NAME | normal shuffle uniform;
    tf.truncated_normal -> rx.random.truncated_normal;
    tf.NAME -> rx.random.set_seed | random.set_random_seed set_random_seed;
    tf.sparse.NAME -> rx.io.NAME | SparseTensor to_dense;
    tf.train.NAME -> rx.compat.v1.estimator.NAME | CheckpointSaverListener
        NanLossDuringTrainingError SessionRunContext SessionRunHook SessionRunValues;
    tf.types.experimental.distributed.NAME -> rx.types.experimental.NAME | Mirrored PerReplica;
    tfds.Split.TEST -> "test"; tfds.Split.TRAIN -> "train"; tfds.Split.VALIDATION -> "validation";
    """)
)

# tf.keras.losses.NAME and tf.keras.metrics.NAME: short names of functions, also in capitals.
SHORT_LOSSES = dict(
    pairs("""
    NAME -> kl_divergence | kld kullback_leibler_divergence; logcosh -> log_cosh;
    mae -> mean_absolute_error; mape -> mean_absolute_percentage_error; mse -> mean_squared_error;
    msle -> mean_squared_logarithmic_error;
    """)
)

# What is left in Keras 3 of places that it has emptied; for where Keras cannot be asked.
LEFT_IN_KERAS: dict[str, str] = {
    "tf.keras.backend": """backend clear_session epsilon floatx get_uid image_data_format
    is_float_dtype is_int_dtype is_keras_tensor result_type set_epsilon set_floatx
    set_image_data_format standardize_dtype""",
    "tf.keras.preprocessing.image": "array_to_img img_to_array load_img save_img smart_resize",
    "tf.keras.preprocessing.sequence": "pad_sequences",
    "tf.keras.wrappers": "SKLearnClassifier SKLearnRegressor SKLearnTransformer",
}

# Calls that are not needed any more: the statement goes.
NOT_NEEDED = """tf.compat.v1.enable_eager_execution tf.compat.v1.enable_resource_variables
    tf.compat.v1.enable_v2_behavior tf.compat.v1.enable_v2_tensorshape
    tf.compat.v1.logging.set_verbosity tf.config.experimental.set_memory_growth
    tf.config.optimizer.set_jit
    tf.autograph.experimental.set_loop_options tf.autograph.set_verbosity
    tf.config.set_soft_device_placement tf.debugging.set_log_device_placement
    tf.enable_eager_execution tf.enable_resource_variables
    tf.enable_v2_behavior tf.logging.set_verbosity"""

# Keywords that have another name, by what is called.
KEYWORDS: dict[str, dict[str, str]] = {
    "keras.Variable": {"initial_value": "initializer"},
    "keras.optimizers.*": {"lr": "learning_rate"},
    "rx.distribute.TPUStrategy": {"device_assignment": "experimental_device_assignment"},
    "rx.function": {
        "experimental_compile": "jit_compile",
        "experimental_relax_shapes": "reduce_retracing",
    },
}

# Keywords that are taken, and refused or passed over when the call runs.
REFUSED: dict[str, dict[str, str]] = {
    "keras.Variable": {
        "aggregation": 'in Keras it is a text: "mean", "sum", "only_first_replica"',
        "synchronization": 'in Keras it is a text: "on_read"',
    },
    "keras.Model.save": {"save_format": "leave it out: the ending of the name says it"},
    "keras.optimizers.*": {"decay": "a rate of keras.optimizers.schedules.InverseTimeDecay"},
}

# --- what somebody has to think about ------------------------------------------------------------

# A name that ends in `.*` stands for all that is below it and has no line of its own.
THOUGHT = said("""
tf.AggregationMethod tf.data.experimental.assert_cardinality tf.no_op tf.tpu.XLAOptions
    tf.train.CheckpointOptions tf.tuple: leave it out
tf.DType tf.as_dtype: jnp.dtype
tf.UnconnectedGradients: leave it out: gradients of what is not used are zeros
tf.VERSION tf.__version__ tf.version.*: leave the question out, with what is for TensorFlow 1; to
    show a version, rx.__version__
tf.as_string: str(x), outside compiled functions
tf.assert_equal tf.assert_greater tf.assert_less tf.assert_rank tf.Assert tf.debugging.*: assert,
    outside compiled functions; jax.experimental.checkify there
tf.bitwise.*: jnp.bitwise_and and the like
tf.GradientTape: make the block a function, loss_fn, that returns the loss
tf.Module: a plain class; list its variables yourself
tf.TensorArray: a list, or the stacked results of jax.lax.scan
tf.TensorShape: a tuple
tf.TypeSpec: rx.TensorSpec, or the element_spec of a data set
tf.assign: variable.assign(value)
tf.assign_add: variable.assign_add(value)
tf.assign_sub: variable.assign_sub(value)
tf.autograph.*: compiled functions are traced: no Python if or while on arrays
tf.bitcast: jax.lax.bitcast_convert_type
tf.boolean_mask: array[mask], outside compiled functions; jnp.where there
tf.case: jax.lax.switch
tf.clip_by_global_norm: gradients, _ = optax.clip_by_global_norm(limit).update(gradients,
    optax.EmptyState()) in the replica, as before; or global_clipnorm= of the optimizer, which
    clips the sum of the replicas' gradients, as on one device
tf.clip_by_norm: divide by jnp.maximum(1, norm / limit)
tf.colocate_with: leave it out; variables: strategy.extended.colocate_vars_with
tf.config.*: leave it out, or see rx.config and jax.config
tf.config.experimental.enable_op_determinism: leave it out; on GPUs set
    XLA_FLAGS=--xla_gpu_deterministic_ops=true
tf.config.experimental.set_memory_growth: leave it out; to take memory as it is needed set
    XLA_PYTHON_CLIENT_PREALLOCATE=false
tf.config.experimental.set_visible_devices tf.config.set_visible_devices: name the devices to the
    strategy, or set CUDA_VISIBLE_DEVICES
tf.config.experimental_run_functions_eagerly tf.config.run_functions_eagerly: leave out rx.function
    to run eagerly
tf.config.set_soft_device_placement: leave it out: a device that is not there is an error
tf.control_dependencies tf.group: leave it out: things happen in the order of the lines
tf.data.*: rx.data does not have it
tf.data.experimental.enumerate_dataset: dataset.enumerate()
tf.data.experimental.get_single_element: next(iter(dataset))
tf.data.experimental.get_structure tf.compat.v1.data.get_output_classes
    tf.compat.v1.data.get_output_shapes tf.compat.v1.data.get_output_types: dataset.element_spec
tf.data.experimental.map_and_batch: dataset.map(f).batch(n)
tf.data.experimental.parallel_interleave: dataset.interleave(f)
tf.data.experimental.prefetch_to_device: leave it out: strategies put data on devices
tf.data.experimental.shuffle_and_repeat: dataset.shuffle(n).repeat()
tf.data.experimental.unbatch: dataset.unbatch()
tf.compat.v1.data.make_initializable_iterator: iter(dataset); nothing is initialized
tf.compat.v1.random_normal_initializer: keras.initializers.RandomNormal(stddev=1.0)
tf.compat.v1.random_uniform_initializer: keras.initializers.RandomUniform(0.0, 1.0)
tf.dtensor.* tf.experimental.dtensor.*: rx.Variable(..., layout=...), or a
    rx.distribute.StateLayout
tf.ensure_shape: leave it out: shapes are known
tf.errors.*: ValueError, TypeError or OSError; see rx.errors
tf.executing_eagerly: True outside compiled functions
tf.foldl: jax.lax.scan
tf.gather_nd: array[tuple(jnp.moveaxis(indices, -1, 0))]
tf.get_logger tf.logging.*: Python's logging
tf.get_static_value: np.asarray(x), outside compiled functions
tf.get_variable: rx.Variable(initial_value, name=...), kept by you
tf.global_variables_initializer: leave it out: variables are ready when they are made
tf.gradients: rx.grad(loss_fn, variables)
tf.identity: leave it out: arrays do not change
tf.image.*: rx.image does not have it: NumPy in dataset.map, or jax.image
tf.init_scope: leave it out, or move the lines out of the compiled function
tf.initializers.*: keras.initializers
tf.io.*: rx.io does not have it: Python and NumPy in dataset.map
tf.io.decode_csv: line.split(b",")
tf.io.parse_tensor: np.frombuffer(...).reshape(...)
tf.io.serialize_tensor: array.tobytes()
tf.is_tensor: isinstance(x, jax.Array)
tf.keras.* tf.keras.experimental.*: Keras 3 does not have it
tf.keras.backend.*: see keras.ops, and jnp
tf.keras.backend.get_session tf.keras.backend.set_session: leave it out: there are no sessions
tf.keras.backend.get_value: variable.numpy()
tf.keras.backend.learning_phase: the argument training= of call
tf.keras.backend.set_value: variable.assign(value); optimizer.learning_rate = value
tf.keras.layers.CuDNNGRU: keras.layers.GRU
tf.keras.layers.CuDNNLSTM: keras.layers.LSTM
tf.keras.layers.DenseFeatures: make the features in dataset.map
tf.keras.layers.RandomHeight tf.keras.layers.RandomWidth: keras.layers.RandomZoom
tf.keras.layers.StringLookup: it needs TensorFlow: a dict in dataset.map
tf.keras.layers.SyncBatchNormalization: keras.layers.BatchNormalization(synchronized=True)
tf.keras.layers.TextVectorization: it needs TensorFlow: Python in dataset.map
tf.keras.layers.ThresholdedReLU: keras.layers.ReLU(threshold=theta)
tf.keras.losses.Reduction: None, "sum" or "sum_over_batch_size"
tf.keras.mixed_precision.experimental.*: keras.mixed_precision.set_global_policy(name)
tf.keras.preprocessing.image_dataset_from_directory
    tf.keras.preprocessing.text_dataset_from_directory
    tf.keras.preprocessing.timeseries_dataset_from_array
    tf.keras.utils.image_dataset_from_directory tf.keras.utils.text_dataset_from_directory
    tf.keras.utils.timeseries_dataset_from_array: it needs TensorFlow: rx.data.Dataset, with
    list_files and map
tf.keras.preprocessing.image.*: layers such as keras.layers.RandomFlip, or dataset.map
tf.keras.preprocessing.sequence.*: NumPy, and rx.data.Dataset.from_generator
tf.keras.preprocessing.text.*: Python in dataset.map
tf.keras.premade.*: a model of keras.layers
tf.keras.utils.audio_dataset_from_directory: it needs TensorFlow: rx.data.Dataset
tf.keras.utils.experimental.*: coordinator.create_per_worker_dataset, in a loop of your own
tf.keras.utils.multi_gpu_model: make the model in the scope of a MirroredStrategy
tf.keras.wrappers.*: keras.wrappers.SKLearnClassifier and SKLearnRegressor
tf.layers.*: keras.layers: make the layers in the scope, call them in the step
tf.linalg.*: see jnp.linalg and jax.scipy.linalg
tf.lookup.*: a dict in dataset.map
tf.losses.*: keras.losses, whose functions return one loss for each row
tf.math.*: see jnp and jax.scipy.special
tf.metrics.*: a metric of keras.metrics, with update_state and result
tf.nest.*: jax.tree
tf.nest.flatten: jax.tree.leaves(structure)
tf.nest.map_structure: jax.tree.map(f, arrays, variables): arrays first
tf.nest.pack_sequence_as: jax.tree.unflatten(jax.tree.structure(structure), leaves)
tf.nn.*: see jax.nn and jnp
tf.nn.batch_normalization: (x - mean) * scale / jnp.sqrt(variance + epsilon) + offset
tf.nn.dropout: jax.random.bernoulli(generator.next_key(), keep, x.shape) * x / keep
tf.nn.l2_normalize: x / jnp.linalg.norm(x, axis=axis, keepdims=True)
tf.nn.moments: jnp.mean and jnp.var
tf.numpy_function tf.py_func tf.py_function: call the function: dataset.map takes any Python
tf.print: jax.debug.print("{}", x), or print outside of functions
tf.profiler.*: jax.profiler
tf.random.*: a method of rx.random.Generator, or jax.random with generator.next_key()
tf.raw_ops.*: functions of jnp and jax.lax
tf.saturate_cast: jnp.clip(x, jnp.iinfo(dtype).min, jnp.iinfo(dtype).max).astype(dtype)
tf.sequence_mask: jnp.arange(maximum) < lengths[..., None]
tf.strided_slice: array[begin:end:strides]
tf.scatter_nd: jnp.zeros(shape).at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates)
tf.set_random_seed: rx.random.Generator.from_seed(seed), and seed= of dataset.shuffle
tf.signal.*: see jnp.fft
tf.slice: array[begin : begin + size]
tf.sparse.*: rx.io.SparseTensor has indices, values and dense_shape
tf.strings.*: methods of bytes, in dataset.map
tf.summary.*: rx.summary does not have it
tf.tensor_scatter_nd_add: array.at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates)
tf.tensor_scatter_nd_max: array.at[tuple(jnp.moveaxis(indices, -1, 0))].max(updates)
tf.tensor_scatter_nd_min: array.at[tuple(jnp.moveaxis(indices, -1, 0))].min(updates)
tf.tensor_scatter_nd_sub: array.at[tuple(jnp.moveaxis(indices, -1, 0))].add(-updates)
tf.tensor_scatter_nd_update: array.at[tuple(jnp.moveaxis(indices, -1, 0))].set(updates)
tf.test.*: unittest or pytest, and numpy.testing
tf.timestamp: time.time()
tf.train.*: see rx.train and optax
tf.train.Saver: rx.train.Checkpoint(name=variable, ...)
tf.train.get_global_step tf.train.get_or_create_global_step: optimizer.iterations
tf.trainable_variables: keep a list of the variables that you make
tf.types.*: jax.typing.ArrayLike, jax.Array
tf.unique_with_counts: jnp.unique(x, return_counts=True)
tf.unstack: list(array)
tf.variable_scope: leave it out: variables are kept by you
tf.xla.*: jax.jit and jax.lax
tfds.*: strategies take a tf.data data set as it is; without TensorFlow:
    rx.data.Dataset.from_source(tfds.data_source(name, split=split))
""")

# --- what there is nothing for -------------------------------------------------------------------

UNSUPPORTED = said("""
tf.Graph tf.disable_eager_execution tf.disable_v2_behavior tf.get_default_graph
    tf.reset_default_graph: there are no graphs: lines run when they are reached
tf.InteractiveSession tf.Session tf.train.MonitoredTrainingSession: there are no sessions: call the
    functions
tf.RaggedTensor tf.ragged.*: arrays have one shape: pad, as dataset.padded_batch does
tf.contrib.*: it is gone from TensorFlow as well
tf.data.experimental.service.*: there is no input service
tf.distribute.Server tf.train.Server: replicax launch, or a ParameterServerStrategy, starts the
    workers
tf.distribute.experimental.PreemptionWatcher:
    rx.distribute.experimental.PreemptionCheckpointHandler saves and leaves
tf.distribute.experimental.rpc.*: workers do not call each other
tf.estimator.*: only Estimator, with a model_fn of your own, is here
tf.feature_column.*: make the features in dataset.map
tf.keras.estimator.*: model.fit; or an Estimator with a model_fn of your own
tf.lite.*: jax.export has what can be exported
tf.placeholder: there are no graphs: pass the value as an argument
tf.python.*: a private name of TensorFlow: use the public one first
tf.quantization.* tf.tpu.experimental.HardwareFeature: replicax has nothing for it
tf.queue.*: a rx.data.Dataset
tf.saved_model.*: rx.train.Checkpoint saves variables; jax.export programs
tf.tpu.experimental.embedding.*: an embedding is a variable, split by a layout
tf.train.SyncReplicasOptimizer: optimizers sum gradients over the replicas by themselves
tf.train.replica_device_setter: ParameterServerStrategy places variables by itself
""")

# --- what else is said of a name that changes by itself ------------------------------------------


@final
class Remark(NamedTuple):
    """What is said of a name where the rest of the file calls for it."""

    text: str
    where: re.Pattern[str]
    """What the file has."""
    unless: re.Pattern[str] | None = None
    """What it does not have."""


REMARKS: dict[str, Remark] = {
    "tf.train.Checkpoint": Remark(
        "a Keras model in it has to be made in a scope; that of "
        'rx.distribute.OneDeviceStrategy("CPU:0") will do',
        re.compile(r"\bkeras\b"),
        re.compile(r"\.scope\("),
    ),
    "tf.train.CheckpointManager": Remark(
        "all workers save to one folder, and the first writes: no temporary folders for the others",
        re.compile(r"\b(task_id|is_chief)\b"),
    ),
}
