"""A custom loop: TFRecord files, augmentation in map, L2, clipping, checkpoints, summaries."""

import os
import sys

import numpy as np
import tensorflow as tf

FOLDER = sys.argv[1]
HEIGHT, WIDTH, CLASSES = 4, 4, 3
RECORDS = os.path.join(FOLDER, "train.tfrecord")


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def write_records(count):
    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(RECORDS) as writer:
        for _ in range(count):
            label = int(rng.integers(CLASSES))
            image = rng.integers(0, 80, size=(HEIGHT, WIDTH), dtype=np.uint8) + 80 * label
            feature = {
                "image": _bytes_feature(image.astype(np.uint8).tobytes()),
                "label": _int64_feature(label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def normalize(image):
    mean = tf.reduce_mean(image)
    return (image - mean * 0.0) / 255.0


def parse(record):
    features = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    image = tf.io.decode_raw(features["image"], tf.uint8)
    image = tf.reshape(image, [HEIGHT, WIDTH, 1])
    image = normalize(tf.cast(image, tf.float32))
    image = tf.concat([image, tf.reverse(image, axis=[1])], axis=-1)
    return image, tf.cast(features["label"], tf.int32)


write_records(96)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
GLOBAL_BATCH_SIZE = 12 * strategy.num_replicas_in_sync
dataset = tf.data.TFRecordDataset([RECORDS]).map(parse).shuffle(96, seed=0).repeat()
dataset = dataset.batch(GLOBAL_BATCH_SIZE).prefetch(2)
dist_dataset = strategy.experimental_distribute_dataset(dataset)


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten = tf.keras.layers.Flatten()
        self.hidden = tf.keras.layers.Dense(16, activation=tf.nn.relu)
        self.out = tf.keras.layers.Dense(CLASSES)

    def call(self, x, training=False):
        return self.out(self.hidden(self.flatten(x)))


with strategy.scope():
    model = Net()
    model(tf.zeros([1, HEIGHT, WIDTH, 2]))
    optimizer = tf.keras.optimizers.Adam(0.01)
    train_loss = tf.keras.metrics.Mean("train_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy("train_accuracy")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, os.path.join(FOLDER, "checkpoints"), max_to_keep=2)


def compute_loss(labels, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        loss = compute_loss(labels, logits)
        l2_loss = tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
        loss = loss + tf.nn.scale_regularization_loss(1e-4 * l2_loss)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, 5.0)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss.update_state(loss * strategy.num_replicas_in_sync)
    train_accuracy.update_state(labels, logits)
    return loss


@tf.function
def distributed_train_step(inputs):
    per_replica = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)


writer = tf.summary.create_file_writer(os.path.join(FOLDER, "logs"))
iterator = iter(dist_dataset)
first = None
for epoch in range(4):
    for _ in range(8):
        loss = distributed_train_step(next(iterator))
        first = loss if first is None else first
    with writer.as_default():
        tf.summary.scalar("loss", train_loss.result(), step=epoch)
        tf.summary.scalar("accuracy", train_accuracy.result(), step=epoch)
    manager.save()
    print(f"epoch {epoch}: {train_loss.result().numpy():.3f}")
    train_loss.reset_states()
    train_accuracy.reset_states()
assert float(loss) < float(first)
checkpoint.restore(manager.latest_checkpoint)
assert len(tf.io.gfile.glob(os.path.join(FOLDER, "logs", "*"))) == 1
print("done")
