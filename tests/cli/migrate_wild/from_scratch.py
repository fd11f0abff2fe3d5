"""Variables of one's own under a strategy: no Keras model, a loop of one's own."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

with strategy.scope():
    w = tf.Variable(tf.zeros([3, 1]), name="w")
    b = tf.Variable(0.0)
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1)

x = np.random.RandomState(0).randn(64, 3).astype("float32")
y = x @ np.array([[1.0], [2.0], [-1.0]], "float32") + 0.5
dataset = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
)


def forward(inputs):
    return tf.matmul(inputs, w) + b


@tf.function
def train_step(inputs, targets):
    def replica_fn(inputs, targets):
        with tf.GradientTape() as tape:
            outputs = forward(inputs)
            loss = tf.reduce_sum(tf.square(outputs - targets)) / 32.0
        grads = tape.gradient(loss, [w, b])
        optimizer.apply_gradients(zip(grads, [w, b]))
        correct = tf.reduce_mean(tf.cast(tf.abs(outputs - targets) < 0.5, tf.float32))
        return loss, correct

    losses, correct = strategy.run(replica_fn, args=(inputs, targets))
    loss = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
    correct = strategy.reduce(tf.distribute.ReduceOp.MEAN, correct, axis=None)
    tf.print("loss:", loss, "correct:", correct)
    return loss


for _ in range(20):
    for batch in dataset:
        loss = train_step(*batch)
assert float(loss) < 0.05
np.testing.assert_allclose(w.numpy()[:, 0], [1, 2, -1], atol=0.1)
print("done")
