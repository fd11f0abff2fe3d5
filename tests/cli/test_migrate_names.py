"""How a program is ported, by names: imports, aliases, and what is bound again."""

import pytest

from tests.cli.porting import advice, check, ported

# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import tensorflow as tf\ns = tf.distribute.MirroredStrategy()\n",
            "import replicax as rx\ns = rx.distribute.MirroredStrategy()\n",
        ),
        (
            "import tensorflow\ns = tensorflow.distribute.MirroredStrategy()\n",
            "import replicax as rx\ns = rx.distribute.MirroredStrategy()\n",
        ),
        (
            "import tensorflow.compat.v1 as tf\ns = tf.distribute.MirroredStrategy()\n",
            "import replicax as rx\ns = rx.distribute.MirroredStrategy()\n",
        ),
        (
            "from tensorflow.compat import v2 as tf\ns = tf.distribute.MirroredStrategy()\n",
            "import replicax as rx\ns = rx.distribute.MirroredStrategy()\n",
        ),
        (
            "from tensorflow import distribute as dist\ns = dist.MirroredStrategy()\n",
            "from replicax import distribute as dist\ns = dist.MirroredStrategy()\n",
        ),
        (
            "import tensorflow.distribute as dist\ns = dist.MirroredStrategy()\n",
            "import replicax.distribute as dist\ns = dist.MirroredStrategy()\n",
        ),
        (
            "from tensorflow.distribute import MirroredStrategy as MS\ns = MS()\n",
            "from replicax.distribute import MirroredStrategy as MS\ns = MS()\n",
        ),
        (
            "from tensorflow.distribute.experimental import CollectiveHints\nCollectiveHints()\n",
            "from replicax.distribute.experimental import CommunicationOptions as CollectiveHints\n"
            "CollectiveHints()\n",
        ),
        (
            "import tensorflow as tf\ntfd = tf.distribute\ns = tfd.MirroredStrategy()\n",
            "import replicax as rx\ntfd = rx.distribute\ns = tfd.MirroredStrategy()\n",
        ),
        (
            "import tensorflow as tf\nSUM = tf.distribute.ReduceOp.SUM\nprint(SUM)\n",
            "import replicax as rx\nSUM = rx.distribute.ReduceOp.SUM\nprint(SUM)\n",
        ),
        (
            "import tensorflow as tf\nx: tf.Tensor = tf.zeros([2], tf.bfloat16)\n",
            "import jax\nimport jax.numpy as jnp\nx: jax.Array = jnp.zeros([2], jnp.bfloat16)\n",
        ),
    ],
)
def test_names_are_found_through_imports_and_aliases(before: str, after: str):
    check(before, after)
    assert not ported(before).left


def test_a_parameter_of_the_same_name_is_something_else():
    check(
        """\
        import tensorflow as tf
        def f(tf):
            return tf.distribute.has_strategy()
        print(tf.distribute.has_strategy(), lambda tf: tf.Variable)
        """,
        """\
        import replicax as rx
        def f(tf):
            return tf.distribute.has_strategy()
        print(rx.distribute.has_strategy(), lambda tf: tf.Variable)
        """,
    )


def test_alternatives_count_if_they_agree():
    check(
        """\
        try:
            import tensorflow.compat.v2 as tf
        except ImportError:
            import tensorflow as tf
        s = tf.distribute.get_strategy()
        """,
        """\
        try:
            import replicax as rx
        except ImportError:
            pass
        s = rx.distribute.get_strategy()
        """,
    )
    optional = """\
        try:
            import tensorflow as tf
        except ImportError:
            tf = None
        s = tf.distribute.get_strategy() if tf else None
        """
    assert "rx.distribute.get_strategy() if tf else None" in ported(optional).new
    assert advice(optional) == {5: ["tf: the module itself is used here"]}


def test_a_name_may_be_bound_anew():
    check(
        """\
        import tensorflow as tf
        tf = tf.compat.v1
        s = tf.distribute.get_strategy()
        """,
        """\
        import replicax as rx
        s = rx.distribute.get_strategy()
        """,
    )
    check(
        """\
        import tensorflow as tf
        tf = tf.compat.v1
        s = tf.distribute.get_strategy()
        tf.Session()
        """,
        """\
        import tensorflow as tf
        import replicax as rx
        tf = tf.compat.v1
        s = rx.distribute.get_strategy()
        # TODO(replicax): tf.compat.v1.Session: there are no sessions: call the functions
        tf.Session()
        """,
    )
    something_else = "import tensorflow as tf\ntf = load()\ns = tf.distribute.get_strategy()\n"
    assert "s = tf.distribute.get_strategy()" in ported(something_else).new


