"""What of TensorFlow is what in replicax: the table, as data.

Names are written as users write them after `import tensorflow as tf`, `import replicax as rx`,
`import jax.numpy as jnp`, `import keras`. A name of `tf.compat.v1` is looked up as it is, and then
as that of `tf`.
`_lookup.py` reads the table. Older names of what replicax has are in `replicax/_src/_old_names.py`.
"""

import re
from typing import NamedTuple, final

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

RENAMED: dict[str, str] = {
    "tf.ConfigProto": "rx.compat.v1.ConfigProto",
    "tf.FixedLenFeature": "rx.io.FixedLenFeature",
    "tf.FixedLenSequenceFeature": "rx.io.FixedLenSequenceFeature",
    "tf.GPUOptions": "rx.compat.v1.GPUOptions",
    "tf.GraphOptions": "rx.compat.v1.GraphOptions",
    "tf.OptimizerOptions": "rx.compat.v1.OptimizerOptions",
    "tf.SparseTensor": "rx.io.SparseTensor",
    "tf.Tensor": "jax.Array",
    "tf.VarLenFeature": "rx.io.VarLenFeature",
    "tf.bool": "jnp.bool_",
    "tf.compat.v1.data.make_one_shot_iterator": "iter",
    "tf.config.experimental.VirtualDeviceConfiguration": "rx.config.LogicalDeviceConfiguration",
    "tf.config.experimental.list_logical_devices": "rx.config.list_logical_devices",
    "tf.config.experimental.list_physical_devices": "rx.config.list_physical_devices",
    "tf.config.experimental.set_virtual_device_configuration": (
        "rx.config.set_logical_device_configuration"
    ),
    "tf.data.experimental.AUTOTUNE": "rx.data.AUTOTUNE",
    "tf.data.experimental.INFINITE_CARDINALITY": "rx.data.INFINITE_CARDINALITY",
    "tf.data.experimental.Optional": "rx.experimental.Optional",
    "tf.data.experimental.UNKNOWN_CARDINALITY": "rx.data.UNKNOWN_CARDINALITY",
    "tf.double": "jnp.float64",
    "tf.errors.AlreadyExistsError": "FileExistsError",
    "tf.errors.InvalidArgumentError": "ValueError",
    "tf.errors.NotFoundError": "FileNotFoundError",
    "tf.errors.PermissionDeniedError": "PermissionError",
    "tf.constant_initializer": "keras.initializers.Constant",
    "tf.half": "jnp.float16",
    "tf.layers.BatchNormalization": "keras.layers.BatchNormalization",
    "tf.layers.Conv2D": "keras.layers.Conv2D",
    "tf.layers.Dense": "keras.layers.Dense",
    "tf.layers.Dropout": "keras.layers.Dropout",
    "tf.layers.Flatten": "keras.layers.Flatten",
    "tf.layers.MaxPooling2D": "keras.layers.MaxPooling2D",
    "tf.keras.__version__": "keras.__version__",
    "tf.keras.experimental.CosineDecay": "keras.optimizers.schedules.CosineDecay",
    "tf.keras.experimental.CosineDecayRestarts": "keras.optimizers.schedules.CosineDecayRestarts",
    "tf.keras.experimental.SidecarEvaluator": "rx.train.SidecarEvaluator",
    "tf.keras.losses.Reduction.AUTO": '"sum_over_batch_size"',
    "tf.keras.losses.Reduction.NONE": "None",
    "tf.keras.losses.Reduction.SUM": '"sum"',
    "tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE": '"sum_over_batch_size"',
    "tf.keras.utils.SidecarEvaluator": "rx.train.SidecarEvaluator",
    "tf.newaxis": "None",
    "tf.ones_initializer": "keras.initializers.Ones",
    "tf.parse_example": "rx.io.parse_example",
    "tf.parse_single_example": "rx.io.parse_single_example",
    "tf.python_io.TFRecordOptions": "rx.io.TFRecordOptions",
    "tf.python_io.TFRecordWriter": "rx.io.TFRecordWriter",
    "tf.random.experimental.Generator": "rx.random.Generator",
    "tf.random.set_random_seed": "rx.random.set_seed",
    "tf.random_normal": "rx.random.normal",
    "tf.random_shuffle": "rx.random.shuffle",
    "tf.random_uniform": "rx.random.uniform",
    "tf.set_random_seed": "rx.random.set_seed",
    "tf.truncated_normal": "rx.random.truncated_normal",
    "tf.random.experimental.get_global_generator": "rx.random.get_global_generator",
    "tf.random.experimental.set_global_generator": "rx.random.set_global_generator",
    "tf.random_normal_initializer": "keras.initializers.RandomNormal",
    "tf.random_uniform_initializer": "keras.initializers.RandomUniform",
    "tf.sparse.SparseTensor": "rx.io.SparseTensor",
    "tf.sparse.to_dense": "rx.io.to_dense",
    "tf.train.CheckpointSaverListener": "rx.compat.v1.estimator.CheckpointSaverListener",
    "tf.train.NanLossDuringTrainingError": "rx.compat.v1.estimator.NanLossDuringTrainingError",
    "tf.train.SessionRunContext": "rx.compat.v1.estimator.SessionRunContext",
    "tf.train.SessionRunHook": "rx.compat.v1.estimator.SessionRunHook",
    "tf.train.SessionRunValues": "rx.compat.v1.estimator.SessionRunValues",
    "tf.types.experimental.distributed.Mirrored": "rx.types.experimental.Mirrored",
    "tf.types.experimental.distributed.PerReplica": "rx.types.experimental.PerReplica",
    "tf.zeros_initializer": "keras.initializers.Zeros",
    "tfds.Split.TEST": '"test"',
    "tfds.Split.TRAIN": '"train"',
    "tfds.Split.VALIDATION": '"validation"',
}

# tf.keras.losses.NAME and tf.keras.metrics.NAME: short names of functions, also in capitals.
SHORT_LOSSES: dict[str, str] = {
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "logcosh": "log_cosh",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}

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

# --- calls that are rewritten with their arguments -----------------------------------------------

