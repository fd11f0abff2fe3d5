"""The arrays and calls that TensorFlow and ported programs compute with, to be compared."""

import numpy as np

_UNARY = """abs acosh angle asin asinh atan atanh acos ceil conj cos cosh digamma erf exp expm1
floor imag is_finite is_inf is_nan lgamma log log1p log_sigmoid negative real reciprocal rint round
rsqrt sigmoid sign sin sinh softplus sqrt square tan tanh"""
_NARROW = {"acosh": "q", "acos": "u", "asin": "u", "atanh": "u", "log1p": "p", "log": "p"}
_NARROW |= {name: "p" for name in ("rsqrt", "sqrt", "reciprocal", "digamma", "lgamma")}
_BINARY = "add divide equal floordiv floormod greater greater_equal less less_equal maximum minimum"
_BINARY += " multiply not_equal squared_difference subtract truediv mod"
_REDUCTIONS = "max mean min prod std sum variance euclidean_norm logsumexp"
_AXES = ["", "axis=0", "axis=-1", "axis=[0, 2]", "axis=1, keepdims=True", "[0, 1], True"]
_ACTIVATIONS = "elu gelu leaky_relu relu relu6 selu sigmoid silu softplus softsign swish tanh"


def arrays() -> dict[str, np.ndarray]:
    """The arrays, by the names that calls have for them."""
    rng = np.random.default_rng(0)

    def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
        return rng.uniform(low, high, shape).astype(np.float32)

    return {
        "x": floats(3, 4),
        "y": floats(3, 4, low=0.5),
        "p": floats(3, 4, low=0.1),
        "q": floats(3, 4, low=1.1),
        "u": floats(3, 4, low=-0.9, high=0.9),
        "a": floats(2, 3, 4),
        "b": floats(2, 4, 3),
        "s": floats(4, 4) + 4 * np.eye(4, dtype=np.float32),
        "spd": 4 * np.eye(3, dtype=np.float32) + 1,
        "i": np.array([2, 0, 1], np.int32),
        "n": np.array([[7, -7, 3], [5, 2, -2]], np.int32),
        "k": np.array([[2, 2, 2], [3, 3, 3]], np.int32),
        "m": np.array([True, False, True]),
        "w": np.array([[True, False, True, False]] * 3),
        "one_hot": np.eye(4, dtype=np.float32)[[0, 3, 1]],
    }


