"""How a program is ported that uses Keras."""

import textwrap

import pytest

import replicax as rx
from replicax._src.cli.migrate import Verdict
from tests.cli.porting import advice, check, ported

# --- Keras ----------------------------------------------------------------------------------------

BACKEND = 'os.environ.setdefault("KERAS_BACKEND", "jax")\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import tensorflow as tf\nm = tf.keras.Sequential()\n",
            f"import os\n{BACKEND}import keras\nm = keras.Sequential()\n",
        ),
        (
            "import os\nfrom tensorflow import keras\nm = keras.Sequential()\n",
            f"import os\n{BACKEND}import keras\nm = keras.Sequential()\n",
        ),
        (
            "from tensorflow.keras import (\n    layers,  # all\n)\nm = layers.Dense(1)\n",
            f"import os\n{BACKEND}from keras import (\n    layers,  # all\n)\n"
            "m = layers.Dense(1)\n",
        ),
        (
            "import tensorflow.keras as K\nm = K.Sequential()\n",
            f"import os\n{BACKEND}import keras as K\nm = K.Sequential()\n",
        ),
        (
            "import tensorflow.keras.layers as L\nm = L.Dense(1)\n",
            f"import os\n{BACKEND}import keras.layers as L\nm = L.Dense(1)\n",
        ),
        (
            "import tensorflow as tf\nkeras = tf.keras\nlayers = keras.layers\n"
            "m = layers.Dense(1), tf.keras.Model\n",
            f"import os\n{BACKEND}import keras\nlayers = keras.layers\n"
            "m = layers.Dense(1), keras.Model\n",
        ),
        (
            "import tensorflow as tf\nfrom tensorflow import keras as k\n"
            "m = k.Model, tf.keras.Model, tf.Variable\n",
            f"import replicax as rx\nimport os\n{BACKEND}import keras as k\n"
            "m = k.Model, k.Model, rx.Variable\n",
        ),
        (
            "import keras\nimport tensorflow as tf\nm = keras.Model, tf.keras.Model\n",
            "import keras\nm = keras.Model, keras.Model\n",
        ),
        (
            "import os\nos.environ['KERAS_BACKEND'] = 'jax'\n"
            "from tensorflow.keras.models import Sequential\nSequential()\n",
            "import os\nos.environ['KERAS_BACKEND'] = 'jax'\n"
            "from keras.models import Sequential\nSequential()\n",
        ),
        (
            "def f():\n    from tensorflow import keras\n    return keras.Model\n",
            f"def f():\n    import os\n    {BACKEND}    import keras\n    return keras.Model\n",
        ),
        (
            "if True: import tensorflow.keras as keras\nkeras.Model\n",
            f"if True: import os; {BACKEND.strip()}; import keras\nkeras.Model\n",
        ),
        (
            "from tensorflow.keras.losses import Huber, Reduction\n"
            "Huber(reduction=Reduction.SUM)\n",
            f'import os\n{BACKEND}from keras.losses import Huber\nHuber(reduction="sum")\n',
        ),
    ],
)
def test_keras_is_imported_as_it_was(before: str, after: str):
    check(before, after)
    assert not ported(before).left


def test_models_carry_over():
    program = """\
        import tensorflow as tf
        class Net(tf.keras.Model):
            def build(self, shape):
                self.w = self.add_weight(shape=(3,))
        with tf.distribute.MirroredStrategy().scope():
            net = Net()
            opt = tf.keras.optimizers.Adam(lr=0.1)
            net.compile(opt, tf.keras.losses.MeanSquaredError())
        net.fit(data, epochs=2)
        net.evaluate(data), net.predict(data), net.save("net.keras")
        y = net(x, training=True)
        opt.apply_gradients(zip(g, net.trainable_variables))
        print(opt.lr.numpy(), opt.iterations.numpy())
        """
    result = ported(program)
    assert not result.left and "tensorflow" not in result.new
    assert "    opt = keras.optimizers.Adam(learning_rate=0.1)\n" in result.new
    assert "print(opt.learning_rate.numpy(), opt.iterations.numpy())\n" in result.new
    carried = {each.name for each in result.findings if each.verdict is Verdict.SAME}
    assert {"Model", "Model.fit", "Model.evaluate", "Model.predict", "Model.save"} <= carried


