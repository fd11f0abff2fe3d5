"""A Keras model on one device; `07_keras_fit.py` trains it over four replicas."""
# pyright: reportArgumentType=false
# Keras's parameters are known by the types of their defaults only.

import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

BATCH = 64
EPOCHS = 5


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * 20, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])


keras.utils.set_random_seed(0)
x, y = make_data()
inputs = keras.Input((2,))
hidden = keras.layers.Dense(64, activation="tanh")(inputs)
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
optimizer = keras.optimizers.Adam(1e-2)
model.compile(optimizer, "mse")

history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0).history
for epoch, loss in enumerate(history["loss"]):
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
print("predicted", model.predict(x[:126], batch_size=BATCH, verbose=0).shape)
