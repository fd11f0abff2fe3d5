"""Keras's `fit` over four replicas, with replicax.

In the shape of TensorFlow's tutorial on distributed training with Keras: a data set, a model
compiled in the scope, callbacks, evaluation, and the saved model loaded with and without the
strategy. Its twin, `keras_fit_tensorflow.py`, prints the same numbers.
"""

import os
import tempfile

import numpy as np

os.environ["KERAS_BACKEND"] = "jax"
import keras

import replicax as rx

# Four virtual devices stand in for four GPUs.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
print(f"replicas: {strategy.num_replicas_in_sync}")

BATCH_SIZE_PER_REPLICA = 16
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 4


def make_rows(count, seed):
    """Bytes, of which the largest of the first three is to be found."""
    rows = np.random.default_rng(seed).integers(256, size=(count, 8)).astype(np.uint8)
    return rows, np.argmax(rows[:, :3], axis=1).astype(np.int32)


def scale(rows, labels):
    return rows.astype(np.float32) / 255, labels


train_dataset = rx.data.Dataset.from_tensor_slices(make_rows(512, seed=0))
train_dataset = train_dataset.map(scale).cache().batch(BATCH_SIZE)
eval_dataset = rx.data.Dataset.from_tensor_slices(make_rows(128, seed=1)).map(scale)
eval_dataset = eval_dataset.batch(BATCH_SIZE)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(3),
        ]
    )
    rng = np.random.default_rng(2)  # the same first weights for both libraries
    model.set_weights([rng.normal(scale=0.3, size=each.shape) for each in model.weights])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )


def decay(epoch):
    return 0.02 if epoch < 2 else 0.005


class PrintLearningRate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        rate = np.asarray(self.model.optimizer.learning_rate)
        print(f"learning rate of epoch {epoch + 1}: {rate:.4f}")


with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        keras.callbacks.ModelCheckpoint(
            os.path.join(folder, "epoch_{epoch}.weights.h5"), save_weights_only=True
        ),
        keras.callbacks.LearningRateScheduler(decay),
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
    plain = keras.models.load_model(os.path.join(folder, "model.keras"))
    loss, accuracy = plain.evaluate(*scale(*make_rows(128, seed=1)), verbose=0)
    print(f"loaded on one device: test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    with strategy.scope():
        again = keras.models.load_model(os.path.join(folder, "model.keras"))
    loss, accuracy = again.evaluate(eval_dataset, verbose=0)
    print(f"loaded on four replicas: test loss {loss:.4f}, test accuracy {accuracy:.4f}")