def test_what_is_different_in_keras_3_is_said():
    program = """\
        from tensorflow import keras
        from tensorflow.keras import backend as K
        from tensorflow.keras.utils import multi_gpu_model
        model = keras.Sequential([keras.layers.TextVectorization()])
        model.compile(keras.optimizers.SGD(0.1, decay=0.01), sample_weight_mode="temporal")
        model.fit_generator(K.mean(K.floatx()))
        model.save(path, save_format="tf")
        multi_gpu_model(model)
        """
    assert advice(program) == {
        4: ["keras.layers.TextVectorization: it needs TensorFlow: Python in dataset.map"],
        5: [
            "keras.Model.compile(): takes no sample_weight_mode=; leave it out if it is not needed",
            "keras.optimizers.SGD(): takes no decay=: "
            "a rate of keras.optimizers.schedules.InverseTimeDecay",
        ],
        6: ["Model.fit_generator: model.fit(generator)"],
        7: [
            "keras.Model.save(): takes no save_format=: "
            "leave it out: the ending of the name says it",
        ],
        8: ["tf.keras.utils.multi_gpu_model: make the model in the scope of a MirroredStrategy"],
    }


def test_all_names_of_a_module_of_keras_are_those_of_keras_3():
    check(
        """\
        from tensorflow.keras.layers import *
        import tensorflow as tf
        def block(x):
            return tf.reduce_sum(Conv2D(3, 3)(x))
        """,
        f"""\
        import os
        {BACKEND.strip()}
        from keras.layers import *
        import keras
        def block(x):
            return keras.ops.sum(Conv2D(3, 3)(x))
        """,
    )
    assert list(advice("from tensorflow.keras.wrappers.scikit_learn import *\n")) == [1]


@pytest.mark.parametrize(
    ("layer", "loss", "activation"),
    [
        ('Dense(2, activation="softmax")', "CategoricalCrossentropy", "softmax"),
        ("Dense(2, activation=tf.nn.softmax)", "SparseCategoricalCrossentropy", "softmax"),
        ("Activation('sigmoid')", "BinaryCrossentropy", "sigmoid"),
        ("Dense(2, activation = 'softmax')", "sparse_categorical_crossentropy", "softmax"),
        ("Softmax()", "SparseCategoricalCrossentropy", None),  # behind the model
        ("Activation('sigmoid')", "CategoricalCrossentropy", None),
        ("Dense(2)", "BinaryCrossentropy", None),
    ],
)
def test_losses_of_logits_behind_an_activation_are_marked(
    layer: str, loss: str, activation: str | None
):
    program = f"""\
        import tensorflow as tf
        layer = tf.keras.layers.{layer}
        loss = tf.keras.losses.{loss}(from_logits=True)
        other = tf.keras.losses.{loss}()
        """
    said = advice(program)
    assert set(said) == ({3} if activation else set())
    if activation:
        assert f"TensorFlow leaves out a {activation} that a layer has" in said[3][0]


