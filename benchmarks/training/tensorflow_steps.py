"""The training step in TensorFlow: a `MirroredStrategy` over virtual CPU devices."""

from typing import Any

from benchmarks.harness.sides import Side, Work
from benchmarks.training.models import (
    EPSILON,
    LEARNING_RATE,
    MODELS,
    MOMENTUM,
    Conv,
    Dense,
    initial_weights,
    replica_batches,
)


def tensorflow_on(replicas: int) -> tuple[Any, Any]:
    """Returns TensorFlow, and its `MirroredStrategy` over virtual CPU devices."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    return tf, tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


class TensorFlow(Side):
    """Steps of any model, in a `tf.function` or not.

    One strategy serves all models: the collectives of a second one would clash with the first's.
    """

    def __init__(self, replicas: int, compiled: bool = True):
        self.tf, self.strategy = tensorflow_on(replicas)
        self.version = self.tf.__version__
        self.compiled = compiled

    def prepare(self, name: str, *_: object) -> Work:
        step = make_step(self.tf, self.strategy, MODELS[name], self.compiled)
        # A tf.function returns when its program has ended.
        return lambda count: [float(loss) for loss in [step() for _ in range(count)]]


def make_losses(tf, net):
    """Returns a function that gives the losses of examples, and statistics; see `losses.py`."""

    def dense(weights, inputs, labels):
        hidden = inputs
        for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            hidden = tf.nn.relu(hidden @ kernel + bias)
        return cross_entropy(labels, hidden @ weights[-2] + weights[-1]), []

    def conv(weights, inputs, labels):
        hidden, statistics = inputs, []
        for layer in range(0, len(weights) - 2, 3):
            kernel, gain, offset = weights[layer : layer + 3]
            hidden = tf.nn.conv2d(hidden, kernel, 2 if layer else 1, "SAME")
            hidden, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                hidden, gain, offset, epsilon=1e-3, is_training=True
            )
            hidden = tf.nn.relu(hidden)
            rows = tf.cast(tf.size(hidden) / hidden.shape[-1], tf.float32)
            # This op gives the unbiased variance.
            statistics += [mean, variance * (rows - 1) / rows]
        logits = tf.reduce_mean(hidden, axis=(1, 2)) @ weights[-2] + weights[-1]
        return cross_entropy(labels, logits), statistics

    def transformer(weights, inputs, labels):
        given = iter(weights)

        def take():
            return next(given)

        def normal(x):
            x = x - tf.reduce_mean(x, axis=-1, keepdims=True)
            scale = tf.math.rsqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + 1e-5)
            return x * scale * take() + take()

        embedding, positions = take(), take()
        batch, length = inputs.shape
        stream = tf.reshape(tf.gather(embedding, inputs) + positions, (-1, net.width))
        size = net.width // net.heads
        mask = tf.linalg.band_part(tf.ones((length, length)), -1, 0) - 1
        for _ in range(net.layers):
            parts = tf.reshape(normal(stream) @ take(), (batch, length, 3, net.heads, size))
            query, key, value = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
            scores = tf.matmul(query, key, transpose_b=True) / size**0.5
            mixed = tf.nn.softmax(scores + 1e9 * mask) @ value
            mixed = tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, net.width))
            stream = stream + mixed @ take()
            hidden = tf.nn.relu(normal(stream) @ take() + take())
            stream = stream + hidden @ take() + take()
        logits = tf.matmul(normal(stream), embedding, transpose_b=True)
        losses = cross_entropy(tf.reshape(labels, [-1]), logits)
        return tf.reduce_mean(tf.reshape(losses, labels.shape), axis=-1), []

    def cross_entropy(labels, logits):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    return dense if isinstance(net, Dense) else conv if isinstance(net, Conv) else transformer


def make_step(tf, strategy, model, compiled=True):
    """Returns a function that trains for one step and gives back the loss over the whole batch."""
    with strategy.scope():
        variables = [tf.Variable(weight) for weight in initial_weights(model)]
        averages = [
            tf.Variable(
                average,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )
            for average in model.net.averages()
        ]
        optimizer = tf.keras.optimizers.Adam(LEARNING_RATE, epsilon=EPSILON)
        optimizer.build(variables)
    parts = replica_batches(model, strategy.num_replicas_in_sync)
    example_losses = make_losses(tf, model.net)

    def part(index):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group][index])
        )

    def replica_step(inputs, labels):
        with tf.GradientTape() as tape:
            losses, statistics = example_losses(variables, inputs, labels)
            loss = tf.reduce_sum(losses) / model.batch
        gradients = tape.gradient(loss, variables)
        # The embedding's is a set of rows, as its lookup saw them; Adam updates all of it.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for average, statistic in zip(averages, statistics, strict=True):
            average.assign(MOMENTUM * average + (1 - MOMENTUM) * statistic)
        return loss

    inputs, labels = part(0), part(1)
    if not compiled:

        def eager_step():
            losses = strategy.run(replica_step, args=(inputs, labels))
            return sum(float(loss) for loss in strategy.experimental_local_results(losses))

        return eager_step

    @tf.function
    def step(inputs, labels):
        losses = strategy.run(replica_step, args=(inputs, labels))
        return strategy.reduce("SUM", losses, axis=None)

    return lambda: step(inputs, labels)
