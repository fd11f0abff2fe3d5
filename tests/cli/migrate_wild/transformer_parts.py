"""Attention and masks by hand, in layers of one's own, under a strategy."""

import numpy as np
import tensorflow as tf


def positional_encoding(length, depth):
    positions = np.arange(length)[:, np.newaxis]
    depths = np.arange(depth // 2)[np.newaxis, :] / (depth // 2)
    angles = positions / (10000**depths)
    return tf.cast(np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), dtype=tf.float32)


def create_padding_mask(seq):
    seq = tf.cast(tf.math.equal(seq, 0), tf.float32)
    return seq[:, tf.newaxis, tf.newaxis, :]


def scaled_dot_product_attention(q, k, v, mask):
    matmul_qk = tf.matmul(q, k, transpose_b=True)
    dk = tf.cast(tf.shape(k)[-1], tf.float32)
    scaled = matmul_qk / tf.math.sqrt(dk)
    if mask is not None:
        scaled += mask * -1e9
    weights = tf.nn.softmax(scaled, axis=-1)
    return tf.matmul(weights, v), weights


class Attention(tf.keras.layers.Layer):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_model = d_model
        self.depth = d_model // num_heads
        self.wq = tf.keras.layers.Dense(d_model)
        self.wk = tf.keras.layers.Dense(d_model)
        self.wv = tf.keras.layers.Dense(d_model)
        self.dense = tf.keras.layers.Dense(d_model)

    def split_heads(self, x, batch_size):
        x = tf.reshape(x, (batch_size, -1, self.num_heads, self.depth))
        return tf.transpose(x, perm=[0, 2, 1, 3])

    def call(self, x, mask=None):
        batch_size = tf.shape(x)[0]
        q = self.split_heads(self.wq(x), batch_size)
        k = self.split_heads(self.wk(x), batch_size)
        v = self.split_heads(self.wv(x), batch_size)
        attention, _ = scaled_dot_product_attention(q, k, v, mask)
        attention = tf.transpose(attention, perm=[0, 2, 1, 3])
        return self.dense(tf.reshape(attention, (batch_size, -1, self.d_model)))


class Classifier(tf.keras.Model):
    def __init__(self, vocabulary, d_model):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(vocabulary, d_model)
        self.position = positional_encoding(16, d_model)
        self.attention = Attention(d_model, 2)
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-6)
        self.out = tf.keras.layers.Dense(2)

    def call(self, tokens):
        mask = create_padding_mask(tokens)
        length = tf.shape(tokens)[1]
        x = self.embedding(tokens) * tf.math.sqrt(8.0) + self.position[tf.newaxis, :length, :]
        x = self.norm(x + self.attention(x, mask))
        return self.out(tf.reduce_mean(x, axis=1))


strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
rng = np.random.default_rng(0)
tokens = rng.integers(0, 20, size=(64, 12))
labels = (tokens[:, 0] > 9).astype(np.int32)
batch_size = 16 * strategy.num_replicas_in_sync
dataset = tf.data.Dataset.from_tensor_slices((tokens.astype(np.int32), labels))
dataset = strategy.experimental_distribute_dataset(dataset.batch(batch_size).repeat(6))
with strategy.scope():
    model = Classifier(20, 8)
    model(tf.zeros([2, 12], tf.int32))
    optimizer = tf.keras.optimizers.Adam(0.02, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE
    )


def replica_step(tokens, labels):
    with tf.GradientTape() as tape:
        logits = model(tokens)
        loss = tf.nn.compute_average_loss(loss_object(labels, logits), global_batch_size=batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    hits = tf.cast(tf.equal(tf.argmax(logits, axis=1), tf.cast(labels, tf.int64)), tf.float32)
    return loss, tf.reduce_sum(hits)


@tf.function
def step(tokens, labels):
    loss, hits = strategy.run(replica_step, args=(tokens, labels))
    return (
        strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None),
        strategy.reduce(tf.distribute.ReduceOp.SUM, hits, axis=None),
    )


results = [step(*batch) for batch in dataset]
losses = tf.stack([loss for loss, _ in results])
assert losses.numpy()[-1] < losses.numpy()[0]
print("done")