def test_files_of_models_get_the_names_that_keras_3_wants():
    head = """\
        import os
        from tensorflow import keras
        model = keras.Sequential([keras.layers.Dense(1)])
        """
    names = {
        'model.save("folder")': 'model.save("folder.keras")',
        'model.save(f"{a}/all.h5", save_format="h5")': 'model.save(f"{a}/all.h5")',
        'model.save_weights("w.h5")': 'model.save_weights("w.weights.h5")',
        "model.load_weights('w.h5')": "model.load_weights('w.weights.h5')",
        'model.load_weights("theirs.h5", by_name=True)': None,
        'model.load_weights("a/ckpt")': 'model.load_weights("a/ckpt.weights.h5")',
        'model.save_weights(os.path.join(a, f"{b}.ckpt"), save_format="tf", overwrite=True)': (
            'model.save_weights(os.path.join(a, f"{b}.weights.h5"), overwrite=True)'
        ),
        'model.save_weights(filepath="a.weights.h5")': None,
        'model.save_weights(a + "/w" ".hdf5")': 'model.save_weights(a + "/w" ".weights.h5")',
        'model.save_weights("{}.h5".format(3))': 'model.save_weights("{}.weights.h5".format(3))',
        'model.save_weights("w%d" % 3)': None,
        "model.save_weights(f'{a}')": None,
        'keras.callbacks.ModelCheckpoint("w{epoch}", save_weights_only=True)': (
            'keras.callbacks.ModelCheckpoint("w{epoch}.weights.h5", save_weights_only=True)'
        ),
        'keras.callbacks.ModelCheckpoint("m.hdf5", "loss")': (
            'keras.callbacks.ModelCheckpoint("m.h5", "loss")'
        ),
        'keras.models.load_model(a / "m")': 'keras.models.load_model(a / "m.keras")',
        'keras.models.save_model(model, "m")': 'keras.models.save_model(model, "m.keras")',
    }
    program = textwrap.dedent(head) + "\n".join(names)
    expected = [new or old for old, new in names.items()]
    assert ported(program).new.splitlines()[-len(names) :] == expected


def test_arguments_of_add_weight_get_their_names():
    check(
        """\
        import tensorflow as tf
        class Scale(tf.keras.layers.Layer):
            def build(self, shape):
                self.a = self.add_weight("a", shape[1:], tf.float32, "ones", trainable=False)
                self.b = self.add_weight("b", shape=[1])
                self.c = self.add_weight(shape=[1])
        """,
        """\
        import os
        os.environ.setdefault("KERAS_BACKEND", "jax")
        import jax.numpy as jnp
        import keras
        class Scale(keras.layers.Layer):
            def build(self, shape):
                self.a = self.add_weight(name="a", shape=shape[1:], dtype=jnp.float32, initializer="ones", trainable=False)
                self.b = self.add_weight(name="b", shape=[1])
                self.c = self.add_weight(shape=[1])
        """,  # noqa: E501
    )


def test_keras_itself_carries_over_but_for_what_it_has_lost():
    assert ported("import keras\nmodel = keras.Model()\nmodel.fit(x)\n").findings == ()
    assert advice("import keras.backend as K\nK.mean(x), K.epsilon()\n") == {
        2: ["keras.backend.mean -> keras.ops.mean"]
    }


def test_optimizers_of_variables_of_ones_own_are_those_of_replicax():
    program = """\
        import tensorflow as tf
        w = tf.Variable(1.0)
        variables = [w, w]
        optimizer = tf.keras.optimizers.RMSprop(0.1)
        optimizer.apply_gradients(zip(g, variables))
        tf.optimizers.Ftrl(0.1)
        """
    said = "that of Keras trains Keras's variables"
    assert advice(program) == {
        4: [f"tf.keras.optimizers.RMSprop -> rx.Optimizer(optax.rmsprop(...)): {said}"],
        6: [f"tf.optimizers.Ftrl -> rx.Optimizer: {said}"],
    }
    for old, new in {
        "SGD(0.1)": "optax.sgd(0.1)",
        "SGD(lr=0.1, momentum=0.9)": "optax.sgd(0.1, momentum=0.9)",
        "Adam()": "rx.train.adam(0.001)",
        "Adam(0.1, beta_1=0.8)": "rx.train.adam(0.1, beta_1=0.8)",
    }.items():
        trains = program.replace("RMSprop(0.1)", old).replace("Ftrl", "SGD")
        assert f"optimizer = rx.Optimizer({new})\n" in ported(trains).new
        assert not ported(trains).left


