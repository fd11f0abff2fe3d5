"""A training loop of one's own: a Keras model, a loss function, metrics, two replicas."""

import os

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras

import replicax as rx

# Two virtual devices stand in for two GPUs.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(
    cpu,
    [rx.config.LogicalDeviceConfiguration(), rx.config.LogicalDeviceConfiguration()],
)

rng = np.random.default_rng(0)
images = rng.normal(size=(80, 6)).astype(np.float32)
labels = np.argmax(images[:, :3], axis=1).astype(np.int32)
kernels = [rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)]

strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(f"replicas: {strategy.num_replicas_in_sync}")

BATCH_SIZE_PER_REPLICA = 8
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 3

train_dataset = rx.data.Dataset.from_tensor_slices((images[:64], labels[:64])).batch(
    GLOBAL_BATCH_SIZE
)
test_dataset = rx.data.Dataset.from_tensor_slices((images[64:], labels[64:])).batch(16)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    return keras.Sequential(
        [
            keras.layers.Input(shape=(6,)),
            keras.layers.Dense(
                8, activation="relu", kernel_initializer=keras.initializers.Constant(kernels[0])
            ),
            keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(kernels[1])),
        ]
    )


with strategy.scope():
    # Without a reduction: the sum is to be divided by the size of the *global* batch.
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def compute_loss(labels, predictions):
        per_example_loss = loss_object(labels, predictions)
        return rx.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)

    test_loss = keras.metrics.Mean(name="test_loss")
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    model = create_model()
    optimizer = keras.optimizers.SGD(learning_rate=0.1)
    optimizer.build(model.trainable_variables)


def train_step(inputs):
    images, labels = inputs

    def loss_fn():
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions)
        return loss, predictions

    variables = model.trainable_variables
    (loss, predictions), gradients = rx.value_and_grad(loss_fn, variables, has_aux=True)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs

    predictions = model(images, training=False)
    t_loss = loss_object(labels, predictions)

    test_loss.update_state(t_loss)
    test_accuracy.update_state(labels, predictions)


@rx.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@rx.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


for epoch in range(EPOCHS):
    total_loss = 0.0
    num_batches = 0
    for x in train_dist_dataset:
        total_loss += distributed_train_step(x)
        num_batches += 1
    train_loss = total_loss / num_batches

    for x in test_dist_dataset:
        distributed_test_step(x)

    print(
        f"epoch {epoch + 1}: loss {np.asarray(train_loss):.4f}, "
        f"accuracy {np.asarray(train_accuracy.result()):.4f}, "
        f"test loss {test_loss.result():.4f}, test accuracy {test_accuracy.result():.4f}"
    )
    test_loss.reset_state()
    train_accuracy.reset_state()
    test_accuracy.reset_state()
