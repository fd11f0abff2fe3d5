"""Keras's `fit` over four replicas, in TensorFlow.

In the shape of TensorFlow's tutorial on distributed training with Keras: a data set, a model
compiled in the scope, callbacks, evaluation, and the saved model loaded with and without the
strategy. Its twin, `keras_fit_replicax.py`, prints the same numbers.
"""

import os
import tempfile

import numpy as np
import tensorflow as tf

# Four virtual devices stand in for four GPUs.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
print(f"replicas: {strategy.num_replicas_in_sync}")

BATCH_SIZE_PER_REPLICA = 16
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 4


def make_rows(count, seed):
    """Bytes, of which the largest of the first three is to be found."""
    rows = np.random.default_rng(seed).integers(256, size=(count, 8)).astype(np.uint8)
    return rows, np.argmax(rows[:, :3], axis=1).astype(np.int32)


def scale(rows, labels):
    return tf.cast(rows, tf.float32) / 255, labels


train_dataset = tf.data.Dataset.from_tensor_slices(make_rows(512, seed=0))
train_dataset = train_dataset.map(scale).cache().batch(BATCH_SIZE)
eval_dataset = tf.data.Dataset.from_tensor_slices(make_rows(128, seed=1)).map(scale)
eval_dataset = eval_dataset.batch(BATCH_SIZE)

with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8,)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(3),
        ]
    )
    rng = np.random.default_rng(2)  # the same first weights for both libraries
    model.set_weights([rng.normal(scale=0.3, size=each.shape) for each in model.weights])
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(),
        metrics=["accuracy"],
    )


def decay(epoch):
    return 0.02 if epoch < 2 else 0.005


class PrintLearningRate(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        rate = self.model.optimizer.learning_rate.numpy()
        print(f"learning rate of epoch {epoch + 1}: {rate:.4f}")


with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(
            os.path.join(folder, "epoch_{epoch}.weights.h5"), save_weights_only=True
        ),
        tf.keras.callbacks.LearningRateScheduler(decay),
        PrintLearningRate(),
    ]
    history = model.fit(train_dataset, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    for epoch, (loss, accuracy) in enumerate(zip(*map(history.history.get, ["loss", "accuracy"]))):
        print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.4f}")

    model.load_weights(os.path.join(folder, "epoch_2.weights.h5"))
    loss, accuracy = model.evaluate(eval_dataset, verbose=0)
    print(f"weights of epoch 2: test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    model.load_weights(os.path.join(folder, f"epoch_{EPOCHS}.weights.h5"))
    loss, accuracy = model.evaluate(eval_dataset, verbose=0)
    print(f"weights of epoch {EPOCHS}: test loss {loss:.4f}, test accuracy {accuracy:.4f}")

    model.save(os.path.join(folder, "model.keras"))
    plain = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
    loss, accuracy = plain.evaluate(*scale(*make_rows(128, seed=1)), verbose=0)
    print(f"loaded on one device: test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    with strategy.scope():
        again = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
    loss, accuracy = again.evaluate(eval_dataset, verbose=0)
    print(f"loaded on four replicas: test loss {loss:.4f}, test accuracy {accuracy:.4f}")