def test_metrics_of_estimators_are_those_of_replicax():
    program = """\
        import tensorflow as tf
        estimator = tf.estimator.Estimator(model_fn)
        metrics = {"a": tf.keras.metrics.Accuracy(), "b": tf.keras.metrics.BinaryIoU()}
        """
    assert 'rx.metrics.Accuracy(), "b": tf.keras.metrics.BinaryIoU()' in ported(program).new
    assert advice(program) == {
        3: ["tf.keras.metrics.BinaryIoU: rx.metrics, which an Estimator takes, does not have it"]
    }


def test_the_package_tf_keras_is_keras():
    check(
        "import tf_keras\nfrom tf_keras import layers\nm = tf_keras.Model, layers.Dense(1)\n",
        f"import os\n{BACKEND}import keras as tf_keras\nfrom keras import layers\n"
        "m = tf_keras.Model, layers.Dense(1)\n",
    )


@pytest.mark.parametrize(
    "line", ["os.environ['KERAS_BACKEND'] = {}", "os.environ.setdefault('KERAS_BACKEND', {})"]
)
def test_keras_is_told_to_run_on_jax(line: str):
    head, model = "import os\n", "import keras\nm = keras.Model()\n"
    check(
        f"{head}{line.format('chr(39)')}\n{model}".replace("chr(39)", '"tensorflow"'),
        f"{head}{line.format('chr(39)')}\n{model}".replace("chr(39)", '"jax"'),
    )
    late = f"import tensorflow as tf\n{head}{line.format(repr('jax'))}\nm = tf.keras.Model()\n"
    assert ported(late).new.startswith(f"import os\n{BACKEND}import keras\n")


def test_models_of_ones_own_classes_are_built_by_a_call():
    program = """\
        import tensorflow as tf
        class Net(tf.keras.Model):
            def call(self, x):
                return x
        class Built(tf.keras.Model):
            def build(self, shape):
                pass
        one, two, three = Net(), Built(), tf.keras.Sequential()
        net = Net()
        net.build((None, 3))
        built = Built()
        built.build((None, 3))
        three.build((None, 3))
        """
    said = "makes no variables in Keras 3: call the model once, in the scope, on zeros"
    assert advice(program) == {10: [f"Model.build: {said}"]}


def test_steps_of_models_and_summaries_of_compiled_functions_carry_over():
    program = """\
        import tensorflow as tf
        class Net(tf.keras.Model):
            def train_step(self, data):
                pass
        class Other:
            def train_step(self, data):
                pass
        @tf.function
        def step(loss):
            tf.summary.scalar("loss", loss, step=1)
        tf.summary.scalar("loss", 0.0, step=1)
        def ask(x, loss):
            return x.gradient(loss, [w])
        """
    assert advice(program) == {
        13: ["GradientTape.gradient: loss, gradients = rx.value_and_grad(loss_fn, [w])"],
    }


def test_an_optimizer_of_variables_in_a_dict_is_that_of_replicax():
    program = """\
        import tensorflow as tf
        weights = {"w": tf.Variable(1.0)}
        optimizer = tf.optimizers.SGD(0.1)
        def step(gradients):
            variables = list(weights.values())
            optimizer.apply_gradients(zip(gradients, variables))
        """
    assert "optimizer = rx.Optimizer(optax.sgd(0.1))" in ported(program).new
    of_model = program.replace("list(weights.values())", "model.trainable_variables")
    assert "optimizer = keras.optimizers.SGD(0.1)" in ported(of_model).new


# --- loops of one's own, without a strategy -------------------------------------------------------