# `old(parameters) -> new;`, or without an arrow where the function of `jnp` takes the same. A name
# without a dot is that of `tf` and `tf.math`. A parameter has
#   =None     where the new call leaves it out if the old one does; another value is written there
#   |other    an older name
#   :axes     numbers; `:any`; `:array`, of which JAX takes no lists; `:places`, of which no library
#             does; `:parts`, a number of parts or their sizes; `:sizes`, a list of sizes none of
#             which is -1; `:True`, only this value
#   _         in front: not to be had here.
# Of several forms of a function, the first is taken that a call fits. `name=` is left out.
CALLS = """
    abs(x); add(x, y); angle(input); broadcast_to(input, shape); ceil(x); conj(x); cos(x); cosh(x);
    divide(x, y); einsum(*); equal(x, y); exp(x); expm1(x); floor(x); greater(x, y);
    greater_equal(x, y); imag(input); less(x, y); less_equal(x, y); linspace(start, stop, num);
    log(x); log1p(x); logical_and(x, y); logical_not(x); logical_or(x, y); logical_xor(x, y);
    matmul(a, b); maximum(x, y); meshgrid(*); minimum(x, y); mod(x, y); multiply(x, y);
    negative(x); not_equal(x, y); real(input); reciprocal(x); reshape(tensor, shape);
    roll(input, shift, axis); round(x); shape(input, out_type=None) -> jnp.shape(input); sign(x);
    sin(x); sinh(x); size(input); sqrt(x); square(x); subtract(x, y); tan(x); tanh(x);
    tensordot(a, b, axes); tile(input, multiples); where(condition, x, y);
    acos(x) -> jnp.arccos(x); acosh(x) -> jnp.arccosh(x); add_n(inputs) -> sum(inputs);
    asin(x) -> jnp.arcsin(x); asinh(x) -> jnp.arcsinh(x); atan(x) -> jnp.arctan(x);
    atan2(y, x) -> jnp.arctan2(y, x); atanh(x) -> jnp.arctanh(x);
    cast(x:any, dtype) -> cast(x, dtype); digamma(x) -> jax.scipy.special.digamma(x);
    ensure_shape(x, shape) -> x; erf(x) -> jax.scipy.special.erf(x);
    fill(dims, value) -> jnp.full(dims, value); floordiv(x, y) -> jnp.floor_divide(x, y);
    floormod(x, y) -> jnp.mod(x, y);
    identity(input, name=None) -> input;
    is_finite(x) -> jnp.isfinite(x); is_inf(x) -> jnp.isinf(x); is_nan(x) -> jnp.isnan(x);
    lgamma(x) -> jax.scipy.special.gammaln(x); linalg.det(input) -> jnp.linalg.det(input);
    linalg.einsum(*) -> jnp.einsum(); linalg.inv(input) -> jnp.linalg.inv(input);
    linalg.matmul(a, b) -> jnp.matmul(a, b); log_sigmoid(x) -> jax.nn.log_sigmoid(x);
    name_scope(name) -> jax.named_scope(name); nn.bias_add(value, bias) -> value + bias;
    nn.elu(features) -> jax.nn.elu(features); nn.l2_loss(t) -> jnp.sum(jnp.square(t)) / 2;
    nn.relu(features) -> jax.nn.relu(features); nn.relu6(features) -> jax.nn.relu6(features);
    nn.selu(features) -> jax.nn.selu(features); nn.sigmoid(x) -> jax.nn.sigmoid(x);
    nn.silu(features) -> jax.nn.silu(features); nn.swish(features) -> jax.nn.silu(features);
    nn.tanh(x) -> jnp.tanh(x); pow(x, y) -> jnp.power(x, y); rank(input) -> jnp.ndim(input);
    realdiv(x, y) -> jnp.true_divide(x, y); rint(x) -> jnp.round(x); rsqrt(x) -> 1 / jnp.sqrt(x);
    scalar_mul(scalar, x) -> scalar * x; sigmoid(x) -> jax.nn.sigmoid(x);
    squared_difference(x, y) -> (x - y) ** 2; to_float(x:any) -> cast(x, jnp.float32);
    to_int32(x:any) -> cast(x, jnp.int32); truediv(x, y) -> jnp.true_divide(x, y);
    unstack(value) -> list(value); is_tensor(x) -> isinstance(x, (jax.Array, rx.Variable));
    unstack(value, num=None, axis=0) -> list(jnp.moveaxis(value, axis, 0));
    app.run(main=main, argv=None) -> absl_app.run(main, argv);
    argmax(input, axis|dimension=0) -> jnp.argmax(input, axis=axis);
    argmin(input, axis|dimension=0) -> jnp.argmin(input, axis=axis);
    argsort(values, axis=None, _direction) -> jnp.argsort(values, axis=axis);
    argsort(values, axis=None, direction:"DESCENDING") -> jnp.argsort(-values, axis=axis);
    clip_by_global_norm(t_list, clip_norm)
        -> optax.clip_by_global_norm(clip_norm).update(t_list, optax.EmptyState());
    boolean_mask(tensor, mask:array) -> tensor[mask];
    clip_by_norm(t, clip_norm, axes:axes=None) -> t * clip_norm / jnp.maximum(
        jnp.sqrt(jnp.sum(jnp.square(t), axis=axes, keepdims=True)), clip_norm);
    clip_by_value(t, clip_value_min, clip_value_max) -> jnp.clip(t, clip_value_min, clip_value_max);
    complex(real, imag) -> jax.lax.complex(real, imag);
    concat(values, axis|concat_dim) -> jnp.concatenate(values, axis=axis);
    convert_to_tensor(value, dtype=None) -> jnp.asarray(value, dtype=dtype);
    count_nonzero(input, axis:axes=None) -> jnp.count_nonzero(input, axis=axis);
    cond(pred, true_fn, false_fn) -> jax.lax.cond(pred, true_fn, false_fn);
    cumprod(x, axis=0, _exclusive, _reverse) -> jnp.cumprod(x, axis=axis);
    cumsum(x, axis=0, _exclusive, _reverse) -> jnp.cumsum(x, axis=axis);
    cumsum(x, axis=0, exclusive:True, _reverse) -> jnp.cumsum(x, axis=axis) - x;
    cumsum(x, axis=0, _exclusive, reverse:True)
        -> jnp.flip(jnp.cumsum(jnp.flip(x, axis), axis=axis), axis);
    expand_dims(input, axis|dim) -> jnp.expand_dims(input, axis);
    eye(num_rows, num_columns=None) -> jnp.eye(num_rows, num_columns);
    gather(params, indices:array, _validate_indices, axis=0, _batch_dims)
        -> jnp.take(params, indices, axis=axis);
    gather_nd(params:array, indices:places)
        -> params[tuple(jnp.moveaxis(indices, -1, 0))];
    global_norm(t_list) -> jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in t_list));
    decode_raw(input_bytes|bytes, out_type) -> np.frombuffer(input_bytes, out_type);
    get_logger() -> logging.getLogger("replicax");
    image.psnr(a, b, max_val) -> 20 * jnp.log10(max_val) - 10 * jnp.log10(jnp.mean(
        jnp.square(cast(a, jnp.float32) - cast(b, jnp.float32)), axis=(-3, -2, -1)));
    io.decode_raw(input_bytes, out_type) -> np.frombuffer(input_bytes, out_type);
    l2_normalize(x, axis|dim:axes=None, epsilon=1e-12) -> x * jax.lax.rsqrt(jnp.maximum(
        jnp.sum(jnp.square(x), axis=axis, keepdims=True), epsilon));
    linalg.l2_normalize(x, axis:axes=None, epsilon=1e-12) -> x * jax.lax.rsqrt(jnp.maximum(
        jnp.sum(jnp.square(x), axis=axis, keepdims=True), epsilon));
    linalg.band_part(input, num_lower:-1, num_upper:0) -> jnp.tril(input);
    linalg.band_part(input, num_lower:0, num_upper:-1) -> jnp.triu(input);
    linalg.diag_part(input) -> jnp.diagonal(input, axis1=-2, axis2=-1);
    linalg.cholesky(input) -> jnp.linalg.cholesky(input);
    linalg.eye(num_rows, num_columns=None) -> jnp.eye(num_rows, num_columns);
    linalg.global_norm(t_list)
        -> jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in t_list));
    linalg.matmul(a, b, _transpose_a, transpose_b:True) -> jnp.matmul(a, jnp.swapaxes(b, -1, -2));
    linalg.norm(tensor, _ord, axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims);
    linalg.norm(tensor, ord:"euclidean", axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims);
    linalg.norm(tensor, ord:2) -> jnp.linalg.norm(tensor);
    log_softmax(logits, axis=None) -> jax.nn.log_softmax(logits, axis=axis);
    matmul(a, b, _transpose_a, transpose_b:True) -> jnp.matmul(a, jnp.swapaxes(b, -1, -2));
    matmul(a, b, transpose_a:True) -> jnp.matmul(jnp.swapaxes(a, -1, -2), b);
    nn.gelu(features, approximate=False) -> jax.nn.gelu(features, approximate=approximate);
    nn.l2_normalize(x, axis|dim:axes=None, epsilon=1e-12) -> x * jax.lax.rsqrt(jnp.maximum(
        jnp.sum(jnp.square(x), axis=axis, keepdims=True), epsilon));
    nn.leaky_relu(features, alpha=0.2) -> jax.nn.leaky_relu(features, alpha);
    nn.log_softmax(logits, axis=None) -> jax.nn.log_softmax(logits, axis=axis);
    nn.moments(x, axes:axes, _shift, keepdims|keep_dims=None)
        -> (jnp.mean(x, axis=axes, keepdims=keepdims), jnp.var(x, axis=axes, keepdims=keepdims));
    nn.sigmoid_cross_entropy_with_logits(labels, logits)
        -> optax.sigmoid_binary_cross_entropy(logits, labels);
    nn.softmax(logits, axis=None) -> jax.nn.softmax(logits, axis=axis);
    nn.softmax_cross_entropy_with_logits(labels, logits)
        -> optax.softmax_cross_entropy(logits, labels);
    nn.softmax_cross_entropy_with_logits_v2(labels, logits)
        -> optax.softmax_cross_entropy(logits, labels);
    nn.softplus(features) -> jax.nn.softplus(features);
    nn.softsign(features) -> jax.nn.soft_sign(features);
    nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        -> optax.softmax_cross_entropy_with_integer_labels(logits, labels);
    nn.top_k(input, k, _sorted) -> jax.lax.top_k(input, k);
    norm(tensor, _ord, axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims);
    norm(tensor, ord:"euclidean", axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims);
    norm(tensor, ord:2) -> jnp.linalg.norm(tensor);
    one_hot(indices, depth, _on_value, _off_value, axis=None, dtype=None)
        -> jax.nn.one_hot(indices, depth, axis=axis, dtype=dtype);
    one_hot(indices, depth)
        -> (np.asarray(indices)[..., None] == np.arange(depth)).astype(np.float32);
    ones(shape, dtype=None) -> jnp.ones(shape, dtype);
    ones_like(input|tensor, dtype=None) -> jnp.ones_like(input, dtype=dtype);
    pad(tensor, paddings, _mode, constant_values=None)
        -> jnp.pad(tensor, paddings, constant_values=constant_values);
    pad(tensor, paddings, mode:"CONSTANT", constant_values=None)
        -> jnp.pad(tensor, paddings, constant_values=constant_values);
    pad(tensor, paddings, mode:"REFLECT") -> jnp.pad(tensor, paddings, mode="reflect");
    pad(tensor, paddings, mode:"SYMMETRIC") -> jnp.pad(tensor, paddings, mode="symmetric");
    map_fn(fn, elems, dtype|fn_output_signature=None) -> jax.lax.map(fn, elems);
    range(start, limit=None, delta=None, dtype=None)
        -> jnp.arange(start, limit, delta, dtype=dtype);
    reduce_euclidean_norm(input_tensor:array, axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(input_tensor, axis=axis, keepdims=keepdims);
    reduce_logsumexp(input_tensor:array, axis:axes=None, keepdims=None)
        -> jax.scipy.special.logsumexp(input_tensor, axis=axis, keepdims=keepdims);
    repeat(input, repeats, axis=None) -> jnp.repeat(input, repeats, axis=axis);
    reverse(tensor, axis:axes) -> jnp.flip(tensor, axis);
    scatter_nd(indices:places, updates:places, shape) -> jnp.zeros(shape, jnp.result_type(
        updates)).at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates);
    slice(input_, begin, size:sizes) -> jax.lax.dynamic_slice(input_, begin, size);
    softmax(logits, axis=None) -> jax.nn.softmax(logits, axis=axis);
    softplus(features) -> jax.nn.softplus(features);
    softsign(features) -> jax.nn.soft_sign(features);
    sort(values, axis=None, _direction) -> jnp.sort(values, axis=axis);
    sort(values, axis=-1, direction:"DESCENDING") -> jnp.flip(jnp.sort(values, axis=axis), axis);
    split(value, num_or_size_splits:parts, axis=0)
        -> jnp.split(value, num_or_size_splits, axis=axis);
    squeeze(input, axis|squeeze_dims:axes=None) -> jnp.squeeze(input, axis=axis);
    stack(values, axis=None) -> jnp.stack(values, axis=axis);
    stop_gradient(input) -> jax.lax.stop_gradient(input);
    tensor_scatter_nd_add(tensor:array, indices:places, updates)
        -> tensor.at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates);
    tensor_scatter_nd_sub(tensor:array, indices:places, updates)
        -> tensor.at[tuple(jnp.moveaxis(indices, -1, 0))].subtract(updates);
    tensor_scatter_nd_update(tensor:array, indices:places, updates)
        -> tensor.at[tuple(jnp.moveaxis(indices, -1, 0))].set(updates);
    top_k(input, k, _sorted) -> jax.lax.top_k(input, k);
    train.AdagradOptimizer(learning_rate, initial_accumulator_value=0.1) -> rx.Optimizer(
        optax.adagrad(learning_rate, initial_accumulator_value, eps=0.0));
    train.AdamOptimizer(learning_rate=0.001, beta1=None, beta2=None, epsilon=1e-08)
        -> rx.Optimizer(rx.train.adam(learning_rate, beta_1=beta1, beta_2=beta2, epsilon=epsilon));
    train.GradientDescentOptimizer(learning_rate) -> rx.Optimizer(optax.sgd(learning_rate));
    train.MomentumOptimizer(learning_rate, momentum, _use_locking, _name, use_nesterov=None)
        -> rx.Optimizer(optax.sgd(learning_rate, momentum=momentum, nesterov=use_nesterov));
    train.RMSPropOptimizer(learning_rate, decay=0.9, momentum=None, epsilon=1e-10) -> rx.Optimizer(
        optax.rmsprop(learning_rate, decay, epsilon, 1.0, eps_in_sqrt=True, momentum=momentum));
    transpose(a, perm=None) -> jnp.transpose(a, perm);
    zeros(shape, dtype=None) -> jnp.zeros(shape, dtype);
    zeros_like(input|tensor, dtype=None) -> jnp.zeros_like(input, dtype=dtype);
"""
CALLS += "".join(
    f"reduce_{old}(input_tensor:array, axis|reduction_indices:axes=None, keepdims|keep_dims=None)"
    f" -> jnp.{new}(input_tensor, axis=axis, keepdims=keepdims);"
    for old, new in {
        **{name: name for name in "all any max mean min prod std sum".split()},
        "variance": "var",
    }.items()
)

