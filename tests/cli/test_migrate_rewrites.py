"""Calls that `replicax migrate` rewrites with their arguments, and what the new ones compute."""

import keras
import numpy as np
import pytest

from replicax._src.cli.migrate import _calls_table
from replicax._src.cli.migrate._lookup import exists, function_of, signature
from replicax._src.cli.migrate._rewrites import Library, Refused, forms, name_in
from tests.cli.porting import advice, check, ported

HEAD = "import jax\nimport jax.numpy as jnp\nimport optax\n"
KERAS = "import keras\nlayer = keras.layers.Dense(1)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.argmax(x)", "jnp.argmax(x, axis=0)"),
        ("tf.argmax(x, 1)", "jnp.argmax(x, axis=1)"),
        ("tf.math.argmin(x, axis=-1)", "jnp.argmin(x, axis=-1)"),
        ("tf.cumsum(x)", "jnp.cumsum(x, axis=0)"),
        ("tf.gather(x, i)", "jnp.take(x, i, axis=0)"),
        ("tf.gather(x, [0, 1], axis=1)", "jnp.take(x, jnp.asarray([0, 1]), axis=1)"),
        ("tf.nn.leaky_relu(x)", "jax.nn.leaky_relu(x, 0.2)"),
        ("tf.nn.gelu(x)", "jax.nn.gelu(x, approximate=False)"),
        ("tf.transpose(x, perm=[1, 0])", "jnp.transpose(x, [1, 0])"),
        ("tf.split(x, 2, axis=1)", "jnp.split(x, 2, axis=1)"),
        ("tf.split(x, num_or_size_splits=2)", "jnp.split(x, 2, axis=0)"),
        ("tf.sort(x)", "jnp.sort(x)"),
        ("tf.sort(x, direction='DESCENDING')", "jnp.flip(jnp.sort(x, axis=-1), -1)"),
        ("tf.matmul(x, y, transpose_b=True)", "jnp.matmul(x, jnp.swapaxes(y, -1, -2))"),
        ("tf.matmul(x, y, transpose_a=True)", "jnp.matmul(jnp.swapaxes(x, -1, -2), y)"),
        ("tf.reduce_sum(x, [0, 1], True)", "jnp.sum(x, axis=(0, 1), keepdims=True)"),
        ("tf.reduce_mean(x, axis=[-1])", "jnp.mean(x, axis=(-1,))"),
        ("tf.reduce_max(x, reduction_indices=1)", "jnp.max(x, axis=1)"),
        ("tf.reduce_sum([x, y])", "jnp.sum(jnp.asarray([x, y]))"),
        ("tf.reduce_sum(model.losses)", "jnp.sum(jnp.asarray(model.losses))"),
        ("tf.add_n([x, y])", "sum([x, y])"),
        ("tf.cast(x > 1, tf.float32)", "jnp.asarray(x > 1, jnp.float32)"),
        ("tf.to_float(x)", "jnp.asarray(x, jnp.float32)"),
        ("tf.convert_to_tensor(x, name='x')", "jnp.asarray(x)"),
        ("tf.concat([x, y], 0)", "jnp.concatenate([x, y], axis=0)"),
        ("tf.clip_by_value(x, 0, 1)", "jnp.clip(x, 0, 1)"),
        ("tf.range(2, limit=5)", "jnp.arange(2, 5)"),
        ("tf.identity(x + y) * 2", "(x + y) * 2"),
        ("tf.nn.bias_add(x, y) * 2", "(x + y) * 2"),
        ("tf.math.squared_difference(x + 1, y)", "((x + 1) - y) ** 2"),
        ("tf.nn.l2_loss(x)", "jnp.sum(jnp.square(x)) / 2"),
        ("tf.reduce_sum(tf.square(x - tf.exp(y)))", "jnp.sum(jnp.square(x - jnp.exp(y)))"),
        ("tf.shape(x)[0]", "jnp.shape(x)[0]"),
        (
            "tf.nn.sparse_softmax_cross_entropy_with_logits(labels=i, logits=x)",
            "optax.softmax_cross_entropy_with_integer_labels(x, i)",
        ),
        (
            "tf.nn.softmax_cross_entropy_with_logits(y, logits=x)",
            "optax.softmax_cross_entropy(x, y)",
        ),
        ("list(map(tf.square, [x]))", "list(map(jnp.square, [x]))"),
        ("tf.where(x > 0.5)", "jnp.argwhere(x > 0.5)"),
        ("tf.add([1, 2], 3)", "jnp.add(jnp.asarray([1, 2]), 3)"),
        ("tf.zeros_like([1])", "jnp.zeros_like(jnp.asarray([1]))"),
        ("tf.cast([1], tf.float32)", "jnp.asarray([1], jnp.float32)"),
        ("tf.cond(i[0] > 0, lambda: x, lambda: y)", "jax.lax.cond(i[0] > 0, lambda: x, lambda: y)"),
    ],
)
def test_calls_are_rewritten(before: str, after: str):
    result = ported(f"import tensorflow as tf\nz = {before}\n")
    assert result.new.splitlines()[-1] == f"z = {after}" and not result.left
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 4), np.float32), rng.random((4, 4), np.float32)
    names = {"x": x, "y": y, "i": np.array([0, 1, 2, 0]), "model": keras.layers.Dense(1)}
    exec(f"{HEAD}{after}", names)