def calls() -> list[str]:
    """Calls of TensorFlow on these arrays, each with arguments that may be read in several ways."""
    found = []
    for name in _UNARY.split():
        found.append(f"tf.math.{name}({_NARROW.get(name, 'x')})")
    found += [f"tf.math.{name}(x, y)" for name in _BINARY.split()]
    found += [
        "tf.math.pow(p, y)",
        "tf.math.floormod(n, k)",
        "tf.math.floordiv(n, k)",
        "tf.math.mod(n, k)",
    ]
    found += [
        f"tf.math.reduce_{name}(a, {axes})".replace(", )", ")")
        for name in _REDUCTIONS.split()
        for axes in _AXES
    ]
    found += [f"tf.reduce_{name}(w, {axis})" for name in ("all", "any") for axis in ("0", "axis=1")]
    found += ["tf.reduce_sum(n)", "tf.reduce_max(n, 1)", "tf.reduce_sum([x, y])"]
    found += ["tf.reduce_mean([x, y], axis=0)"]
    found += [f"tf.nn.{name}(x)" for name in _ACTIVATIONS.split()]
    found += ["tf.nn.leaky_relu(x, 0.3)", "tf.nn.leaky_relu(x, alpha=0.1)"]
    found += ["tf.nn.gelu(x, approximate=True)", "tf.nn.l2_loss(a)", "tf.nn.bias_add(x, x[0])"]
    for name in ("tf.nn.softmax", "tf.nn.log_softmax", "tf.math.softmax"):
        found += [f"{name}(a)", f"{name}(a, axis=1)", f"{name}(a, 0)"]
    for name in ("tf.nn.l2_normalize", "tf.math.l2_normalize", "tf.linalg.l2_normalize"):
        found += [f"{name}(a, axis=-1)", f"{name}(x)", f"{name}(a, [1, 2])", f"{name}(x, 0, 10.0)"]
    found += [
        f"tf.math.{name}(a{axis})"
        for name in ("argmax", "argmin", "cumsum", "cumprod")
        for axis in ("", ", axis=1", ", axis=-1")
    ]
    found += ["tf.sort(a)", "tf.sort(a, axis=1)", "tf.argsort(a)", "tf.argsort(a, axis=0)"]
    found += ["tf.sort(x, direction='DESCENDING')", "tf.argsort(x, 0, direction='DESCENDING')"]
    found += ["tf.gather(x, i)", "tf.gather(x, [0, 2], axis=1)", "tf.gather(a, i, axis=2)"]
    found += ["tf.gather(x, n[:1] * 0 + 2)", "tf.nn.embedding_lookup(x, i)"]
    found += ["tf.transpose(a)", "tf.transpose(a, perm=[1, 0, 2])", "tf.transpose(a, [0, 2, 1])"]
    found += ["tf.concat([x, y], 0)", "tf.concat([x, y], axis=-1)", "tf.concat(values=[x], axis=0)"]
    found += ["tf.stack([x, y])", "tf.stack([x, y], axis=1)", "tf.unstack(x)"]
    found += ["tf.unstack(x, axis=1)", "tf.unstack(a, num=4, axis=-1)"]
    found += ["tf.split(x, 2, axis=1)", "tf.split(x, 3)", "tf.split(x, [1, 3], axis=1)"]
    found += ["tf.split(a, [2, 1, 1], -1)", "tf.split(x, num_or_size_splits=[1, 2])"]
    found += ["tf.expand_dims(x, 1)", "tf.expand_dims(x, axis=-1)", "tf.squeeze(x[:, None])"]
    found += ["tf.squeeze(x[None, :, None], axis=[0, 2])", "tf.squeeze(x[None], 0)"]
    found += ["tf.reshape(a, [4, -1])", "tf.reshape(x, (-1,))", "tf.tile(x, [2, 1])"]
    found += ["tf.repeat(x, 2)", "tf.repeat(x, 2, axis=1)", "tf.reverse(a, [0])"]
    found += ["tf.reverse(a, axis=[0, 2])", "tf.roll(x, 1, 0)", "tf.roll(x, shift=2, axis=1)"]
    found += ["tf.pad(x, [[1, 0], [0, 2]])", "tf.pad(x, [[1, 1], [0, 0]], constant_values=3.0)"]
    found += ["tf.slice(x, [1, 0], [2, 3])", "tf.slice(a, [0, 1, 1], [2, 2, 3])"]
    found += ["tf.boolean_mask(x, m)", "tf.boolean_mask(x, w)", "tf.where(w, x, y)"]
    found += ["tf.broadcast_to(x[0], [3, 4])", "tf.clip_by_value(x, -0.5, 0.5)"]
    found += ["tf.cast(x, tf.int32)", "tf.cast(w, tf.float32)", "tf.cast(n, 'float32')"]
    found += ["tf.one_hot(i, 4)", "tf.one_hot(i, depth=3)", "tf.one_hot(n, 3)"]
    found += ["tf.one_hot(i, 2)", "tf.range(5)", "tf.range(2, 9, 3)", "tf.range(1.0, 2.0, 0.25)"]
    found += ["tf.fill([2, 3], 1.5)", "tf.zeros([2, 3])", "tf.ones((2,))", "tf.eye(3)"]
    found += ["tf.eye(2, num_columns=3)", "tf.zeros_like(x)", "tf.ones_like(n)"]
    found += ["tf.linspace(0.0, 1.0, 5)", "tf.meshgrid(x[0], y[0])", "tf.size(a)", "tf.rank(a)"]
    found += ["tf.shape(a)[1]", "tf.matmul(a, b)", "tf.matmul(a, a, transpose_b=True)"]
    found += ["tf.matmul(x, x, transpose_a=True)", "tf.linalg.matmul(x, y, transpose_b=True)"]
    found += ["tf.tensordot(x, y, 2)", "tf.tensordot(a, b, [[2], [1]])"]
    found += ["tf.tensordot(a, x, axes=[[1, 2], [0, 1]])", "tf.einsum('bij,bjk->bik', a, b)"]
    found += ["tf.linalg.det(s)", "tf.linalg.inv(s)", "tf.linalg.cholesky(spd)", "tf.norm(x)"]
    found += ["tf.norm(x, axis=1)", "tf.norm(a, axis=-1, keepdims=True)", "tf.linalg.norm(a)"]
    found += ["tf.math.atan2(x, y)", "tf.math.logical_and(w, ~w)", "tf.math.logical_or(w, x > 0)"]
    found += ["tf.math.logical_not(w)", "tf.math.logical_xor(w, x > 0)", "tf.scalar_mul(2.0, x)"]
    found += ["tf.add_n([x, y, x])", "tf.math.count_nonzero(n)", "tf.math.count_nonzero(w, axis=0)"]
    found += ["tf.nn.moments(a, axes=[0])", "tf.nn.moments(a, [0, 1])", "tf.nn.moments(x, 1)"]
    found += [
        "tf.nn.moments(a, [1], keepdims=True)",
        "tf.nn.top_k(x, 2)[0]",
        "tf.nn.top_k(x, 2)[1]",
    ]
    found += ["tf.math.top_k(n, k=1)[1]", "tf.identity(x) * 2", "tf.stop_gradient(x)"]
    found += ["tf.convert_to_tensor([1.0, 2.0])", "tf.linalg.global_norm([x, y])"]
    found += ["tf.nn.sigmoid_cross_entropy_with_logits(labels=one_hot, logits=x)"]
    found += ["tf.nn.softmax_cross_entropy_with_logits(one_hot, x)"]
    found += ["tf.nn.sparse_softmax_cross_entropy_with_logits(labels=i, logits=x)"]
    found += ["tf.norm(a, ord='euclidean', axis=1)", "tf.linalg.norm(a, ord=2)"]
    found += ["tf.pad(x, [[1, 1], [2, 2]], 'REFLECT')", "tf.pad(x, n[:, :2] % 3, mode='SYMMETRIC')"]
    found += ["tf.pad(x, [[1, 0], [0, 0]], mode='CONSTANT', constant_values=2.0)"]
    found += ["tf.cumsum(a, axis=1, exclusive=True)", "tf.cumsum(n, reverse=True)"]
    found += [
        "tf.cumsum(p**40, axis=1, exclusive=True)",
        "tf.cumsum(a * a, 1, True, False)",
        "tf.cumsum(n, 1, exclusive=True, reverse=True)",
        "tf.math.cumprod(a, axis=1, reverse=True)",
        "tf.nn.conv2d(tf.reshape(a, (2, 3, 4, 1)), tf.ones((2, 2, 1, 3)), 1, 'SAME')",
        "tf.nn.conv2d(tf.reshape(a, (2, 3, 4, 1)), tf.ones((2, 2, 1, 3)), [1, 2, 2, 1], 'VALID')",
        "tf.nn.conv2d(tf.reshape(a, (2, 4, 3, 1)), filters=tf.ones((3, 1, 1, 2)),"
        " strides=(2, 1), padding='SAME', data_format='NHWC')",
    ]
    found += ["tf.clip_by_norm(x, 1.0)", "tf.clip_by_norm(x, 9.0)"]
    found += ["tf.clip_by_norm(a, 1.5, -1)", "tf.clip_by_norm(a, 1.5, axes=[0, 1])"]
    found += ["tf.gather_nd(a, [[0, 1], [1, 2]])", "tf.gather_nd(x, indices=k[:, :1] - 1)"]
    found += ["tf.scatter_nd([[1], [3], [1]], [1.0, 2.0, 3.0], [5])", "tf.where(w)"]
    found += ["tf.scatter_nd(i[:, None], n[0], shape=[4])"]
    found += [f"tf.tensor_scatter_nd_{each}(x, i[:2, None], y[:2])" for each in ("update", "add")]
    found += ["tf.tensor_scatter_nd_sub(n, [[0, 1], [1, 1]], updates=[5, 6])"]
    found += ["tf.linalg.band_part(a, -1, 0)", "tf.linalg.band_part(x, 0, -1)"]
    found += [
        "tf.linalg.diag_part(a)",
        "tf.linalg.diag_part(s)",
        "tf.shape(a, out_type='int32')[1]",
    ]
    found += ["tf.map_fn(lambda row: row * 2.0, x)", "tf.identity(x, 'name')"]
    found += ["tf.cond(x[0, 0] > 5.0, lambda: x * 2.0, lambda: x + y)"]
    found += ["tf.cond(x[0, 0] < 5.0, true_fn=lambda: x, false_fn=lambda: y)"]
    found += ["tf.dtypes.cast(n, tf.dtypes.float32)", "tf.image.psnr(a, a[::-1], max_val=2.0)"]
    found += ["tf.abs(tf.complex(x, y))", "tf.image.psnr(a[None], a[None] + 1, 255)"]
    v1 = "tf.compat.v1.losses"
    found += [f"{v1}.mean_squared_error(x, y)", f"{v1}.absolute_difference(x, predictions=y)"]
    found += [f"{v1}.sparse_softmax_cross_entropy(labels=i, logits=x)"]
    found += [f"{v1}.softmax_cross_entropy(one_hot, x)", f"{v1}.sigmoid_cross_entropy(one_hot, x)"]
    return found