# Parameters that are arrays, in all of these calls.
ARRAYS = "a b features input labels logits t tensor x y"

# Means over all rows; where weights are given, they are not.
CALLS += """
    compat.v1.losses.absolute_difference(labels, predictions)
        -> jnp.mean(jnp.abs(predictions - labels));
    compat.v1.losses.mean_squared_error(labels, predictions)
        -> jnp.mean(jnp.square(predictions - labels));
    compat.v1.losses.sigmoid_cross_entropy(multi_class_labels, logits)
        -> jnp.mean(optax.sigmoid_binary_cross_entropy(logits, multi_class_labels));
    compat.v1.losses.softmax_cross_entropy(onehot_labels, logits)
        -> jnp.mean(optax.softmax_cross_entropy(logits, onehot_labels));
    compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
        -> jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels));
"""

# What Keras had of its own; Keras 3 has it as `keras.ops`.
CALLS += "".join(
    f"keras.backend.{name}(x) -> keras.ops.{name}(x);"
    for name in """abs cos exp log ones_like relu round sigmoid sign sin softplus softsign sqrt
    square tanh transpose zeros_like""".split()
)
CALLS += "".join(
    f"keras.backend.{name}(x, axis:axes=None, keepdims=None)"
    f" -> keras.ops.{name}(x, axis=axis, keepdims=keepdims);"
    for name in "all any logsumexp max mean min prod std sum var".split()
)
CALLS += "".join(
    f"keras.backend.{name}(x, y) -> keras.ops.{name}(x, y);"
    for name in "equal greater greater_equal less less_equal maximum minimum not_equal".split()
)
CALLS += """
    keras.backend.argmax(x, axis=-1) -> keras.ops.argmax(x, axis=axis);
    keras.backend.argmin(x, axis=-1) -> keras.ops.argmin(x, axis=axis);
    keras.backend.arange(start, stop=None, step=None, dtype="int32")
        -> keras.ops.arange(start, stop, step, dtype=dtype);
    keras.backend.cast(x, dtype) -> keras.ops.cast(x, dtype);
    keras.backend.clip(x, min_value, max_value) -> keras.ops.clip(x, min_value, max_value);
    keras.backend.concatenate(tensors, axis=-1) -> keras.ops.concatenate(tensors, axis=axis);
    keras.backend.cumsum(x, axis=0) -> keras.ops.cumsum(x, axis=axis);
    keras.backend.expand_dims(x, axis=-1) -> keras.ops.expand_dims(x, axis);
    keras.backend.flatten(x) -> keras.ops.reshape(x, (-1,));
    keras.backend.gather(reference, indices) -> keras.ops.take(reference, indices, axis=0);
    keras.backend.get_value(x) -> np.asarray(x); keras.backend.int_shape(x) -> tuple(x.shape);
    keras.backend.l2_normalize(x, axis=None) -> x * keras.ops.rsqrt(keras.ops.maximum(
        keras.ops.sum(keras.ops.square(x), axis=axis, keepdims=True), 1e-12));
    keras.backend.ndim(x) -> len(x.shape);
    keras.backend.one_hot(indices, num_classes) -> keras.ops.one_hot(indices, num_classes);
    keras.backend.permute_dimensions(x, pattern) -> keras.ops.transpose(x, pattern);
    keras.backend.pow(x, a) -> keras.ops.power(x, a);
    keras.backend.random_normal(shape, mean=0.0, stddev=1.0)
        -> rx.random.normal(shape, mean, stddev);
    keras.backend.random_uniform(shape, minval=0.0, maxval=1.0)
        -> rx.random.uniform(shape, minval, maxval);
    keras.backend.repeat_elements(x, rep, axis) -> keras.ops.repeat(x, rep, axis=axis);
    keras.backend.reshape(x, shape) -> keras.ops.reshape(x, shape);
    keras.backend.set_value(x, value) -> x.assign(value);
    keras.backend.softmax(x, axis=-1) -> keras.ops.softmax(x, axis=axis);
    keras.backend.squeeze(x, axis) -> keras.ops.squeeze(x, axis=axis);
    keras.backend.stack(x, axis=0) -> keras.ops.stack(x, axis=axis);
    keras.backend.stop_gradient(variables) -> keras.ops.stop_gradient(variables);
    keras.backend.tile(x, n) -> keras.ops.tile(x, n);
"""