def test_a_name_that_is_something_else_as_well_is_left():
    program = """\
        import tensorflow as tf
        s = tf.distribute.get_strategy()
        tf = 3
        """
    assert ported(program).new.count("tf.distribute") == 1
    said = "tf: it is something else as well in this file: use two names"
    assert advice(program) == {2: [said]}
    check(  # two lines that are uses of each other
        """\
        import tensorflow as tf
        if old:
            tf = tf.compat.v1
        else:
            tf = tf.compat.v1
        s = tf.distribute.get_strategy()
        """,
        """\
        import replicax as rx
        if old:
            pass
        else:
            pass
        s = rx.distribute.get_strategy()
        """,
    )


def test_an_import_for_types_does_not_serve_the_rest():
    check(
        """\
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import tensorflow as tf
        def f(x) -> tf.Tensor:
            import tensorflow as tf
            return tf.Variable(x)
        """,
        """\
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import jax
            import replicax as rx
        def f(x) -> jax.Array:
            import jax
            import replicax as rx
            return rx.Variable(x)
        """,
    )


def test_the_import_stays_for_what_is_left():
    check(
        """\
        import tensorflow as tf  # version 2
        v = tf.Variable(1.0)
        y = tf.nn.avg_pool(v)
        """,
        """\
        import tensorflow as tf  # version 2
        import replicax as rx
        v = rx.Variable(1.0)
        # TODO(replicax): tf.nn.avg_pool -> jax.lax.reduce_window
        y = tf.nn.avg_pool(v)
        """,
    )


def test_an_alias_stays_where_not_all_of_its_uses_change():
    check(
        """\
        import tensorflow as tf
        tfd = tf.data
        numbers = tfd.Dataset.range(3)
        rows = tfd.experimental.CsvDataset("x.csv")
        """,
        """\
        import tensorflow as tf
        import replicax as rx
        tfd = tf.data
        numbers = rx.data.Dataset.range(3)
        # TODO(replicax): tf.data.experimental.CsvDataset: rx.data does not have it
        rows = tfd.experimental.CsvDataset("x.csv")
        """,
    )


def test_parts_of_an_import_go_their_own_ways():
    check(
        """\
        from tensorflow import data, keras, nn, Variable
        d = data.Dataset.range(3)
        k = keras.Sequential()
        n = nn.avg_pool(1.0), nn.compute_average_loss(x)
        v = Variable(1.0)
        """,
        """\
        import os
        os.environ.setdefault("KERAS_BACKEND", "jax")
        from tensorflow import nn
        import keras
        from replicax import data, Variable
        import replicax as rx
        d = data.Dataset.range(3)
        k = keras.Sequential()
        # TODO(replicax): tf.nn.avg_pool -> jax.lax.reduce_window
        n = nn.avg_pool(1.0), rx.nn.compute_average_loss(x)
        v = Variable(1.0)
        """,
    )
    check(
        "import os, tensorflow as tf\ntf.Variable(os.sep)\n",
        "import os\nimport replicax as rx\nrx.Variable(os.sep)\n",
    )


def test_imports_in_functions_and_in_one_line():
    check(
        """\
        def f():
            import tensorflow as tf
            return tf.distribute.get_strategy()
        def g():
            import tensorflow as tf
            return tf.nn.avg_pool
        """,
        """\
        def f():
            import replicax as rx
            return rx.distribute.get_strategy()
        def g():
            import tensorflow as tf
            # TODO(replicax): tf.nn.avg_pool -> jax.lax.reduce_window
            return tf.nn.avg_pool
        """,
    )
    check(  # NumPy is needed where nothing was imported
        """\
        import os
        def f():
            import tensorflow as tf
            return tf.distribute.get_strategy()
        def g(x):
            return x.numpy()
        """,
        """\
        import os
        import numpy as np
        def f():
            import replicax as rx
            return rx.distribute.get_strategy()
        def g(x):
            return np.asarray(x)
        """,
    )
    check(
        "if True: import tensorflow as tf; import os\nx = tf.Variable(tf.nn.avg_pool(1.0))\n",
        "if True: import tensorflow as tf; import replicax as rx; import os\n"
        "# TODO(replicax): tf.nn.avg_pool -> jax.lax.reduce_window\n"
        "x = rx.Variable(tf.nn.avg_pool(1.0))\n",
    )


