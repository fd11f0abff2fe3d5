"""What `fit` did: a loop over the data set, with a step that all replicas run."""

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 2)

rng = np.random.default_rng(1)
x = rng.normal(size=(96, 4)).astype(np.float32)
y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]]) + 0.25).astype(np.float32)
BUFFER_SIZE = len(x)
BATCH_SIZE_PER_REPLICA = 16

mirrored_strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
batch_size = BATCH_SIZE_PER_REPLICA * mirrored_strategy.num_replicas_in_sync

train_dataset = rx.data.Dataset.from_tensor_slices((x[:64], y[:64])).batch(batch_size)
eval_dataset = rx.data.Dataset.from_tensor_slices((x[64:], y[64:])).batch(batch_size)

with mirrored_strategy.scope():
    kernel = rx.Variable(np.zeros((4, 1), np.float32))
    bias = rx.Variable(np.zeros(1, np.float32))
    optimizer = rx.Optimizer(optax.sgd(learning_rate=0.1))
    mean_loss = rx.metrics.Mean()
    mae = rx.metrics.MeanAbsoluteError()


def train_step(x, y):
    def loss_fn():
        losses = jnp.mean(optax.squared_error(x @ kernel + bias, y), axis=-1)
        return rx.nn.compute_average_loss(losses, global_batch_size=batch_size), losses

    (_, losses), gradients = rx.value_and_grad(loss_fn, [kernel, bias], has_aux=True)
    optimizer.apply_gradients(zip(gradients, [kernel, bias]))
    mean_loss.update_state(losses)


def test_step(x, y):
    predictions = x @ kernel + bias
    mean_loss.update_state(optax.squared_error(predictions, y))
    mae.update_state(y, predictions)


@rx.function
def distributed_step(step, x, y):
    mirrored_strategy.run(step, args=(x, y))


history = []
for _ in range(4):
    mean_loss.reset_state()
    for inputs in mirrored_strategy.experimental_distribute_dataset(train_dataset):
        distributed_step(train_step, *inputs)
    history.append(float(mean_loss.result()))
for epoch, loss in enumerate(history):
    print(f"epoch {epoch + 1}: loss {loss:.4f}")

mean_loss.reset_state()
for inputs in mirrored_strategy.experimental_distribute_dataset(eval_dataset):
    distributed_step(test_step, *inputs)
print(f"test loss {mean_loss.result():.4f}, mean absolute error {mae.result():.4f}")