# Functions that give a plain tuple here, which may be taken apart as before.
GIVE_TUPLES = "tf.math.top_k tf.nn.top_k tf.shape"

# Decorators of compiled functions: a function of a data set works on NumPy arrays without them.
DECORATORS = "tf.function tf.autograph.experimental.do_not_convert"

# Functions that take a tuple for a shape.
TAKE_SHAPES = """tf.broadcast_to tf.fill tf.image.resize tf.ones tf.random.normal
    tf.random.truncated_normal tf.random.uniform tf.reshape tf.zeros"""

# Where they train variables that are not Keras's.
OWN_OPTIMIZERS = """
    keras.optimizers.SGD(learning_rate|lr=0.01, momentum=None, nesterov=None)
        -> rx.Optimizer(optax.sgd(learning_rate, momentum=momentum, nesterov=nesterov));
    keras.optimizers.Adam(learning_rate|lr=0.001, beta_1=None, beta_2=None, epsilon=None)
        -> rx.Optimizer(
            rx.train.adam(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon));
"""

# Functions that `keras.ops` does not have, or that take no variables of Keras.
NOT_OF_KERAS = """arange complex digamma dynamic_slice eye float32 full gammaln int32 linspace
    named_scope ones result_type zeros"""
OTHERWISE_IN_KERAS: dict[str, str] = {"asarray": "convert_to_tensor", "soft_sign": "softsign"}

# Names of activations, which layers of Keras take, and save, as texts.
ACTIVATIONS = """elu gelu leaky_relu log_softmax relu relu6 selu sigmoid silu softmax softplus
    softsign swish tanh"""

# --- maths: a function of JAX does the same, but its arguments are its own -----------------------

# A name without a dot is that of `tf` and `tf.math`.
MATHS: dict[str, str] = {
    **{
        f"linalg.{name}": f"jnp.linalg.{name}"
        for name in "eigh pinv qr slogdet solve svd trace".split()
    },
    **{f"segment_{name}": f"jax.ops.segment_{name}" for name in "max min prod sum".split()},
    **{
        f"unsorted_segment_{name}": f"jax.ops.segment_{name}" for name in "max min prod sum".split()
    },
    **{
        name: f"jax.scipy.special.{name}"
        for name in "betainc erfc erfinv polygamma xlog1py xlogy zeta".split()
    },
    **{f"bessel_{name}": f"jax.scipy.special.{name}" for name in "i0 i0e i1 i1e".split()},
    **{f"signal.{name}": f"jnp.fft.{name}" for name in "fft ifft irfft rfft".split()},
    **{
        f"random.stateless_{name}": f"jax.random.{name}"
        for name in "normal truncated_normal uniform".split()
    },
    **{
        f"nn.{name}": "jax.lax.conv_general_dilated"
        for name in "conv1d conv2d conv3d convolution depthwise_conv2d".split()
    },
    **{
        f"nn.{name}": "jax.lax.reduce_window"
        for name in "avg_pool avg_pool2d max_pool max_pool2d".split()
    },
    "bincount": "jnp.bincount",
    "custom_gradient": "jax.custom_vjp",
    "igamma": "jax.scipy.special.gammainc",
    "igammac": "jax.scipy.special.gammaincc",
    "invert_permutation": "jnp.argsort",
    "linalg.diag": "jnp.diag",
    "linalg.matvec": "jnp.matvec",
    "linalg.triangular_solve": "jax.scipy.linalg.solve_triangular",
    "nextafter": "jnp.nextafter",
    "nn.conv2d_transpose": "jax.lax.conv_transpose",
    "nn.ctc_loss": "optax.ctc_loss",
    "nn.top_k": "jax.lax.top_k",
    "polyval": "jnp.polyval",
    "random.fold_in": "jax.random.fold_in",
    "recompute_grad": "jax.checkpoint",
    "scan": "jax.lax.scan",
    "searchsorted": "jnp.searchsorted",
    "switch_case": "jax.lax.switch",
    "top_k": "jax.lax.top_k",
    "truncatemod": "jnp.fmod",
    "unique": "jnp.unique",
    "unravel_index": "jnp.unravel_index",
    "vectorized_map": "jax.vmap",
    "while_loop": "jax.lax.while_loop",
}

