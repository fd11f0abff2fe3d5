"""Functions that data sets call become NumPy: those of `map`, `filter`, and their helpers."""

from tests.cli.porting import advice, check, ported


def test_functions_of_data_sets_get_numpy():
    check(
        """\
        import numpy as np
        import tensorflow as tf
        def scale(x):
            return tf.square(x), tf.zeros([2], tf.float32)
        dataset = tf.data.Dataset.range(3).map(scale).filter(lambda x: tf.equal(x, 1))
        y = tf.square(tf.zeros([]))
        """,
        """\
        import numpy as np
        import jax.numpy as jnp
        import replicax as rx
        def scale(x):
            return np.square(x), np.zeros([2], np.float32)
        dataset = rx.data.Dataset.range(3).map(scale).filter(lambda x: np.equal(x, 1))
        y = jnp.square(jnp.zeros([]))
        """,
    )


def test_functions_of_data_sets_are_not_compiled():
    check(
        """\
        import tensorflow as tf
        from tensorflow import function
        @tf.function
        def scale(x):
            return tf.square(x)
        class Data:
            @staticmethod
            @tf.function(
                jit_compile=True,
            )
            def kept(x):
                return tf.equal(x, 1)
        @tf.autograph.experimental.do_not_convert
        @function  # compiled
        def helper(x):
            return tf.exp(x)
        @function
        def step(x):
            return tf.exp(x)
        data = tf.data.Dataset.range(3).map(scale).filter(Data.kept)
        data = data.map(lambda x: helper(x))
        """,
        """\
        import jax.numpy as jnp
        import numpy as np
        import replicax as rx
        def scale(x):
            return np.square(x)
        class Data:
            @staticmethod
            def kept(x):
                return np.equal(x, 1)
        # compiled
        def helper(x):
            return np.exp(x)
        @rx.function
        def step(x):
            return jnp.exp(x)
        data = rx.data.Dataset.range(3).map(scale).filter(Data.kept)
        data = data.map(lambda x: helper(x))
        """,
    )


def test_functions_of_data_sets_are_found_behind_others():
    program = """\
        import functools
        import tensorflow as tf
        def first(x, n):
            return tf.square(x)
        def second(x, n):
            return tf.square(x)
        class Reader:
            def third(self, x):
                return tf.square(x)
            def read(self, dataset):
                dataset = dataset.map(lambda x: first(x, 1)).map(functools.partial(second, n=1))
                return dataset.map(self.third)
        def step(x):
            return tf.square(x)
        """
    lines = ported(program).new.splitlines()
    said = [line.split()[1] for line in lines if "square" in line]
    assert said == ["np.square(x)", "np.square(x)", "np.square(x)", "jnp.square(x)"]


def test_helpers_of_functions_of_data_sets_get_numpy_if_nothing_else_calls_them():
    program = """\
        import tensorflow as tf
        def of_one(x):
            return tf.square(x)
        def of_both(x):
            return tf.square(x)
        def parse(x):
            return of_one(x), of_both(x), tf.one_hot(x, 3)
        data = tf.data.Dataset.range(3).map(parse).map(tf.square)
        y = of_both(1.0)
        """
    new = ported(program).new
    assert "def of_one(x):\n    return np.square(x)" in new
    assert "def of_both(x):\n    return jnp.square(x)" in new
    assert (
        "of_both(x), (np.asarray(x)[..., None] == np.arange(3)).astype(np.float32)\n" in new
        and "map(np.square)" in new
    )


def test_conditions_are_those_of_python_in_functions_of_data_sets():
    check(
        """\
        import tensorflow as tf
        def flip(x, flag):
            x = tf.cond(flag > 0, lambda: x[::-1], lambda: x)
            return tf.cond(flag < 0, true_fn=first, false_fn=lambda: f(x))
        data = tf.data.Dataset.range(3).map(flip)
        """,
        """\
        import replicax as rx
        def flip(x, flag):
            x = (x[::-1] if (flag > 0) else x)
            return (first() if (flag < 0) else f(x))
        data = rx.data.Dataset.range(3).map(flip)
        """,
    )


def test_updates_of_arrays_in_functions_of_data_sets_are_marked():
    program = """\
        import tensorflow as tf
        data = tf.data.Dataset.range(3).map(lambda x: tf.tensor_scatter_nd_add(x, i, y))
        """
    assert list(advice(program)) == [2]
