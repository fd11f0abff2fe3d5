"""A training loop of your own over four replicas, in TensorFlow.

In the shape of TensorFlow's tutorial on custom training with `MirroredStrategy`: a Keras model, a
loss that is divided by the size of the global batch, metrics, and a checkpoint. Its twin,
`custom_loop_replicax.py`, prints the same numbers.
"""

import tempfile

import numpy as np
import tensorflow as tf

# Four virtual devices stand in for four GPUs.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
print(f"replicas: {strategy.num_replicas_in_sync}")

BATCH_SIZE_PER_REPLICA = 16
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 3


def make_images(count, seed):
    """Noisy pictures of 12 x 12 pixels, of a bar that lies in one of four places."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=count)
    images = rng.normal(scale=1.0, size=(count, 12, 12, 1))
    for image, label in zip(images, labels):
        image[3 * label : 3 * label + 2] += 1
    return images.astype(np.float32), labels.astype(np.int32)


train_dataset = tf.data.Dataset.from_tensor_slices(make_images(500, seed=0))
train_dist_dataset = strategy.experimental_distribute_dataset(
    train_dataset.batch(GLOBAL_BATCH_SIZE)
)
test_dataset = tf.data.Dataset.from_tensor_slices(make_images(99, seed=1)).batch(GLOBAL_BATCH_SIZE)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((12, 12, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(4),
        ]
    )
    rng = np.random.default_rng(2)  # the same first weights for both libraries
    model.set_weights([rng.normal(scale=0.1, size=each.shape) for each in model.weights])
    return model


with strategy.scope():
    # No reduction: the sum is divided by the size of the global batch, not of a replica's share.
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    test_loss = tf.keras.metrics.Mean()
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    model = create_model()
    optimizer = tf.keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)


def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        losses = loss_object(labels, predictions)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)

    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(images, labels):
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(images, labels):
    losses = strategy.run(train_step, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def distributed_test_step(images, labels):
    strategy.run(test_step, args=(images, labels))


with tempfile.TemporaryDirectory() as folder:
    for epoch in range(EPOCHS):
        losses = [distributed_train_step(*batch) for batch in train_dist_dataset]
        for batch in test_dist_dataset:
            distributed_test_step(*batch)
        print(
            f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, "
            f"accuracy {train_accuracy.result():.4f}, "
            f"test loss {test_loss.result():.4f}, test accuracy {test_accuracy.result():.4f}"
        )
        test_loss.reset_state()
        train_accuracy.reset_state()
        test_accuracy.reset_state()
    path = checkpoint.save(f"{folder}/ckpt")

    # The same model once more, from the checkpoint, on one device.
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        new_model = create_model()
    tf.train.Checkpoint(model=new_model).restore(path).expect_partial()
    images, labels = make_images(99, seed=1)
    correct = np.argmax(new_model(images), axis=1) == labels
    print(f"restored: test accuracy {np.mean(correct):.4f}")