# Where that function gives something else for the same arguments.
OTHERWISE_IN_JAX: dict[str, str] = {
    "linalg.diag": 'of one axis; of more: jnp.vectorize(jnp.diag, signature="(n)->(n,n)")',
    "linalg.svd": "gives u, s and the transposed v, in this order; full_matrices=False",
    "linalg.triangular_solve": "lower=True, if the old call does not say it",
    **{
        f"nn.{name}": f"{where}; keras.ops.conv has the layout of TensorFlow"
        for name, where in {
            "conv1d": 'dimension_numbers=("NWC", "WIO", "NWC")',
            "conv2d": 'dimension_numbers=("NHWC", "HWIO", "NHWC")',
            "conv3d": 'dimension_numbers=("NDHWC", "DHWIO", "NDHWC")',
        }.items()
    },
    "scan": "f(carry, x) returns two values",
    "switch_case": "takes the nearest branch for an index out of range, and not the last",
    "unique": "is sorted, and gives indices only with return_inverse=True",
    "unravel_index": "a tuple",
    "while_loop": "cond and body take one value: a tuple",
}

# The older tf.train.NAME(...) is rx.Optimizer(NAME(...)).
OLD_OPTIMIZERS: dict[str, str] = {
    "AdadeltaOptimizer": "optax.adadelta",
    "AdagradOptimizer": "optax.adagrad",
    "AdamOptimizer": "rx.train.adam",
    "GradientDescentOptimizer": "optax.sgd",
    "MomentumOptimizer": "optax.sgd",
    "RMSPropOptimizer": "optax.rmsprop",
}

# --- what somebody has to think about ------------------------------------------------------------

_VERSION = (
    "leave the question out, with what is for TensorFlow 1; to show a version, rx.__version__"
)

