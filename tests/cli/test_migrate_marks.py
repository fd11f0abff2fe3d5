"""What porting leaves as it was, and the marks and findings that it leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicax._src.cli.migrate import Unreadable, Verdict, port
from replicax._src.cli.migrate._report import as_text
from tests.cli.porting import advice, check, ported

# --- what stays, and marks ------------------------------------------------------------------------


def test_everything_else_stays_to_the_last_space():
    before = (
        "# -*- coding: utf-8 -*-\r\nimport tensorflow as tf\r\n\x0c\r\n"
        "größe = tf . constant( 1 ,\t2 )   # so ; \r\n"
        "s = (tf.\r\n     distribute.  # the room\r\n     get_strategy())\r\n"
        "t = '''tf.Variable\r\n'''"
    )
    result = port(before.encode())
    assert result.new == (
        "# -*- coding: utf-8 -*-\r\nimport replicax as rx\r\n\x0c\r\n"
        "größe = rx . constant( 1 ,\t2 )   # so ; \r\n"
        "s = (rx.\r\n     distribute.  # the room\r\n     get_strategy())\r\n"
        "t = '''tf.Variable\r\n'''"
    )


def test_a_comment_within_a_name_is_kept():
    check(
        """\
        import tensorflow as tf
        s = (tf.  # old
             config.experimental  # older
             .list_physical_devices())
        """,
        """\
        import replicax as rx
        # old
        s = (rx.config  # older
             .list_physical_devices())
        """,
    )


def test_comments_in_what_goes_are_kept():
    check(
        """\
        import tensorflow as tf
        from tensorflow import (
            distribute,  # the room
            nn,
        )
        s = distribute.MirroredStrategy()
        if tf.Variable(s):
            x = s.make_input_fn_iterator(f,
                # the mode
                tf.distribute.InputReplicationMode.PER_WORKER)
            print(x
                  .numpy(  # an array
                  ), nn.avg_pool)
        """,
        """\
        import numpy as np
        import replicax as rx
        # the room
        from tensorflow import nn
        from replicax import distribute
        s = distribute.MirroredStrategy()
        if rx.Variable(s):
            # the mode
            x = iter(s.distribute_datasets_from_function(f))
            # TODO(replicax): tf.nn.avg_pool -> jax.lax.reduce_window
            # an array
            print(np.asarray(x), nn.avg_pool)
        """,
    )


def test_lines_end_where_python_ends_them():
    result = port(b"import tensorflow as tf\n\x0c\nx = '\xe2\x80\xa8'; v = tf.Variable(1)\n")
    assert [each.line for each in result.findings] == [1, 3]
    assert "    3  changes        x = '\u2028'; v = tf.Variable(1)" in as_text(
        "a.py", result, lambda _, text: text
    )


def test_arguments_on_lines_of_their_own_are_in_the_report():
    result = ported(
        """\
        import tensorflow as tf
        @tf.function(
            # fast
            experimental_compile=True,
        )
        def f(s: tf.distribute.Strategy, x):
            return s.reduce(
                "SUM",
                x,
            )
        """
    )
    said = [(each.line, each.verdict.value) for each in result.findings if each.line > 1]
    assert said == [
        *((2, "changes"), (4, "changes"), (6, "changes"), (7, "carries over"), (9, "changes"))
    ]
    assert result.new_lines[4] == "    jit_compile=True,"
    assert result.new_lines[9] == "        x, axis=None,"


def test_encodings_are_kept():
    latin = "# coding: latin-1\nimport tensorflow as tf\nx = tf.constant('é')\n".encode("latin-1")
    result = port(latin)
    assert result.new.encode(result.encoding) == latin.replace(
        b"tensorflow as tf", b"replicax as rx"
    ).replace(b"tf.c", b"rx.c")
    marked = port(b"\xef\xbb\xbfimport tensorflow as tf\nx = tf.constant(1)\n")
    assert marked.new.encode(marked.encoding).startswith(b"\xef\xbb\xbfimport replicax as rx\n")


def test_marks_stand_above_the_whole_statement():
    check(
        """\
        import tensorflow as tf
        @first
        @tf.custom_gradient
        def f(
            x=tf.sort(1, direction=d),
        ):
            if x:
                pass
            elif tf.searchsorted(x): tf.as_string(x)
            s = '''
            '''; tf.as_string(s)
        """,
        """\
        import tensorflow as tf
        # TODO(replicax): tf.custom_gradient -> jax.custom_vjp
        # TODO(replicax): tf.sort -> jnp.sort: takes no direction=
        @first
        @tf.custom_gradient
        def f(
            x=tf.sort(1, direction=d),
        ):
            if x:
                pass
            # TODO(replicax): tf.searchsorted -> jnp.searchsorted
            # TODO(replicax): tf.as_string: str(x), outside compiled functions
            elif tf.searchsorted(x): tf.as_string(x)
            # TODO(replicax): tf.as_string: str(x), outside compiled functions
            s = '''
            '''; tf.as_string(s)
        """,
    )


def test_marks_that_are_left_are_work_that_is_left():
    mark = "tf.nn.avg_pool -> jax.lax.reduce_window"
    program = f"import replicax as rx\n# TODO(replicax): {mark}\nx = rx.f()\n"
    result = ported(program)
    assert [(each.line, each.verdict, each.advice) for each in result.findings] == [
        (2, Verdict.THOUGHT, "tf.nn.avg_pool -> jax.lax.reduce_window")
    ]
    marked = ported("import tensorflow as tf\ntf.nn.avg_pool(1)\n")
    assert ported(marked.new).left == marked.left == 1


def test_findings_say_what_becomes_of_a_line():
    result = ported(
        """\
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            v = tf.Variable(tf.strings.join(1, dtype=tf.int32))
        tf.saved_model.save(v, "here")
        """
    )
    said = {
        line: [each.verdict for each in result.findings if each.line == line]
        for line in range(1, 6)
    }
    assert said[3] == [Verdict.SAME] and said[5] == [Verdict.UNSUPPORTED]
    assert set(said[4]) == {Verdict.CHANGES, Verdict.THOUGHT}
    assert result.new_lines == {
        1: "import tensorflow as tf\nimport jax.numpy as jnp\nimport replicax as rx",
        2: "strategy = rx.distribute.MirroredStrategy()",
        4: "    v = rx.Variable(tf.strings.join(1, dtype=jnp.int32))",
    }
    assert result.left == 2


def test_annotations_in_strings_change_too():
    check(
        """\
        import tensorflow as tf
        from tensorflow import distribute as dist
        def f(s: 'tf.distribute.Strategy', t: Optional["list[tf.Tensor]"]) -> "dist.Strategy":
            x: Literal["tf.Tensor"] = dist.get_strategy()
            return tf.Variable(s)
        """,
        """\
        import jax
        import replicax as rx
        from replicax import distribute as dist
        def f(s: 'rx.distribute.Strategy', t: Optional["list[jax.Array]"]) -> "dist.Strategy":
            x: Literal["tf.Tensor"] = dist.get_strategy()
            return rx.Variable(s)
        """,
    )
    program = "import tensorflow as tf\ndef f(m: 'tf.nn.avg_pool'): return tf.Variable(m)\n"
    assert advice(program) == {2: ["tf.nn.avg_pool: it is in a string"]}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"import tensorflow as tf\nprint 'loss', x\n", 2, "Missing parentheses"),
        (b"x = 1\ny = (\n", 2, "never closed"),
        (b"# coding: no-such\n", 1, "encoding"),
        (b"def f():\n\tx\n        y\n", 3, "tabs"),
        (b"x = '\xff'\n", 1, "utf-8"),
        (b"# coding: rot13\nvzcbeg gs\n", 1, "not a text encoding"),
        (b"x = " + b"-" * 100_000 + b"1\n", 0, "nested too deeply"),
        (b"x = " + b"(" * 1500 + b"1" + b")" * 1500 + b"\n", 0, "nested too deeply"),
        (b"x = " + b"[{(" * 30_000 + b"\n", 0, "nested too deeply"),
        (b"x = ')'\n" * 9 + b"x = (" + b"(" * 1500 + b"\n", 0, "nested too deeply"),
    ],
)
def test_what_is_not_python_is_named_with_its_line(content: bytes, line: int, words: str):
    with pytest.raises(Unreadable) as raised:
        port(content)
    assert raised.value.line == line and words in str(raised.value)


def test_marks_stay_when_what_is_around_them_was_ported():
    program = """\
