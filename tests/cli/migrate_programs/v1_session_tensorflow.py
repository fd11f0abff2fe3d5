"""A program for graphs and sessions: what there is no counterpart for."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

xs = np.arange(8, dtype=np.float32)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

with tf.Graph().as_default(), strategy.scope():
    dataset = tf.data.Dataset.from_tensor_slices(xs).batch(4)
    iterator = strategy.make_dataset_iterator(dataset)
    weight = tf.get_variable("weight", initializer=2.0)

    def replica_fn(x):
        return tf.reduce_sum(x * weight)

    per_replica = strategy.experimental_run(replica_fn, iterator)
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica)

    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(iterator.initialize())
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            print("total", session.run(total))