# A name that ends in `.*` stands for all that is below it and has no line of its own.
THOUGHT: dict[str, str] = {
    "tf.AggregationMethod": "leave it out",
    "tf.DType": "jnp.dtype",
    "tf.UnconnectedGradients": "leave it out: gradients of what is not used are zeros",
    "tf.VERSION": _VERSION,
    "tf.__version__": _VERSION,
    "tf.as_dtype": "jnp.dtype",
    "tf.as_string": "str(x), outside compiled functions",
    "tf.assert_equal": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.assert_greater": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.assert_less": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.assert_rank": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.bitwise.*": "jnp.bitwise_and and the like",
    "tf.Assert": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.GradientTape": "make the block a function, loss_fn, that returns the loss",
    "tf.Module": "a plain class; list its variables yourself",
    "tf.TensorArray": "a list, or the stacked results of jax.lax.scan",
    "tf.TensorShape": "a tuple",
    "tf.TypeSpec": "rx.TensorSpec, or the element_spec of a data set",
    "tf.assign": "variable.assign(value)",
    "tf.assign_add": "variable.assign_add(value)",
    "tf.assign_sub": "variable.assign_sub(value)",
    "tf.autograph.*": "compiled functions are traced: no Python if or while on arrays",
    "tf.bitcast": "jax.lax.bitcast_convert_type",
    "tf.boolean_mask": "array[mask], outside compiled functions; jnp.where there",
    "tf.case": "jax.lax.switch",
    "tf.clip_by_global_norm": (
        "gradients, _ = optax.clip_by_global_norm(limit).update(gradients, optax.EmptyState()) in "
        "the replica, as before; or global_clipnorm= of the optimizer, which clips the sum of the "
        "replicas' gradients, as on one device"
    ),
    "tf.clip_by_norm": "divide by jnp.maximum(1, norm / limit)",
    "tf.colocate_with": "leave it out; variables: strategy.extended.colocate_vars_with",
    "tf.config.*": "leave it out, or see rx.config and jax.config",
    "tf.config.experimental.enable_op_determinism": (
        "leave it out; on GPUs set XLA_FLAGS=--xla_gpu_deterministic_ops=true"
    ),
    "tf.config.experimental.set_memory_growth": (
        "leave it out; to take memory as it is needed set XLA_PYTHON_CLIENT_PREALLOCATE=false"
    ),
    "tf.config.experimental.set_visible_devices": (
        "name the devices to the strategy, or set CUDA_VISIBLE_DEVICES"
    ),
    "tf.config.experimental_run_functions_eagerly": "leave out rx.function to run eagerly",
    "tf.config.run_functions_eagerly": "leave out rx.function to run eagerly",
    "tf.config.set_soft_device_placement": "leave it out: a device that is not there is an error",
    "tf.config.set_visible_devices": (
        "name the devices to the strategy, or set CUDA_VISIBLE_DEVICES"
    ),
    "tf.control_dependencies": "leave it out: things happen in the order of the lines",
    "tf.data.*": "rx.data does not have it",
    "tf.data.experimental.assert_cardinality": "leave it out",
    "tf.data.experimental.enumerate_dataset": "dataset.enumerate()",
    "tf.data.experimental.get_single_element": "next(iter(dataset))",
    "tf.data.experimental.get_structure": "dataset.element_spec",
    "tf.data.experimental.map_and_batch": "dataset.map(f).batch(n)",
    "tf.data.experimental.parallel_interleave": "dataset.interleave(f)",
    "tf.data.experimental.prefetch_to_device": "leave it out: strategies put data on devices",
    "tf.data.experimental.shuffle_and_repeat": "dataset.shuffle(n).repeat()",
    "tf.data.experimental.unbatch": "dataset.unbatch()",
    "tf.compat.v1.data.get_output_classes": "dataset.element_spec",
    "tf.compat.v1.data.get_output_shapes": "dataset.element_spec",
    "tf.compat.v1.data.get_output_types": "dataset.element_spec",
    "tf.compat.v1.data.make_initializable_iterator": "iter(dataset); nothing is initialized",
    "tf.compat.v1.random_normal_initializer": "keras.initializers.RandomNormal(stddev=1.0)",
    "tf.compat.v1.random_uniform_initializer": "keras.initializers.RandomUniform(0.0, 1.0)",
    "tf.debugging.*": "assert, outside compiled functions; jax.experimental.checkify there",
    "tf.dtensor.*": "rx.Variable(..., layout=...), or a rx.distribute.StateLayout",
    "tf.ensure_shape": "leave it out: shapes are known",
    "tf.errors.*": "ValueError, TypeError or OSError; see rx.errors",
    "tf.executing_eagerly": "True outside compiled functions",
    "tf.experimental.dtensor.*": "rx.Variable(..., layout=...), or a rx.distribute.StateLayout",
    "tf.foldl": "jax.lax.scan",
    "tf.gather_nd": "array[tuple(jnp.moveaxis(indices, -1, 0))]",
    "tf.get_logger": "Python's logging",
    "tf.get_static_value": "np.asarray(x), outside compiled functions",
    "tf.get_variable": "rx.Variable(initial_value, name=...), kept by you",
    "tf.global_variables_initializer": "leave it out: variables are ready when they are made",
    "tf.gradients": "rx.grad(loss_fn, variables)",
    "tf.group": "leave it out: things happen in the order of the lines",
    "tf.identity": "leave it out: arrays do not change",
    "tf.image.*": "rx.image does not have it: NumPy in dataset.map, or jax.image",
    "tf.init_scope": "leave it out, or move the lines out of the compiled function",
    "tf.initializers.*": "keras.initializers",
    "tf.io.*": "rx.io does not have it: Python and NumPy in dataset.map",
    "tf.io.decode_csv": 'line.split(b",")',
    "tf.io.parse_tensor": "np.frombuffer(...).reshape(...)",
    "tf.io.serialize_tensor": "array.tobytes()",
    "tf.is_tensor": "isinstance(x, jax.Array)",
    "tf.keras.*": "Keras 3 does not have it",
    "tf.keras.backend.*": "see keras.ops, and jnp",
    "tf.keras.backend.get_session": "leave it out: there are no sessions",
    "tf.keras.backend.get_value": "variable.numpy()",
    "tf.keras.backend.learning_phase": "the argument training= of call",
    "tf.keras.backend.set_session": "leave it out: there are no sessions",
    "tf.keras.backend.set_value": "variable.assign(value); optimizer.learning_rate = value",
    "tf.keras.experimental.*": "Keras 3 does not have it",
    "tf.keras.layers.CuDNNGRU": "keras.layers.GRU",
    "tf.keras.layers.CuDNNLSTM": "keras.layers.LSTM",
    "tf.keras.layers.DenseFeatures": "make the features in dataset.map",
    "tf.keras.layers.RandomHeight": "keras.layers.RandomZoom",
    "tf.keras.layers.RandomWidth": "keras.layers.RandomZoom",
    "tf.keras.layers.StringLookup": "it needs TensorFlow: a dict in dataset.map",
    "tf.keras.layers.SyncBatchNormalization": "keras.layers.BatchNormalization(synchronized=True)",
    "tf.keras.layers.TextVectorization": "it needs TensorFlow: Python in dataset.map",
    "tf.keras.layers.ThresholdedReLU": "keras.layers.ReLU(threshold=theta)",
    "tf.keras.losses.Reduction": 'None, "sum" or "sum_over_batch_size"',
    "tf.keras.mixed_precision.experimental.*": "keras.mixed_precision.set_global_policy(name)",
    **{
        f"tf.keras.{place}.{name}": "it needs TensorFlow: rx.data.Dataset, with list_files and map"
        for place in ("preprocessing", "utils")
        for name in """image_dataset_from_directory text_dataset_from_directory
        timeseries_dataset_from_array""".split()
    },
    "tf.keras.preprocessing.image.*": "layers such as keras.layers.RandomFlip, or dataset.map",
    "tf.keras.preprocessing.sequence.*": "NumPy, and rx.data.Dataset.from_generator",
    "tf.keras.preprocessing.text.*": "Python in dataset.map",
    "tf.keras.premade.*": "a model of keras.layers",
    "tf.keras.utils.audio_dataset_from_directory": "it needs TensorFlow: rx.data.Dataset",
    "tf.keras.utils.experimental.*": "coordinator.create_per_worker_dataset, in a loop of your own",
    "tf.keras.utils.multi_gpu_model": "make the model in the scope of a MirroredStrategy",
    "tf.keras.wrappers.*": "keras.wrappers.SKLearnClassifier and SKLearnRegressor",
    "tf.layers.*": "keras.layers: make the layers in the scope, call them in the step",
    "tf.linalg.*": "see jnp.linalg and jax.scipy.linalg",
    "tf.logging.*": "Python's logging",
    "tf.lookup.*": "a dict in dataset.map",
    "tf.losses.*": "keras.losses, whose functions return one loss for each row",
    "tf.math.*": "see jnp and jax.scipy.special",
    "tf.metrics.*": "a metric of keras.metrics, with update_state and result",
    "tf.nest.*": "jax.tree",
    "tf.nest.flatten": "jax.tree.leaves(structure)",
    "tf.nest.map_structure": "jax.tree.map(f, arrays, variables): arrays first",
    "tf.nest.pack_sequence_as": "jax.tree.unflatten(jax.tree.structure(structure), leaves)",
    "tf.nn.*": "see jax.nn and jnp",
    "tf.nn.batch_normalization": "(x - mean) * scale / jnp.sqrt(variance + epsilon) + offset",
    "tf.nn.dropout": "jax.random.bernoulli(generator.next_key(), keep, x.shape) * x / keep",
    "tf.nn.l2_normalize": "x / jnp.linalg.norm(x, axis=axis, keepdims=True)",
    "tf.nn.moments": "jnp.mean and jnp.var",
    "tf.no_op": "leave it out",
    "tf.numpy_function": "call the function: dataset.map takes any Python",
    "tf.print": 'jax.debug.print("{}", x), or print outside of functions',
    "tf.profiler.*": "jax.profiler",
    "tf.py_func": "call the function: dataset.map takes any Python",
    "tf.py_function": "call the function: dataset.map takes any Python",
    "tf.random.*": "a method of rx.random.Generator, or jax.random with generator.next_key()",
    "tf.raw_ops.*": "functions of jnp and jax.lax",
    "tf.saturate_cast": "jnp.clip(x, jnp.iinfo(dtype).min, jnp.iinfo(dtype).max).astype(dtype)",
    "tf.sequence_mask": "jnp.arange(maximum) < lengths[..., None]",
    "tf.strided_slice": "array[begin:end:strides]",
    "tf.scatter_nd": "jnp.zeros(shape).at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates)",
    "tf.set_random_seed": "rx.random.Generator.from_seed(seed), and seed= of dataset.shuffle",
    "tf.signal.*": "see jnp.fft",
    "tf.slice": "array[begin : begin + size]",
    "tf.sparse.*": "rx.io.SparseTensor has indices, values and dense_shape",
    "tf.strings.*": "methods of bytes, in dataset.map",
    "tf.summary.*": "rx.summary does not have it",
    "tf.tensor_scatter_nd_add": "array.at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates)",
    "tf.tensor_scatter_nd_max": "array.at[tuple(jnp.moveaxis(indices, -1, 0))].max(updates)",
    "tf.tensor_scatter_nd_min": "array.at[tuple(jnp.moveaxis(indices, -1, 0))].min(updates)",
    "tf.tensor_scatter_nd_sub": "array.at[tuple(jnp.moveaxis(indices, -1, 0))].add(-updates)",
    "tf.tensor_scatter_nd_update": "array.at[tuple(jnp.moveaxis(indices, -1, 0))].set(updates)",
    "tf.test.*": "unittest or pytest, and numpy.testing",
    "tf.timestamp": "time.time()",
    "tf.tpu.XLAOptions": "leave it out",
    "tf.train.*": "see rx.train and optax",
    "tf.train.CheckpointOptions": "leave it out",
    "tf.train.Saver": "rx.train.Checkpoint(name=variable, ...)",
    "tf.train.get_global_step": "optimizer.iterations",
    "tf.train.get_or_create_global_step": "optimizer.iterations",
    "tf.trainable_variables": "keep a list of the variables that you make",
    "tf.tuple": "leave it out",
    "tf.types.*": "jax.typing.ArrayLike, jax.Array",
    "tf.unique_with_counts": "jnp.unique(x, return_counts=True)",
    "tf.unstack": "list(array)",
    "tf.variable_scope": "leave it out: variables are kept by you",
    "tf.version.*": _VERSION,
    "tf.xla.*": "jax.jit and jax.lax",
    "tfds.*": "strategies take a tf.data data set as it is; without TensorFlow: "
    "rx.data.Dataset.from_source(tfds.data_source(name, split=split))",
}

