"""A training loop of one's own: a Keras model, a tape, metrics, two replicas."""

import numpy as np
import tensorflow as tf

# Two virtual devices stand in for two GPUs.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu,
    [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
)

rng = np.random.default_rng(0)
images = rng.normal(size=(80, 6)).astype(np.float32)
labels = np.argmax(images[:, :3], axis=1).astype(np.int32)
kernels = [rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)]

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(f"replicas: {strategy.num_replicas_in_sync}")

BATCH_SIZE_PER_REPLICA = 8
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
EPOCHS = 3

train_dataset = tf.data.Dataset.from_tensor_slices((images[:64], labels[:64])).batch(
    GLOBAL_BATCH_SIZE
)
test_dataset = tf.data.Dataset.from_tensor_slices((images[64:], labels[64:])).batch(16)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)


def create_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input(shape=(6,)),
            tf.keras.layers.Dense(
                8, activation="relu", kernel_initializer=tf.constant_initializer(kernels[0])
            ),
            tf.keras.layers.Dense(3, kernel_initializer=tf.constant_initializer(kernels[1])),
        ]
    )


with strategy.scope():
    # Without a reduction: the sum is to be divided by the size of the *global* batch.
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def compute_loss(labels, predictions):
        per_example_loss = loss_object(labels, predictions)
        return tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)

    test_loss = tf.keras.metrics.Mean(name="test_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    model = create_model()
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1)
    optimizer.build(model.trainable_variables)


def train_step(inputs):
    images, labels = inputs

    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions)

    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs

    predictions = model(images, training=False)
    t_loss = loss_object(labels, predictions)

    test_loss.update_state(t_loss)
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
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
        f"epoch {epoch + 1}: loss {train_loss.numpy():.4f}, "
        f"accuracy {train_accuracy.result().numpy():.4f}, "
        f"test loss {test_loss.result():.4f}, test accuracy {test_accuracy.result():.4f}"
    )
    test_loss.reset_state()
    train_accuracy.reset_state()
    test_accuracy.reset_state()
