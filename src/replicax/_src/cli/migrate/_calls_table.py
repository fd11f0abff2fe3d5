"""What of TensorFlow is what in JAX and Keras: the table of functions, with their arguments.

Names are written as in `_table.py`. `_rewrites.py` reads what is written of calls.
"""

from replicax._src.cli.migrate._rows import pairs

# --- calls that are rewritten with their arguments -----------------------------------------------

# `old(parameters) -> new;`, or without an arrow where the function of `jnp` takes the same. A name
# without a dot is that of `tf` and `tf.math`. A parameter has
#   =None     where the new call leaves it out if the old one does; another value is written there
#   |other    an older name
#   :axes     numbers; `:any`; `:array`, of which JAX takes no lists; `:places`, of which no library
#             does; `:parts`, a number of parts or their sizes; `:sizes`, a list of sizes none of
#             which is -1; `:strides` of images, as written-out numbers; `:True`, only this value
#   _         in front: not to be had here.
# Of several forms of a function, the first is taken that a call fits. `name=` is left out.
CALLS = """
    NAME(x) | abs ceil conj cos cosh exp expm1 floor log log1p logical_not negative reciprocal round
        sign sin sinh sqrt square tan tanh;
    NAME(x, y) | add divide equal greater greater_equal less less_equal logical_and logical_or
        logical_xor maximum minimum mod multiply not_equal subtract;
    NAME(input) | angle imag real size; NAME(*) | einsum meshgrid; broadcast_to(input, shape);
    linspace(start, stop, num); matmul(a, b); reshape(tensor, shape); roll(input, shift, axis);
    tensordot(a, b, axes); tile(input, multiples); where(condition, x, y);
    shape(input, out_type=None) -> jnp.shape(input);
    aNAME(x) -> jnp.arcNAME(x) | cos cosh sin sinh tan tanh; atan2(y, x) -> jnp.arctan2(y, x);
    NAME(x) -> jax.scipy.special.NAME(x) | digamma erf; lgamma(x) -> jax.scipy.special.gammaln(x);
    is_NAME(x) -> jnp.isNAME(x) | finite inf nan; linalg.NAME(input) -> jnp.linalg.NAME(input) | det
        inv cholesky;
    nn.NAME(features) -> jax.nn.NAME(features) | elu relu relu6 selu softplus;
    nn.NAME(features) -> jax.nn.silu(features) | silu swish; nn.sigmoid(x) -> jax.nn.sigmoid(x);
    nn.tanh(x) -> jnp.tanh(x); NAME(x) -> jax.nn.NAME(x) | log_sigmoid sigmoid;
    softplus(features) -> jax.nn.softplus(features);
    NAME(features) -> jax.nn.soft_sign(features) | softsign nn.softsign;
    NAME(logits, axis=None) -> jax.nn.NAME(logits, axis=axis) | softmax log_softmax;
    nn.NAME(logits, axis=None) -> jax.nn.NAME(logits, axis=axis) | softmax log_softmax;
    NAME(x, y) -> jnp.true_divide(x, y) | realdiv truediv; floormod(x, y) -> jnp.mod(x, y);
    floordiv(x, y) -> jnp.floor_divide(x, y); pow(x, y) -> jnp.power(x, y);
    scalar_mul(scalar, x) -> scalar * x;
    squared_difference(x, y) -> (x - y) ** 2; rint(x) -> jnp.round(x); rsqrt(x) -> 1 / jnp.sqrt(x);
    nn.l2_loss(t) -> jnp.sum(jnp.square(t)) / 2; nn.bias_add(value, bias) -> value + bias;
    add_n(inputs) -> sum(inputs); cast(x:any, dtype) -> cast(x, dtype);
    to_float(x:any) -> cast(x, jnp.float32); to_int32(x:any) -> cast(x, jnp.int32);
    ensure_shape(x, shape) -> x; identity(input, name=None) -> input;
    fill(dims, value) -> jnp.full(dims, value); rank(input) -> jnp.ndim(input);
    is_tensor(x) -> isinstance(x, (jax.Array, rx.Variable));
    name_scope(name) -> jax.named_scope(name); linalg.einsum(*) -> jnp.einsum();
    linalg.matmul(a, b) -> jnp.matmul(a, b); unstack(value) -> list(value);
    unstack(value, num=None, axis=0) -> list(jnp.moveaxis(value, axis, 0));
    app.run(main=main, argv=None) -> absl_app.run(main, argv);
    NAME(input, axis|dimension=0) -> jnp.NAME(input, axis=axis) | argmax argmin;
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
    NAME(x, axis=0, exclusive:False=None, reverse:False=None)
        -> jnp.NAME(x, axis=axis) | cumprod cumsum;
    NAME(x, axis=0, exclusive:False=None, reverse:True)
        -> jnp.flip(jnp.NAME(jnp.flip(x, axis), axis=axis), axis) | cumprod cumsum;
    cumsum(x, axis=0, exclusive:True, reverse:False=None)
        -> jnp.cumsum(jnp.delete(jnp.insert(x, 0, 0, axis), -1, axis), axis=axis);
    cumsum(x, axis=0, exclusive:True, reverse:True) -> jnp.flip(jnp.cumsum(
        jnp.delete(jnp.insert(jnp.flip(x, axis), 0, 0, axis), -1, axis), axis=axis), axis);
    expand_dims(input, axis|dim) -> jnp.expand_dims(input, axis);
    NAME(num_rows, num_columns=None) -> jnp.eye(num_rows, num_columns) | eye linalg.eye;
    gather(params, indices:array, _validate_indices, axis=0, _batch_dims)
        -> jnp.take(params, indices, axis=axis);
    gather_nd(params:array, indices:places) -> params[tuple(jnp.moveaxis(indices, -1, 0))];
    NAME(t_list) -> jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in t_list)) | global_norm
        linalg.global_norm;
    decode_raw(input_bytes|bytes, out_type) -> np.frombuffer(input_bytes, out_type);
    io.decode_raw(input_bytes, out_type) -> np.frombuffer(input_bytes, out_type);
    get_logger() -> logging.getLogger("replicax");
    image.psnr(a, b, max_val) -> 20 * jnp.log10(max_val) - 10 * jnp.log10(jnp.mean(
        jnp.square(cast(a, jnp.float32) - cast(b, jnp.float32)), axis=(-3, -2, -1)));
    NAME(x, axis|dim:axes=None, epsilon=1e-12) -> x * jax.lax.rsqrt(jnp.maximum(
        jnp.sum(jnp.square(x), axis=axis, keepdims=True), epsilon)) | l2_normalize nn.l2_normalize;
    linalg.l2_normalize(x, axis:axes=None, epsilon=1e-12) -> x * jax.lax.rsqrt(jnp.maximum(
        jnp.sum(jnp.square(x), axis=axis, keepdims=True), epsilon));
    linalg.band_part(input, num_lower:-1, num_upper:0) -> jnp.tril(input);
    linalg.band_part(input, num_lower:0, num_upper:-1) -> jnp.triu(input);
    linalg.diag_part(input) -> jnp.diagonal(input, axis1=-2, axis2=-1);
    NAME(a, b, _transpose_a, transpose_b:True) -> jnp.matmul(a, jnp.swapaxes(b, -1, -2))
        | linalg.matmul matmul;
    NAME(tensor, _ord, axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims) | norm linalg.norm;
    NAME(tensor, ord:"euclidean", axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(tensor, axis=axis, keepdims=keepdims) | norm linalg.norm;
    NAME(tensor, ord:2) -> jnp.linalg.norm(tensor) | norm linalg.norm;
    matmul(a, b, transpose_a:True) -> jnp.matmul(jnp.swapaxes(a, -1, -2), b);
    nn.conv2d(input, filters|filter, strides:strides, padding:"NAME", data_format:"NHWC"=None)
        -> jax.lax.conv_general_dilated(input, jnp.asarray(filters), strides, "NAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC")) | SAME VALID;
    nn.gelu(features, approximate=False) -> jax.nn.gelu(features, approximate=approximate);
    nn.leaky_relu(features, alpha=0.2) -> jax.nn.leaky_relu(features, alpha);
    nn.moments(x, axes:axes, _shift, keepdims|keep_dims=None)
        -> (jnp.mean(x, axis=axes, keepdims=keepdims), jnp.var(x, axis=axes, keepdims=keepdims));
    nn.sigmoid_cross_entropy_with_logits(labels, logits)
        -> optax.sigmoid_binary_cross_entropy(logits, labels);
    nn.NAME(labels, logits) -> optax.softmax_cross_entropy(logits, labels)
        | softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2;
    nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        -> optax.softmax_cross_entropy_with_integer_labels(logits, labels);
    NAME(input, k, _sorted) -> jax.lax.top_k(input, k) | top_k nn.top_k;
    one_hot(indices, depth, _on_value, _off_value, axis=None, dtype=None)
        -> jax.nn.one_hot(indices, depth, axis=axis, dtype=dtype);
    one_hot(indices, depth)
        -> (np.asarray(indices)[..., None] == np.arange(depth)).astype(np.float32);
    NAME(shape, dtype=None) -> jnp.NAME(shape, dtype) | ones zeros;
    NAME_like(input|tensor, dtype=None) -> jnp.NAME_like(input, dtype=dtype) | ones zeros;
    pad(tensor, paddings, _mode, constant_values=None)
        -> jnp.pad(tensor, paddings, constant_values=constant_values);
    pad(tensor, paddings, mode:"CONSTANT", constant_values=None)
        -> jnp.pad(tensor, paddings, constant_values=constant_values);
    pad(tensor, paddings, mode:"REFLECT") -> jnp.pad(tensor, paddings, mode="reflect");
    pad(tensor, paddings, mode:"SYMMETRIC") -> jnp.pad(tensor, paddings, mode="symmetric");
    map_fn(fn, elems, dtype|fn_output_signature=None) -> jax.lax.map(fn, elems);
    range(start, limit=None, delta=None, dtype=None)
        -> jnp.arange(start, limit, delta, dtype=dtype);
    reduce_NAME(input_tensor:array, axis|reduction_indices:axes=None, keepdims|keep_dims=None)
        -> jnp.NAME(input_tensor, axis=axis, keepdims=keepdims) | all any max mean min prod std sum;
    reduce_variance(input_tensor:array, axis|reduction_indices:axes=None, keepdims|keep_dims=None)
        -> jnp.var(input_tensor, axis=axis, keepdims=keepdims);
    reduce_euclidean_norm(input_tensor:array, axis:axes=None, keepdims=None)
        -> jnp.linalg.norm(input_tensor, axis=axis, keepdims=keepdims);
    reduce_logsumexp(input_tensor:array, axis:axes=None, keepdims=None)
        -> jax.scipy.special.logsumexp(input_tensor, axis=axis, keepdims=keepdims);
    repeat(input, repeats, axis=None) -> jnp.repeat(input, repeats, axis=axis);
    reverse(tensor, axis:axes) -> jnp.flip(tensor, axis);
    scatter_nd(indices:places, updates:places, shape) -> jnp.zeros(shape, jnp.result_type(
        updates)).at[tuple(jnp.moveaxis(indices, -1, 0))].add(updates);
    slice(input_, begin, size:sizes) -> jax.lax.dynamic_slice(input_, begin, size);
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
"""

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
CALLS += """
    keras.backend.NAME(x) -> keras.ops.NAME(x) | abs cos exp log ones_like relu round sigmoid sign
        sin softplus softsign sqrt square tanh transpose zeros_like;
    keras.backend.NAME(x, axis:axes=None, keepdims=None)
        -> keras.ops.NAME(x, axis=axis, keepdims=keepdims) | all any logsumexp max mean min prod std
        sum var;
    keras.backend.NAME(x, y) -> keras.ops.NAME(x, y) | equal greater greater_equal less less_equal
        maximum minimum not_equal;
    keras.backend.NAME(x, axis=-1) -> keras.ops.NAME(x, axis=axis) | argmax argmin softmax;
    keras.backend.NAME(x, axis=0) -> keras.ops.NAME(x, axis=axis) | cumsum stack;
    keras.backend.arange(start, stop=None, step=None, dtype="int32")
        -> keras.ops.arange(start, stop, step, dtype=dtype);
    keras.backend.cast(x, dtype) -> keras.ops.cast(x, dtype);
    keras.backend.clip(x, min_value, max_value) -> keras.ops.clip(x, min_value, max_value);
    keras.backend.concatenate(tensors, axis=-1) -> keras.ops.concatenate(tensors, axis=axis);
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
    keras.backend.squeeze(x, axis) -> keras.ops.squeeze(x, axis=axis);
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
NOT_OF_KERAS = """arange complex conv_general_dilated delete digamma dynamic_slice eye float32 full
    gammaln insert int32 linspace named_scope ones result_type zeros"""
OTHERWISE_IN_KERAS: dict[str, str] = {"asarray": "convert_to_tensor", "soft_sign": "softsign"}

# Names of activations, which layers of Keras take, and save, as texts.
ACTIVATIONS = """elu gelu leaky_relu log_softmax relu relu6 selu sigmoid silu softmax softplus
    softsign swish tanh"""

# --- maths: a function of JAX does the same, but its arguments are its own -----------------------

# A name without a dot is that of `tf` and `tf.math`.
MATHS = dict(
    pairs("""
    linalg.NAME -> jnp.linalg.NAME | eigh pinv qr slogdet solve svd trace;
    segment_NAME -> jax.ops.segment_NAME | max min prod sum;
    unsorted_segment_NAME -> jax.ops.segment_NAME | max min prod sum;
    NAME -> jax.scipy.special.NAME | betainc erfc erfinv polygamma xlog1py xlogy zeta;
    bessel_NAME -> jax.scipy.special.NAME | i0 i0e i1 i1e;
    signal.NAME -> jnp.fft.NAME | fft ifft irfft rfft;
    random.stateless_NAME -> jax.random.NAME | normal truncated_normal uniform;
    nn.NAME -> jax.lax.conv_general_dilated | conv1d conv2d conv3d convolution depthwise_conv2d;
    nn.NAME -> jax.lax.reduce_window | avg_pool avg_pool2d max_pool max_pool2d;
    NAME -> jnp.NAME | bincount nextafter polyval searchsorted unique unravel_index;
    NAME -> jax.lax.NAME | scan top_k while_loop; custom_gradient -> jax.custom_vjp;
    igamma -> jax.scipy.special.gammainc; igammac -> jax.scipy.special.gammaincc;
    invert_permutation -> jnp.argsort; linalg.diag -> jnp.diag; linalg.matvec -> jnp.matvec;
    linalg.triangular_solve -> jax.scipy.linalg.solve_triangular;
    nn.conv2d_transpose -> jax.lax.conv_transpose; nn.ctc_loss -> optax.ctc_loss;
    nn.top_k -> jax.lax.top_k; random.fold_in -> jax.random.fold_in;
    recompute_grad -> jax.checkpoint; switch_case -> jax.lax.switch; truncatemod -> jnp.fmod;
    vectorized_map -> jax.vmap;
    """)
)

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
OLD_OPTIMIZERS = dict(
    pairs("""
    AdadeltaOptimizer -> optax.adadelta; AdagradOptimizer -> optax.adagrad;
    AdamOptimizer -> rx.train.adam; NAMEOptimizer -> optax.sgd | GradientDescent Momentum;
    RMSPropOptimizer -> optax.rmsprop;
    """)
)