# --- what there is nothing for -------------------------------------------------------------------

UNSUPPORTED: dict[str, str] = {
    "tf.Graph": "there are no graphs: lines run when they are reached",
    "tf.InteractiveSession": "there are no sessions: call the functions",
    "tf.RaggedTensor": "arrays have one shape: pad, as dataset.padded_batch does",
    "tf.Session": "there are no sessions: call the functions",
    "tf.contrib.*": "it is gone from TensorFlow as well",
    "tf.data.experimental.service.*": "there is no input service",
    "tf.disable_eager_execution": "there are no graphs: lines run when they are reached",
    "tf.disable_v2_behavior": "there are no graphs: lines run when they are reached",
    "tf.distribute.Server": "replicax launch, or a ParameterServerStrategy, starts the workers",
    "tf.distribute.experimental.PreemptionWatcher": (
        "rx.distribute.experimental.PreemptionCheckpointHandler saves and leaves"
    ),
    "tf.distribute.experimental.rpc.*": "workers do not call each other",
    "tf.estimator.*": "only Estimator, with a model_fn of your own, is here",
    "tf.feature_column.*": "make the features in dataset.map",
    "tf.get_default_graph": "there are no graphs: lines run when they are reached",
    "tf.keras.estimator.*": "model.fit; or an Estimator with a model_fn of your own",
    "tf.lite.*": "jax.export has what can be exported",
    "tf.placeholder": "there are no graphs: pass the value as an argument",
    "tf.python.*": "a private name of TensorFlow: use the public one first",
    "tf.quantization.*": "replicax has nothing for it",
    "tf.queue.*": "a rx.data.Dataset",
    "tf.ragged.*": "arrays have one shape: pad, as dataset.padded_batch does",
    "tf.reset_default_graph": "there are no graphs: lines run when they are reached",
    "tf.saved_model.*": "rx.train.Checkpoint saves variables; jax.export programs",
    "tf.tpu.experimental.HardwareFeature": "replicax has nothing for it",
    "tf.tpu.experimental.embedding.*": "an embedding is a variable, split by a layout",
    "tf.train.MonitoredTrainingSession": "there are no sessions: call the functions",
    "tf.train.Server": "replicax launch, or a ParameterServerStrategy, starts the workers",
    "tf.train.SyncReplicasOptimizer": "optimizers sum gradients over the replicas by themselves",
    "tf.train.replica_device_setter": "ParameterServerStrategy places variables by itself",
}

# --- objects: what they are, and what is different in their methods ------------------------------

# The class that has the methods of such an object.
CLASSES: dict[str, str] = {
    "Checkpoint": "rx.train.Checkpoint",
    "CheckpointManager": "rx.train.CheckpointManager",
    "Dataset": "rx.data.Dataset",
    "DistributedDataset": "rx.distribute.DistributedDataset",
    "InputContext": "rx.distribute.InputContext",
    "InputIterator": "rx.distribute.DistributedIterator",
    "Iterator": "rx.data.Iterator",
    "KerasVariable": "keras.Variable",
    "Layer": "keras.layers.Layer",
    "Metric": "keras.metrics.Metric",
    "Model": "keras.Model",
    "Optimizer": "keras.optimizers.Optimizer",
    "Optional": "rx.experimental.Optional",
    "Options": "rx.data.Options",
    "PreemptionCheckpointHandler": "rx.distribute.experimental.PreemptionCheckpointHandler",
    "ReplicaContext": "rx.distribute.ReplicaContext",
    "Strategy": "rx.distribute.Strategy",
    "SummaryWriter": "rx.summary.SummaryWriter",
    "Tensor": "jax.Array",
    "StrategyExtended": "rx.distribute.StrategyExtended",
    "TFRecordWriter": "rx.io.TFRecordWriter",
    "Variable": "rx.Variable",
}

# What a call gives, by the name in replicax or Keras; in TensorFlow, if there is none.
RETURNS: dict[str, str] = {
    "rx.data.Dataset.*": "Dataset",
    "rx.data.FixedLengthRecordDataset": "Dataset",
    "rx.data.TFRecordDataset": "Dataset",
    "rx.data.TextLineDataset": "Dataset",
    "rx.Variable": "Variable",
    "rx.io.TFRecordWriter": "TFRecordWriter",
    "rx.metrics.*": "Metric",
    "rx.summary.create_file_writer": "SummaryWriter",
    "rx.summary.create_noop_writer": "SummaryWriter",
    "rx.train.Checkpoint": "Checkpoint",
    "rx.train.CheckpointManager": "CheckpointManager",
    "rx.distribute.MirroredStrategy": "Strategy",
    "rx.distribute.MultiWorkerMirroredStrategy": "Strategy",
    "rx.distribute.OneDeviceStrategy": "Strategy",
    "rx.distribute.Strategy": "Strategy",
    "rx.distribute.StrategyExtended": "StrategyExtended",
    "rx.distribute.ReplicaContext": "ReplicaContext",
    "rx.distribute.InputContext": "InputContext",
    "rx.data.Dataset": "Dataset",
    "rx.data.Options": "Options",
    "rx.distribute.TPUStrategy": "Strategy",
    "rx.distribute.experimental.CentralStorageStrategy": "Strategy",
    "rx.distribute.experimental.PreemptionCheckpointHandler": "PreemptionCheckpointHandler",
    "rx.distribute.get_replica_context": "ReplicaContext",
    "rx.distribute.get_strategy": "Strategy",
    "tf.GradientTape": "GradientTape",
    "rx.distribute.ParameterServerStrategy": "Strategy",
    "rx.distribute.coordinator.ClusterCoordinator": "ClusterCoordinator",
    "rx.distribute.experimental.ParameterServerStrategy": "Strategy",
    "rx.distribute.experimental.coordinator.ClusterCoordinator": "ClusterCoordinator",
    "tf.InteractiveSession": "Session",
    "tf.Session": "Session",
    "tf.train.MonitoredTrainingSession": "Session",
    "keras.Layer": "Layer",
    "keras.Model": "Model",
    "keras.Sequential": "Model",
    "keras.Variable": "KerasVariable",
    "keras.applications.*": "Model",
    "keras.layers.*": "Layer",
    "keras.losses.*": "Loss",
    "keras.metrics.*": "Metric",
    "keras.mixed_precision.LossScaleOptimizer": "Optimizer",
    "keras.models.*": "Model",
    "keras.optimizers.*": "Optimizer",
    "tf.train.AdamOptimizer": "Optimizer",
    "tf.train.GradientDescentOptimizer": "Optimizer",
    "tf.train.MomentumOptimizer": "Optimizer",
    "tf.train.RMSPropOptimizer": "Optimizer",
    "tfds.load": "Dataset",
}

# What a method or attribute gives; `*` is any other one.
METHOD_RETURNS: dict[str, str] = {
    "Dataset.*": "Dataset",
    "Dataset.make_one_shot_iterator": "Iterator",
    "InputIterator.get_next_as_optional": "Optional",
    "Iterator.get_next_as_optional": "Optional",
    "Model.optimizer": "Optimizer",
    "Optimizer.iterations": "KerasVariable",
    "Optimizer.learning_rate": "KerasVariable",
    "Optimizer.lr": "KerasVariable",
    "Strategy.distribute_datasets_from_function": "DistributedDataset",
    "Strategy.experimental_distribute_dataset": "DistributedDataset",
    "Strategy.experimental_distribute_datasets_from_function": "DistributedDataset",
    "Strategy.experimental_make_numpy_dataset": "Dataset",
    "Strategy.extended": "StrategyExtended",
    "Strategy.make_dataset_iterator": "InputIterator",
    "Strategy.make_input_fn_iterator": "InputIterator",
    "ReplicaContext.strategy": "Strategy",
    "Tensor.get_shape": "Shape",
    "Variable.shape": "Shape",
}

