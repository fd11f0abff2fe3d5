"""Tapes that are turned: where the gradients get a name each, and where lines lie between."""

from typing import Any

import numpy as np
import pytest

from tests.cli.porting import advice, ported


def test_a_name_for_each_gradient():
    program = """
import tensorflow as tf
w, b = tf.Variable(1.0), tf.Variable(2.0)
with tf.GradientTape() as tape:
    loss = tf.square(w * 3.0 + b)
dw, db = tape.gradient(loss, [w, b])
"""
    result = ported(program)
    assert result.left == 0
    names: dict[str, object] = {}
    exec(result.new, names)  # noqa: S102
    assert (names["loss"], names["dw"], names["db"]) == (25.0, 30.0, 10.0)


BETWEEN = """
import tensorflow as tf
w = tf.Variable(2.0)
seen = []
for x in [1.0, 3.0]:
    with tf.GradientTape() as tape:
        out = w * x
        loss = tf.square(out)

    seen.append(out)
    gradients = tape.gradient(loss, [w])
    w.assign_sub(0.1 * gradients[0])
"""


def test_lines_between_a_block_and_its_gradients_have_what_they_need():
    result = ported(BETWEEN)
    assert result.left == 0
    names: dict[str, object] = {}
    exec(result.new, names)  # noqa: S102
    np.testing.assert_allclose(names["seen"], [2.0, 4.8], rtol=1e-6)  # type: ignore


def test_variables_that_are_chosen_between_stay_with_the_tape():
    program = BETWEEN.replace("    seen.append(out)", "    seen.append(out); chosen = [w]")
    assert ported(program.replace("(loss, [w])", "(loss, chosen)")).left == 2


def test_a_check_of_the_version_goes():
    program = (
        "import tensorflow as tf\n"
        "assert tf.__version__.startswith('2.')\n"
        "assert tf.__version__ >= '2.1', 'too old'\n"
        "x = tf.Variable(1.0)\n"
        "tf.__version__\n"
    )
    assert ported(program).new == ("import replicax as rx\nx = rx.Variable(1.0)\nrx.__version__\n")


def test_a_model_whose_variables_are_asked_for_by_another_name_is_built_first():
    program = """
import tensorflow as tf
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)
net = Net()
x = tf.ones((2, 3))
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(net(x))
gradients = tape.gradient(loss, net.variables)
"""
    assert "if not net.built:\n    net(x)\ndef loss_fn():" in ported(program).new


def test_a_persistent_tape_that_is_deleted():
    program = """
import tensorflow as tf
w, v = tf.Variable(3.0), tf.Variable(2.0)
with tf.GradientTape(persistent=True) as tape:
    y = w ** 3
    z = y * v
a = tape.gradient(y, w)
b = tape.gradient(z, [w, v])
del tape
"""
    result = ported(program)
    assert result.left == 0 and "del" not in result.new
    found: dict[str, Any] = {}
    exec(result.new, found)
    assert np.allclose(np.asarray(found["a"]), 27) and np.allclose(found["b"], [54, 27])


def test_a_tape_of_the_same_name_in_a_function_is_another():
    program = """
import tensorflow as tf
w = tf.Variable(3.0)
for _ in range(2):
    with tf.GradientTape() as tape:
        y = w ** 3
    a = tape.gradient(y, w)
def first():
    with tf.GradientTape() as tape:
        y = w ** 3
    a = tape.gradient(y, w)
    with tf.GradientTape() as tape:
        y = w ** 2
    return tape.gradient(y, w) if w else None
"""
    assert set(advice(program)) == {12, 14}


def test_advice_for_tapes_that_are_left():
    program = """
import tensorflow as tf
def f(x, c):
    with tf.GradientTape(persistent=True) as tape:
        with tape.stop_recording():
            y = x ** 3
    j = tape.jacobian(y, x)
    return tape.gradient(y, x, output_gradients=c)
"""
    said = advice(program)
    assert said[5] == ["GradientTape.stop_recording: jax.lax.stop_gradient(value)"]
    assert said[7] == ["GradientTape.jacobian: jax.jacrev(function)(arrays)"]
    assert said[8][0].endswith("with a loss_fn that returns the sum of y * c")


WITHOUT_A_NAME = """
import tensorflow as tf
w = tf.Variable(2.0)
def apply(pairs):
    for gradient, variable in pairs:
        variable.assign_sub(0.1 * gradient)
def step(x):
    with tf.GradientTape() as tape:
        out = w * x
        loss = tf.square(out)
    apply(zip(tape.gradient(loss, [w]), [w]))
    return loss, out
def gradient(x):
    with tf.GradientTape() as tape:
        loss = tf.square(w * x)
        return loss, tape.gradient(loss, w)
"""


def test_gradients_that_have_no_name_get_one():
    result = ported(WITHOUT_A_NAME)
    assert result.left == 0
    names: dict[str, Any] = {}
    exec(result.new, names)  # noqa: S102
    np.testing.assert_allclose(names["step"](1.0), (4.0, 2.0), rtol=1e-6)
    np.testing.assert_allclose(names["w"].numpy(), 1.6, rtol=1e-6)
    np.testing.assert_allclose(names["gradient"](3.0), (23.04, 28.8), rtol=1e-6)


def test_gradients_without_a_name_stay_where_the_name_is_taken_or_not_all_is_plain():
    assert ported(WITHOUT_A_NAME.replace("(x):\n", "(x):\n    gradients = []\n")).left == 4
    assert ported(WITHOUT_A_NAME.replace("loss, [w])", "loss, list([w]))")).left == 2
    assert ported(WITHOUT_A_NAME.replace("loss, w)", "loss, w) if x else 0")).left == 2


BESIDE_EACH_OTHER = """
import tensorflow as tf
v, w = tf.Variable(1.0), tf.Variable(2.0)
def step(x):
    with tf.GradientTape() as one:
        first = x * v * w
    with tf.GradientTape() as other:
        second = x * v * v * w
    dv = one.gradient(first, v)
    v.assign_sub(dv)
    x = 0.0
    dw = other.gradient(second, w)
    w.assign_sub(dw)
    return first, second
"""


def test_blocks_beside_each_other_are_computed_before_variables_change():
    result = ported(BESIDE_EACH_OTHER)
    assert result.left == 0
    names: dict[str, Any] = {}
    exec(result.new, names)  # noqa: S102
    np.testing.assert_allclose(names["step"](3.0), (6.0, 6.0))
    np.testing.assert_allclose((names["v"].numpy(), names["w"].numpy()), (-5.0, -1.0))


@pytest.mark.parametrize("line", ["v.assign(7.0)", "x = 7.0", "x += 1", "o.x = 1", "change(v)"])
def test_gradients_without_a_name_stay_where_a_line_changes_what_their_block_reads(line: str):
    program = WITHOUT_A_NAME.replace("    apply(zip(", f"    {line}\n    apply(zip(")
    assert ported(program).left == 2