@pytest.mark.parametrize(
    ("call", "advice_given"),
    [
        (
            "tf.split(x, sizes)",
            "tf.split -> jnp.split: takes the places to split at, not the sizes",
        ),
        ("lambda: tf.where(x > 1)", "tf.where -> jnp.where: of one argument it is jnp.argwhere"),
        ("tf.cumprod(x, exclusive=True)", "tf.cumprod -> jnp.cumprod: takes no exclusive="),
        ("tf.linalg.svd(x)", "tf.linalg.svd -> jnp.linalg.svd: gives u, s and the transposed v"),
        ("tf.unique(x)", "tf.unique -> jnp.unique: is sorted"),
        ("tf.linalg.diag(x)", "tf.linalg.diag -> jnp.diag: of one axis"),
        ("tf.gather(x, i, batch_dims=1)", "tf.gather -> jnp.take: takes no batch_dims="),
        ("tf.reduce_sum(*x)", "tf.reduce_sum -> jnp.sum: its arguments are not to be seen here"),
        ("tf.range(9, delta=2)", "tf.range -> jnp.arange: an argument between others is left out"),
        ("tf.shape(x)", "tf.shape -> jnp.shape: a tuple"),
        ("tf.print(x, summarize=3)", "tf.print: jax.debug.print("),
        ("tf.clip_by_global_norm(x, 1)[1]", "tf.clip_by_global_norm: gradients, _ = optax"),
    ],
)
def test_calls_that_mean_something_else_are_marked(call: str, advice_given: str):
    ((said,),) = advice(f"import tensorflow as tf\nz = {call}\n").values()
    assert said.startswith(advice_given)


def test_loops_over_numbers_are_those_of_python():
    program = """\
        import tensorflow as tf
        STEPS = 3
        def run(n):
            for _ in tf.range(10): step()
            for _ in tf.range(STEPS * 2): step()
            for _ in tf.range(n): step()
        """
    new = ported(program).new
    assert "in range(10)" in new and "in range(STEPS * 2)" in new
    assert advice(program) == {
        6: ["tf.range -> range: of a number that Python knows; the loop is compiled as often"]
    }


def test_printing_is_that_of_jax_in_functions():
    check(
        """\
        import tensorflow as tf
        print("TensorFlow", tf.__version__)
        tf.print("start", 1)
        def step(x):
            tf.print("loss {}:", x, 'of "all"')
        """,
        """\
        import jax
        import replicax as rx
        print("TensorFlow", rx.__version__)
        print("start", 1)
        def step(x):
            jax.debug.print("loss {{}}: {} of \\"all\\"", x)
        """,
    )
    assert advice("import tensorflow as tf\nold = tf.__version__.split('.')[0] == '1'\n") == {
        2: [
            "tf.__version__.split: leave the question out, with what is for TensorFlow 1; "
            "to show a version, rx.__version__"
        ]
    }


