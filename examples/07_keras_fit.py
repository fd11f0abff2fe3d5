"""The model of `single_device/keras_fit.py` over four replicas. What is new or changed is marked.

What Keras makes in the scope is the strategy's; `fit` and `predict` then run on all replicas, also
with the 126 rows that four replicas cannot share out evenly.
"""
# pyright: reportArgumentType=false
# Keras's parameters are known by the types of their defaults only.

import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

import replicax as rx  # new

BATCH = 64
EPOCHS = 5

# Four virtual devices on the CPU; leave this out where there are real ones.  # new
cpu = rx.config.list_physical_devices("CPU")[0]  # new
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)  # new
strategy = rx.distribute.MirroredStrategy()  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * 20, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])


keras.utils.set_random_seed(0)
x, y = make_data()
with strategy.scope():  # new
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.Adam(1e-2)
    model.compile(optimizer, "mse")

history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0).history
for epoch, loss in enumerate(history["loss"]):
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
print("predicted", model.predict(x[:126], batch_size=BATCH, verbose=0).shape)