import tensorflow as tf
import tensorflow.compat.v2.feature_column as columns
x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    square = x * x
    tape.reset()
    y = x + square
g = tape.gradient(y, {"x": x})
with tf.GradientTape() as other:
    square = x * x
    y = square * x
g = other.gradient(y, x)
"""
    once = ported(program)  # it is ported twice there
    assert "import tensorflow.compat.v2.feature_column as columns\n" in once.new


SNIPPETS = [
    "import tensorflow as tf",
    "import tensorflow.compat.v1 as tf",
    "from tensorflow import data, nn as tfnn",
    "import replicax as rx",
    "strategy = tf.distribute.MirroredStrategy()",
    "iterator = strategy.make_dataset_iterator(dataset)",
    "iterator.initialize()",
    "loss = strategy.experimental_run(step, iterator).numpy()",
    "dataset = tf.data.Dataset.range(4).map(lambda x: tf.cast(x, tf.float32))",
    "dataset = data.TFRecordDataset(names).bucket_by_sequence_length()",
    "alias = tf.distribute",
    "alias.Server(alias.get_strategy())",
    "tf.enable_eager_execution()",
    "x = tfnn.avg_pool(tf.constant(1))",
    "with tf.GradientTape() as tape: y = model(x)",
    "model = tf.keras.Sequential()",
    "from tensorflow import keras",
    "keras = tf.keras",
    "import tensorflow.keras.backend as K",
    "K.mean(keras.layers.Dense(3))",
    "optimizer = keras.optimizers.Adam(lr=1, decay=2); optimizer.apply_gradients(zip(g, [v]))",
    "v = tf.Variable(1, use_resource=True)",
    "y = tf.reduce_sum(tf.cast(x, tf.float32), [0], name='y') * tf.nn.bias_add(x, tf.argmax(y))",
    "with tf.GradientTape() as tape:\n    x = 2 * x; loss = f(x)\ng = tape.gradient(loss, [v])",
    "for i in tf.range(3): tf.print('a', x, tf.shape(x)[0])",
    "gradients, _ = tf.clip_by_global_norm(gradients, 5.0)",
    "import tf_keras",
]


@given(st.lists(st.sampled_from(SNIPPETS), max_size=12))
def test_porting_twice_changes_nothing_more(lines: list[str]):
    once = port("\n".join(lines).encode())
    compile(once.new, "<ported>", "exec")
    twice = port(once.new.encode())
    assert twice.new == once.new