def test_the_train_op_of_an_estimator_is_its_optimizer():
    check(
        """\
        import tensorflow as tf
        def model_fn(features, labels, mode):
            loss = features
            if mode == 1:
                return tf.estimator.EstimatorSpec(mode, labels, loss)
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
            if mode == 2:
                return tf.estimator.EstimatorSpec(
                    mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step())
                )
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        """,
        """\
        import optax
        import replicax as rx
        def model_fn(features, labels, mode):
            loss = features
            if mode == 1:
                return rx.compat.v1.estimator.EstimatorSpec(mode, labels, loss)
            optimizer = rx.Optimizer(optax.sgd(0.1))
            train_op = optimizer
            if mode == 2:
                return rx.compat.v1.estimator.EstimatorSpec(
                    mode, loss=loss, train_op=optimizer
                )
            return rx.compat.v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        """,
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("train_op = optimizer.minimize(features + 1)", "train_op"),
        ("train_op = optimizer.minimize(features, var_list=[v])", "train_op"),
        ("train_op = optimizer.minimize(features); print(train_op)", "train_op"),
        ("train_op = optimizer.minimize(features)", "tf.group(train_op)"),
    ],
)
def test_a_train_op_that_does_more_is_marked(lines: tuple[str, str]):
    program = f"""\
        import tensorflow as tf
        def model_fn(features, labels, mode):
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            {lines[0]}
            return tf.estimator.EstimatorSpec(mode, loss=features, train_op={lines[1]})
        """
    found = advice(program)
    found.pop(5, None)
    assert found == {
        4: [
            "Optimizer.minimize: train_op=optimizer: "
            "it gets the gradients of the EstimatorSpec's loss"
        ]
    }


def test_arguments_over_several_lines_stay_where_only_the_name_changes():
    check(
        """\
        import tensorflow as tf
        z = tf.stack(
            [x,  # the first
             y],
            axis=1,
        )
        gradients, _ = tf.clip_by_global_norm(tf.identity(gradients), 5.0)
        """,
        """\
        import jax.numpy as jnp
        import optax
        z = jnp.stack(
            [x,  # the first
             y],
            axis=1,
        )
        gradients, _ = optax.clip_by_global_norm(5.0).update(gradients, optax.EmptyState())
        """,
    )


def test_files_and_folders_keep_their_names():
    program = """\
        import tensorflow as tf
        if not tf.io.gfile.exists(folder):
            tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(name, "rb") as file:
            pass
        """
    assert not ported(program).left
    new = ported(program).new
    assert 'rx.io.gfile.makedirs(folder)\nwith rx.io.gfile.GFile(name, "rb") as file' in new


# --- Keras ----------------------------------------------------------------------------------------


def test_maths_in_files_with_models_is_that_of_keras():
    program = """\
        import tensorflow as tf
        model = tf.keras.Sequential([
            tf.keras.layers.Dense(2, activation=tf.nn.relu),
            tf.keras.layers.Dense(2, tf.nn.tanh),
            tf.keras.layers.Activation(tf.nn.softmax),
        ])
        penalty = tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
        step = tf.cast(model.optimizer.iterations, tf.float32)
        norms = [tf.norm(v) for v in model.trainable_variables] + tf.zeros([2])
        """
    result = ported(program)
    assert not result.left
    assert 'Dense(2, activation="relu")' in result.new and 'Dense(2, "tanh")' in result.new
    assert 'Activation("softmax")' in result.new
    assert "sum([keras.ops.sum(keras.ops.square(v)) / 2 for v in" in result.new
    assert "keras.ops.cast(model.optimizer.iterations, jnp.float32)" in result.new
    assert "[keras.ops.norm(v) for v in model.trainable_variables] + jnp.zeros([2])" in result.new


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", Library)
def test_functions_of_the_forms_exist_and_take_their_keywords(library: Library):
    wrong = []
    for name, alternatives in forms().items():
        for form in alternatives:
            function = function_of(form.new)
            try:
                function = name_in(library, function) if function else ""
            except Refused:
                continue
            if function and not exists(function):
                wrong.append(f"{name}: {function}")
            takes = signature(function) if function and "." in function else None
            keywords = [part.split("=")[0] for part in form.new.split(", ") if "=" in part]
            is_simple = form.new.count("(") == 1
            if takes is not None and is_simple and "kwargs" not in takes.parameters:
                wrong += [
                    f"{name}: {function}({k}=)" for k in keywords if k not in takes.parameters
                ]
    assert not wrong


def test_what_keras_has_is_not_left_out():
    left_out = _calls_table.NOT_OF_KERAS.split()
    creating = ["arange", "eye", "full", "linspace", "ones", "zeros"]  # of no variable
    assert [name for name in left_out if exists(f"keras.ops.{name}")] == creating
