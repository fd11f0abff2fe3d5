"""The loop of `03_compiled.py` over your own data, in TFRecord files. What is new is marked.

The points are written into four files, a record for each, and read back: all files at a time, each
record parsed into `x` and `y`. The rows arrive as they were, so the losses are those from before.
"""

import tempfile  # new
from pathlib import Path  # new

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50
FILES = 4  # new
FEATURES = {  # new
    "x": rx.io.FixedLenFeature([2], np.float32),  # new
    "y": rx.io.FixedLenFeature([], np.float32),  # new
}  # new

# Four virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy()


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, 0]) * np.cos(x[:, 1])


def floats(values) -> rx.train.Feature:  # new
    return rx.train.Feature(float_list=rx.train.FloatList(value=values))  # new


def write_files(folder: Path) -> None:  # new
    """A record for each point, in turn in each of the files."""  # new
    xs, ys = make_data()  # new
    for number in range(FILES):  # new
        with rx.io.TFRecordWriter(folder / f"points-{number}.tfrecord") as writer:  # new
            for x, y in zip(xs[number::FILES], ys[number::FILES], strict=True):  # new
                features = rx.train.Features(feature={"x": floats(x), "y": floats([y])})  # new
                writer.write(rx.train.Example(features=features).SerializeToString())  # new


def parse(record: bytes) -> tuple[np.ndarray, np.ndarray]:  # new
    example = rx.io.parse_single_example(record, FEATURES)  # new
    return example["x"], example["y"]  # new


def read_files(folder: Path) -> rx.data.Dataset:  # new
    """A record of each file in turn; to train, `.shuffle(1000)` would follow."""  # new
    files = rx.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)  # new
    return files.interleave(rx.data.TFRecordDataset, cycle_length=FILES).map(parse)  # new


def initial_weights() -> list[np.ndarray]:
    """Two layers: weight, bias, weight, bias."""
    random = np.random.default_rng(1)
    shapes = [(2, 64), (64,), (64, 1), (1,)]
    return [random.normal(scale=0.5, size=shape).astype(np.float32) for shape in shapes]


def predict(weights, x):
    w1, b1, w2, b2 = weights
    return (jnp.tanh(x @ w1 + b1) @ w2 + b2)[:, 0]


with strategy.scope():
    weights = [rx.Variable(weight) for weight in initial_weights()]
    optimizer = rx.Optimizer(optax.adam(1e-2))


def train_step(x, y):
    def loss_fn():
        errors = (predict(weights, x) - y) ** 2
        return rx.nn.share_of_mean(errors)

    loss, gradients = rx.value_and_grad(loss_fn, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss


@rx.function
def step_on_all_replicas(x, y):
    losses = strategy.run(train_step, args=(x, y))
    return strategy.reduce("SUM", losses, axis=None)


with tempfile.TemporaryDirectory() as name:  # new
    write_files(Path(name))  # new
    for file in sorted(Path(name).iterdir()):  # new
        print(f"{file.name}: {file.stat().st_size:,} bytes")  # new
    dataset = read_files(Path(name)).batch(BATCH)  # new
    batches = strategy.experimental_distribute_dataset(dataset)
    for step, (x, y) in enumerate(batches):
        loss = step_on_all_replicas(x, y)
        if step % 10 == 9:
            print(f"step {step + 1:2}: loss {float(loss):.4f}")
