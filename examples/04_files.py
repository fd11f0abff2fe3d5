"""The loop of `03_compiled.py`, over files, stopped and continued. What is new is marked.

The points are written into TFRecord files and read back, shuffled. In the middle of them the loop
is left, and a new one goes on with exactly the batches that would have followed.
"""

import json  # new
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


def write_files(folder: Path) -> None:  # new
    """A record for each point, in turn in each of the files."""  # new
    xs, ys = make_data()  # new
    for number in range(FILES):  # new
        with rx.io.TFRecordWriter(folder / f"points-{number}.tfrecord") as writer:  # new
            for x, y in zip(xs[number::FILES], ys[number::FILES], strict=True):  # new
                values = {"x": x, "y": [y]}  # new
                feature = {  # new
                    name: rx.train.Feature(float_list=rx.train.FloatList(value=value))  # new
                    for name, value in values.items()  # new
                }  # new
                example = rx.train.Example(features=rx.train.Features(feature=feature))  # new
                writer.write(example.SerializeToString())  # new


def parse(record: bytes) -> tuple[np.ndarray, np.ndarray]:  # new
    example = rx.io.parse_single_example(record, FEATURES)  # new
    return example["x"], example["y"]  # new


def read_files(folder: Path) -> rx.distribute.DistributedDataset:  # new
    """All files at a time, in batches of shuffled records."""  # new
    files = rx.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)  # new
    records = files.interleave(rx.data.TFRecordDataset, cycle_length=FILES)  # new
    dataset = records.shuffle(1000, seed=1).map(parse).batch(BATCH)  # new
    return strategy.experimental_distribute_dataset(dataset)  # new


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
        return rx.nn.compute_average_loss(errors, global_batch_size=BATCH)

    loss, gradients = rx.value_and_grad(loss_fn, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss


@rx.function
def step_on_all_replicas(x, y):
    losses = strategy.run(train_step, args=(x, y))
    return strategy.reduce("SUM", losses, axis=None)


def train(batches, first: int, last: int) -> list[np.ndarray]:  # new
    """Trains from one step to another; returns what the network was to learn in each."""  # new
    seen = []  # new
    for step in range(first, last):  # new
        x, y = next(batches)  # new
        loss = step_on_all_replicas(x, y)  # new
        seen.append(strategy.gather(y, axis=0))  # new
        if step % 10 == 9:  # new
            print(f"step {step + 1:2}: loss {float(loss):.4f}")  # new
    return seen  # new


with tempfile.TemporaryDirectory() as name:  # new
    folder = Path(name)  # new
    write_files(folder)  # new

    batches = iter(read_files(folder))  # new
    seen = train(batches, 0, 25)  # new
    state = json.dumps(batches.get_state())  # new
    batches.close()  # new
    print(f"stopped after 25 steps, with the state {state}")  # new

    # In another process, the variables would be restored here too.  # new
    batches = iter(read_files(folder))  # new
    batches.set_state(json.loads(state))  # new
    seen += train(batches, 25, STEPS)  # new

    in_one_go = [strategy.gather(y, axis=0) for _, y in read_files(folder)]  # new
    assert np.array_equal(seen, in_one_go)  # new
    print("and went on with the batches that would have followed")  # new
