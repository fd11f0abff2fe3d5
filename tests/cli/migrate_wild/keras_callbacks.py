"""Keras under MirroredStrategy: a pipeline with map, a schedule, callbacks, saving and loading."""

import os
import sys

import numpy as np
import tensorflow as tf

print("TensorFlow version:", tf.__version__)
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(f"Number of devices: {strategy.num_replicas_in_sync}")

BATCH_SIZE = 16 * strategy.num_replicas_in_sync
FOLDER = sys.argv[1]

rng = np.random.default_rng(0)
images = rng.integers(0, 255, size=(512, 8, 8, 1), dtype=np.uint8)
labels = (images.mean(axis=(1, 2, 3)) > 127).astype(np.int64)


def scale(image, label):
    image = tf.cast(image, tf.float32)
    image /= 255.0
    return image, tf.one_hot(label, 2)


def prepare(dataset, training):
    if training:
        dataset = dataset.shuffle(256, seed=1)
    dataset = dataset.map(scale, num_parallel_calls=tf.data.AUTOTUNE).cache()
    return dataset.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.experimental.AUTOTUNE)


train_dataset = prepare(tf.data.Dataset.from_tensor_slices((images[:256], labels[:256])), True)
eval_dataset = prepare(tf.data.Dataset.from_tensor_slices((images[256:], labels[256:])), False)


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate, warmup_steps):
        super().__init__()
        self.rate = tf.cast(rate, tf.float32)
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        first = tf.math.rsqrt(step + 1.0)
        second = (step + 1.0) * (self.warmup_steps**-1.5)
        return self.rate * tf.math.minimum(first, second)


class PrintRate(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1} has ended, loss {logs['loss']:.3f}")


with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, activation=tf.nn.relu, input_shape=(8, 8, 1)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(16, tf.nn.relu),
            tf.keras.layers.Dense(2),
        ]
    )
    model.compile(
        loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(learning_rate=WarmUp(0.1, 4)),
        metrics=["accuracy"],
    )

weights = os.path.join(FOLDER, "best.weights.h5")
callbacks = [
    tf.keras.callbacks.ModelCheckpoint(filepath=weights, save_weights_only=True),
    tf.keras.callbacks.EarlyStopping(monitor="loss", patience=5),
    PrintRate(),
]
history = model.fit(train_dataset, epochs=3, callbacks=callbacks, verbose=0)
assert tf.io.gfile.exists(weights)
model.load_weights(weights)
loss, accuracy = model.evaluate(eval_dataset, verbose=0)
assert np.isfinite(loss) and 0 <= accuracy <= 1
print("done")