def test_names_that_are_taken_are_not_taken_again():
    check(
        "import rx\nimport tensorflow as tf\njnp = 1\nrx.of(tf.distribute, tf.int32)\n",
        "import rx\nimport jax.numpy as jax_numpy\nimport replicax\njnp = 1\n"
        "rx.of(replicax.distribute, jax_numpy.int32)\n",
    )
    check(
        "import numpy\nimport replicax as library\nimport tensorflow as tf\n"
        "library.f(tf.Variable(1).numpy(), tf.constant(2).numpy())\n",
        "import numpy\nimport replicax as library\n"
        "library.f(library.Variable(1).numpy(), numpy.asarray(library.constant(2)))\n",
    )


def test_an_import_that_nobody_uses_is_somebodys_decision():
    assert advice("import tensorflow as tf\n") == {
        1: ["import of tf: nothing in this file uses it: leave it out if nobody else does"]
    }
    assert advice("from tensorflow import *\n") == {
        1: ["import *: name what is used: what comes from here is not looked at"]
    }


def test_the_last_import_of_tensorflow_goes_from_a_file_that_has_been_ported():
    check(
        "import tensorflow as tf\nimport replicax as rx\nv = rx.Variable(1.0)\n",
        "import replicax as rx\nv = rx.Variable(1.0)\n",
    )
    check(  # all that it needed was maths
        "import tensorflow as tf\nimport jax.numpy as jnp\nx = jnp.ones([2])\n",
        "import jax.numpy as jnp\nx = jnp.ones([2])\n",
    )


def test_an_import_that_comes_too_late_is_made_earlier():
    check(
        """\
        import tensorflow as tf
        x = tf.constant(1.0).numpy()
        import numpy as np
        """,
        """\
        import numpy as np
        import replicax as rx
        x = np.asarray(rx.constant(1.0))
        import numpy as np
        """,
    )


def test_a_file_without_tensorflow_has_nothing_to_port():
    program = "import torch\nx.numpy()\nsubprocess.run(a)\nstrategy.run(f)\nstrategy.buy()\n"
    assert ported(program).findings == ()
    assert ported("import replicax as rx\nv = rx.Variable(1.0)\nv.numpy()\n").findings == ()


def test_methods_tell_of_strategies_where_nothing_is_imported():
    check(
        '''\
        #!/usr/bin/env python
        """Steps."""
        import os

        def train(strategy, arrays):
            dataset = strategy.experimental_make_numpy_dataset(arrays)
            return strategy.experimental_run_v2(step, args=(dataset,))
        ''',
        '''\
        #!/usr/bin/env python
        """Steps."""
        import os
        import replicax as rx

        def train(strategy, arrays):
            dataset = rx.data.Dataset.from_tensor_slices(arrays)
            return strategy.run(step, args=(dataset,))
        ''',
    )


def test_each_branch_imports_what_takes_the_place_of_tensorflow():
    check(
        """\
        import sys
        if sys.argv:
            import tensorflow.compat.v1 as tf
        else: import tensorflow as tf
        x = tf.Variable(1.0)
        """,
        """\
        import sys
        if sys.argv:
            import replicax as rx
        else: import replicax as rx
        x = rx.Variable(1.0)
        """,
    )


def test_keras_may_be_that_of_tensorflow_or_its_own():
    check(
        """\
        try:
            from tensorflow import keras
        except ImportError:
            import keras
        x = keras.layers.Dense(1)
        """,
        """\
        try:
            import os
            os.environ.setdefault("KERAS_BACKEND", "jax")
            import keras
        except ImportError:
            import keras
        x = keras.layers.Dense(1)
        """,
    )


@pytest.mark.parametrize(
    "line",
    ["tf.train.Example.FromString(x)", "tfds.Split.TRAIN.subsplit([1])", "tf.Variable.x.y(2)"],
)
def test_attributes_that_are_nowhere_are_no_mistake_of_ours(line: str):
    ported(f"import tensorflow as tf\nimport tensorflow_datasets as tfds\n{line}\n")


def test_bytes_stay_bytes():
    check(
        """\
        import tensorflow as tf
        def f(example: tf.train.Example, raw):
            example.ParseFromString(raw.numpy())
            return tf.train.Example.FromString((raw).numpy()), raw.numpy().decode("utf-8")
        """,
        """\
        import replicax as rx
        def f(example: rx.train.Example, raw):
            example.ParseFromString(raw)
            return rx.train.Example.FromString((raw)), raw.decode("utf-8")
        """,
    )


def test_a_name_that_is_imported_twice_goes_twice():
    check(
        "from tensorflow.data import Dataset, Options, Dataset\nDataset.range(3)\nOptions()\n",
        "from replicax.data import Dataset, Options, Dataset\nDataset.range(3)\nOptions()\n",
    )
