"""The loop of `03_compiled.py` over replicas of four devices each. What is new is marked.

The points are pixels of images now, and the network is a convolution. An image may be too large for
one device: each replica has four, and each of these a quarter of every image, half of its height
and half of its width. At the borders, the convolution needs pixels of the neighbours; the compiler
sees to that. The losses are those of whole images on one device.
"""

import jax  # new
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50
SIZE = 16  # new

# Eight virtual devices on the CPU; leave this out where there are real ones.  # new
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 8)  # new
strategy = rx.distribute.MirroredStrategy(logical_devices_per_replica=4)  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Images, and the wave of neighbouring pixels that the network is to learn."""  # new
    shape = (BATCH * STEPS, SIZE, SIZE)  # new
    x = np.random.default_rng(0).uniform(-2, 2, size=shape).astype(np.float32)  # new
    return x, np.sin(2 * np.roll(x, 1, axis=1)) * np.cos(np.roll(x, 1, axis=2))  # new


def initial_weights() -> list[np.ndarray]:
    """Two layers: weight, bias, weight, bias."""
    random = np.random.default_rng(1)
    shapes = [(32, 1, 3, 3), (32, 1, 1), (1, 32, 1, 1), (1, 1, 1)]  # new
    return [random.normal(scale=0.2, size=shape).astype(np.float32) for shape in shapes]  # new


def predict(weights, x):
    w1, b1, w2, b2 = weights
    hidden = jnp.tanh(jax.lax.conv(x[:, None], w1, (1, 1), "SAME") + b1)  # new
    return (jax.lax.conv(hidden, w2, (1, 1), "SAME") + b2)[:, 0]  # new


with strategy.scope():
    weights = [rx.Variable(weight) for weight in initial_weights()]
    optimizer = rx.Optimizer(optax.adam(5e-2))  # new


def predict_step(x):  # new
    x = strategy.experimental_split_to_logical_devices(x, [1, 2, 2])  # new
    return predict([weight.value() for weight in weights], x)  # new


def train_step(x, y):
    def loss_fn():
        errors = jnp.mean((predict_step(x) - y) ** 2, axis=(1, 2))  # new
        return rx.nn.share_of_mean(errors)

    loss, gradients = rx.value_and_grad(loss_fn, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss


@rx.function
def step_on_all_replicas(x, y):
    losses = strategy.run(train_step, args=(x, y))
    return strategy.reduce("SUM", losses, axis=None)


def loss_on_one_device(x, y):  # new
    x, y = strategy.gather(x, axis=0), strategy.gather(y, axis=0)  # new
    return jnp.mean((predict([weight.numpy() for weight in weights], x) - y) ** 2)  # new


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
batches = strategy.experimental_distribute_dataset(dataset)
for step, (x, y) in enumerate(batches):
    expected = loss_on_one_device(x, y)  # new
    loss = step_on_all_replicas(x, y)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)  # new
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {loss:.4f}, on one device {expected:.4f}")  # new

predicted = strategy.run(rx.function(predict_step), args=(x,))  # new
for replica, images in enumerate(strategy.experimental_local_results(predicted)):  # new
    print(f"replica {replica} has predicted {images.shape}: {len(images)} images, of which")  # new
    for shard in images.addressable_shards:  # new
        rows, columns = (f"{each.start} to {each.stop - 1}" for each in shard.index[1:])  # new
        print(f"  {shard.device} has rows {rows}, columns {columns}: {shard.data.shape}")  # new