# What an item of it is: the data sets of tfds.load, v[0].
ITEMS: dict[str, str] = {"Dataset": "Dataset", "Variable": "VariableSlice"}

# Methods that only such an object has: they tell what it is.
TELLING: dict[str, str] = {
    "all_reduce": "ReplicaContext",
    "merge_call": "ReplicaContext",
    "replica_id_in_sync_group": "ReplicaContext",
    "batch_reduce_to": "StrategyExtended",
    "call_for_each_replica": "StrategyExtended",
    "colocate_vars_with": "StrategyExtended",
    "experimental_run_steps_on_iterator": "StrategyExtended",
    "update_non_slot": "StrategyExtended",
    "distribute_datasets_from_function": "Strategy",
    "experimental_distribute_dataset": "Strategy",
    "experimental_distribute_datasets_from_function": "Strategy",
    "experimental_distribute_values_from_function": "Strategy",
    "experimental_local_results": "Strategy",
    "experimental_make_numpy_dataset": "Strategy",
    "experimental_run": "Strategy",
    "experimental_run_v2": "Strategy",
    "make_dataset_iterator": "Strategy",
    "make_input_fn_iterator": "Strategy",
    "num_replicas_in_sync": "Strategy",
    "update_config_proto": "Strategy",
    "make_one_shot_iterator": "Dataset",
    "make_initializable_iterator": "Dataset",
    "as_numpy_iterator": "Dataset",
    "padded_batch": "Dataset",
    "get_per_replica_batch_size": "InputContext",
    "input_pipeline_id": "InputContext",
    "add_weight": "Layer",
    "apply_gradients": "Optimizer",
    "get_scaled_loss": "Optimizer",
    "get_unscaled_gradients": "Optimizer",
    "compiled_loss": "Model",
    "compiled_metrics": "Model",
    "trainable_variables": "Model",
    "trainable_weights": "Model",
    "scatter_add": "Variable",
    "scatter_nd_add": "Variable",
    "scatter_nd_sub": "Variable",
    "scatter_nd_update": "Variable",
    "scatter_sub": "Variable",
    "scatter_update": "Variable",
    "get_concrete_function": "function",
    "gradient": "GradientTape",
    "get_next_as_optional": "InputIterator",
    "create_per_worker_dataset": "ClusterCoordinator",
    "get_shape": "Tensor",
    "set_shape": "Tensor",
}

# Methods that replicax has under another name, or not at all. Those that it has carry over.
RENAMED_METHODS: dict[str, str] = {
    "Dataset.make_one_shot_iterator": "iter",
    "Metric.reset_states": "Metric.reset_state",
    "Shape.as_list": "list",
    "Shape.ndims": "len",
    "Shape.num_elements": "np.prod",
    "Shape.rank": "len",
    "Tensor.get_shape": "Tensor.shape",
    "Tensor.set_shape": "",
    "Optimizer.get_scaled_loss": "Optimizer.scale_loss",
    "Optimizer.get_unscaled_gradients": "",
    "Optimizer.lr": "Optimizer.learning_rate",
    "Strategy.call_for_each_replica": "Strategy.run",
    "Strategy.unwrap": "Strategy.experimental_local_results",
}
THOUGHT_METHODS: dict[str, str] = {
    "CheckpointManager.*": "rx.train.CheckpointManager does not have it",
    "Dataset.*": "rx.data.Dataset does not have it: see from_generator",
    "Dataset.make_initializable_iterator": "iter(dataset); nothing is initialized",
    "Dataset.output_shapes": "dataset.element_spec",
    "Dataset.output_types": "dataset.element_spec",
    "DistributedDataset.*": "loop over it, or iter() of it",
    "GradientTape.batch_jacobian": "jax.vmap(jax.jacrev(function))(arrays)",
    "GradientTape.jacobian": "jax.jacrev(function)(arrays)",
    "GradientTape.reset": "leave out of loss_fn what is above",
    "GradientTape.stop_recording": "jax.lax.stop_gradient(value)",
    "GradientTape.watched_variables": "the variables of rx.value_and_grad",
    "GradientTape.gradient": "loss, gradients = rx.value_and_grad(loss_fn, variables)",
    "GradientTape.watch": "make it a rx.Variable, or use jax.grad",
    "InputContext.*": "rx.distribute.InputContext does not have it",
    "InputIterator.*": "rx.distribute.DistributedIterator does not have it",
    "InputIterator.initializer": "leave it out: an iterator is ready to be read",
    "Iterator.*": "rx.data.Iterator does not have it",
    "Iterator.initializer": "leave it out: an iterator is ready to be read",
    "Model.add_metric": "a metric of the model: self.metric.update_state(value)",
    "Model.compiled_loss": "self.compute_loss(x, y, predictions)",
    "Model.compiled_metrics": "self.compute_metrics(x, y, predictions)",
    "Model.evaluate_generator": "model.evaluate(generator)",
    "Model.fit_generator": "model.fit(generator)",
    "Model.predict_generator": "model.predict(generator)",
    "Model.reset_states": "model.reset_state() of its recurrent layers",
    "Optimizer.compute_gradients": "loss, gradients = rx.value_and_grad(loss_fn, variables)",
    "Optimizer.get_gradients": "rx.grad(loss_fn, variables)",
    "Optimizer.minimize": (
        "loss, gradients = rx.value_and_grad(loss_fn, variables), then apply_gradients"
    ),
    "Optional.*": "rx.experimental.Optional does not have it",
    "Options.*": "rx.data.Options does not have it",
    "PreemptionCheckpointHandler.*": "the handler of replicax does not have it",
    "ReplicaContext.*": "rx.distribute.ReplicaContext does not have it",
    "Shape.assert_is_compatible_with": "assert x.shape == shape",
    "Shape.is_fully_defined": "leave it out: shapes are known",
    "Strategy.*": "rx.distribute.Strategy does not have it",
    "Strategy.colocate_vars_with": "strategy.extended.colocate_vars_with",
    "Strategy.configure": "leave it out: there are no sessions to configure",
    "StrategyExtended.*": "rx.distribute.StrategyExtended does not have it",
    "SummaryWriter.*": "rx.summary.SummaryWriter does not have it",
    "TFRecordWriter.*": "rx.io.TFRecordWriter does not have it",
    "Variable.*": "rx.Variable does not have it",
    "Variable.eval": "variable.numpy()",
    "Variable.initializer": "leave it out: variables are ready when they are made",
    "VariableSlice.assign": "v.assign(v.at[index].set(value))",
    "VariableSlice.assign_add": "v.assign_add(jnp.zeros_like(v).at[index].add(value))",
    "VariableSlice.assign_sub": "v.assign_sub(jnp.zeros_like(v).at[index].add(value))",
    "function.get_concrete_function": "call it: a function is compiled at its first call",
}
UNSUPPORTED_METHODS: dict[str, str] = {
    "Session.*": "there are no sessions: call the functions",
    "Session.run": "there are no sessions: call the function that computes it",
}
# Calls of the object itself carry over.
CALLED = "Loss Model"


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
