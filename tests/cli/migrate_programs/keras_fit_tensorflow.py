"""`fit` does the training: a Keras model compiled in the scope of a strategy."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

rng = np.random.default_rng(1)
x = rng.normal(size=(96, 4)).astype(np.float32)
y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]]) + 0.25).astype(np.float32)
BUFFER_SIZE = len(x)
BATCH_SIZE_PER_REPLICA = 16

mirrored_strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
batch_size = BATCH_SIZE_PER_REPLICA * mirrored_strategy.num_replicas_in_sync

train_dataset = tf.data.Dataset.from_tensor_slices((x[:64], y[:64])).batch(batch_size)
eval_dataset = tf.data.Dataset.from_tensor_slices((x[64:], y[64:])).batch(batch_size)

with mirrored_strategy.scope():
    model = tf.keras.Sequential([layers.Dense(1, kernel_initializer="zeros")])
    model.compile(
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.1),
        metrics=["mae"],
    )

history = model.fit(train_dataset, epochs=4, verbose=0)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
eval_loss, eval_mae = model.evaluate(eval_dataset, verbose=0)
print(f"test loss {eval_loss:.4f}, mean absolute error {eval_mae:.4f}")