LOOP = """\
    import tensorflow as tf
    import numpy as np

    class Net(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones")
        def call(self, x, training=False):
            return self.dense(x)

    net = Net()
    opt = tf.keras.optimizers.SGD(0.25)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = net(x, training=True)
            loss = tf.reduce_mean(y)
        variables = net.trainable_variables
        gradients = tape.gradient(loss, variables)
        opt.apply_gradients(zip(gradients, variables))
        return loss

    x = np.ones([2, 3], np.float32)
    losses = [float(step(x)), float(step(x))]
    """


def test_a_model_that_its_first_call_builds_is_called_and_a_strategy_is_set():
    result = ported(LOOP)
    assert not result.left
    assert (
        "import numpy as np\n"
        "rx.distribute.experimental_set_strategy"
        "(rx.distribute.OneDeviceStrategy(jax.devices()[0]))\n"
    ) in result.new
    assert "    if not net.built:\n        net(x)\n    def loss_fn():\n" in result.new
    names: dict[str, object] = {"__name__": "ported"}
    try:
        exec(result.new, names)  # noqa: S102
    finally:
        rx.distribute.experimental_set_strategy(None)
    assert names["losses"] == [3.0, 2.0]  # 3 weights and a bias, each less by 0.25


def test_a_program_with_a_strategy_keeps_it():
    program = LOOP.replace(
        "net = Net()", "strategy = tf.distribute.get_strategy()\n    net = Net()"
    )
    assert "experimental_set_strategy" not in ported(program).new


def test_a_model_that_cannot_be_called_above_the_tape_is_marked():
    program = LOOP.replace("net(x, training=True)", "helper(net, x)")
    assert advice(program) == {
        16: ["net.trainable_variables: none before net is called: call it once above, on a batch"]
    }


def test_a_model_with_inputs_is_built_already():
    program = LOOP.replace("class Net(tf.keras.Model)", "class Net(Base)").replace(
        "net = Net()", "net = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1)])"
    )
    assert ".built" not in ported(program).new


def test_variables_of_layers_are_those_of_keras():
    result = ported(
        """\
        import tensorflow as tf
        class Line(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.w = tf.Variable(5.0, name="w")
            def build(self, shape):
                self.b = tf.Variable(initial_value=tf.zeros(()), trainable=False)
                self.c = tf.Variable(1.0, False)
            def call(self, x):
                return self.w * x + self.b
        class Other:
            def __init__(self):
                self.w = tf.Variable(5.0)
            def read(self):
                return self.w.numpy()
        """
    )
    assert '        self.w = keras.Variable(5.0, name="w")\n' in result.new
    assert (
        "        self.b = keras.Variable(initializer=jnp.zeros(()), trainable=False)" in result.new
    )
    assert "        self.w = rx.Variable(5.0)\n" in result.new
    assert result.new.endswith("        return self.w.numpy()\n")
    said = "keras.Variable(): its second argument is the shape: name those behind the first"
    assert [each.text for each in result.findings if each.verdict.by_hand] == [said]


def test_scaled_losses_and_gradients():
    program = """\
        import tensorflow as tf
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD())
        def step(loss, scaled, variables):
            loss = optimizer.get_scaled_loss(loss)
            gradients = optimizer.get_unscaled_gradients(scaled)
            optimizer.apply_gradients(zip(gradients, variables))
        def clipped(scaled, variables):
            gradients = optimizer.get_unscaled_gradients(scaled)
            optimizer.apply_gradients(zip(clip(gradients), variables))
        """
    new = ported(program).new
    assert "    loss = optimizer.scale_loss(loss)\n    gradients = scaled\n" in new
    assert [*advice(program)] == [8]
    assert "divides by the scale" in advice(program)[8][0]


def test_methods_of_optimizers_of_the_file_are_its_own():
    program = """\
        import tensorflow as tf
        class Adam:
            def apply_gradients(self, gradients, variables):
                variables[0].assign_sub(gradients[0])
        def step(optimizer, gradients, variables):
            optimizer.apply_gradients(gradients, variables)
            return tf.Variable(1.0)
        """
    assert not advice(program)
