"""`07_keras_fit.py` with a loop of its own in the place of `fit`. What is new or changed is marked.

Model, optimizer, loss and metric are Keras's; the step is like those of the other examples.
"""
# pyright: reportArgumentType=false
# Keras's parameters are known by the types of their defaults only.

import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

import replicax as rx

BATCH = 64
EPOCHS = 5

# Four virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy()


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * 20, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])


keras.utils.set_random_seed(0)
x, y = make_data()
with strategy.scope():
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.Adam(1e-2)
    loss_object = keras.losses.MeanSquaredError(reduction=None)  # new
    mean_loss = keras.metrics.Mean()  # new


def train_step(x, y):  # new
    def loss_fn():  # new
        errors = loss_object(y, model(x, training=True))  # new
        return rx.nn.share_of_mean(errors), errors  # new

    variables = model.trainable_variables  # new
    (_, errors), gradients = rx.value_and_grad(loss_fn, variables, has_aux=True)  # new
    optimizer.apply_gradients(zip(gradients, variables))  # new
    mean_loss.update_state(errors)  # new


@rx.function  # new
def step_on_all_replicas(x, y):  # new
    strategy.run(train_step, args=(x, y))  # new


dataset = rx.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)  # new
batches = strategy.experimental_distribute_dataset(dataset)  # new
for epoch in range(EPOCHS):  # new
    for batch in batches:  # new
        step_on_all_replicas(*batch)  # new
    print(f"epoch {epoch + 1}: loss {mean_loss.result():.4f}")  # new
    mean_loss.reset_state()  # new
print("predicted", model.predict(x[:126], batch_size=BATCH, verbose=0).shape)
