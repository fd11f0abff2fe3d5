"""Input for many replicas: data sets of all kinds, and nothing that needs more than new names."""

import os
import tempfile

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mirrored_strategy = tf.distribute.MirroredStrategy(devices=["/cpu:0", "/cpu:1"])
global_batch_size = 4


def show(label, value):
    parts = [part.numpy().tolist() for part in mirrored_strategy.experimental_local_results(value)]
    print(label, parts)


# --- a data set, batched by the global batch size

dataset = tf.data.Dataset.from_tensors(([1.0, 2.0], [3.0])).repeat(10).batch(global_batch_size)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
dataset = dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
dist_dataset = mirrored_strategy.experimental_distribute_dataset(dataset)
for batch in dist_dataset:
    show("rows", batch[0])


# --- one data set for each worker, by a function


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    numbers = tf.data.Dataset.range(12, output_type=tf.int32)
    numbers = numbers.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return numbers.batch(batch_size)


numbers = mirrored_strategy.distribute_datasets_from_function(
    dataset_fn, tf.distribute.InputOptions(experimental_fetch_to_device=True)
)
iterator = iter(numbers)


@tf.function(input_signature=[iterator.element_spec])
def step(inputs):
    def replica_fn(x):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, x), x * x

    return mirrored_strategy.run(replica_fn, args=(inputs,))


for _ in range(2):
    sums, squares = step(next(iterator))
    show("sums", sums)
    show("squares", squares)


# --- until there is no more

optional = iterator.get_next_as_optional()
while optional.has_value():
    show("rest", optional.get_value())
    optional = iterator.get_next_as_optional()
try:
    iterator.get_next()
except tf.errors.OutOfRangeError:
    print("end of data")


# --- files of records


def example_of(number):
    feature = {
        "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "half": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 2])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


def parse(record):
    description = {
        "number": tf.io.FixedLenFeature([], tf.int64),
        "half": tf.io.FixedLenFeature([], tf.float32),
    }
    return tf.io.parse_single_example(record, description)


with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "numbers.tfrecord")
    with tf.io.TFRecordWriter(name) as writer:
        for number in range(6):
            writer.write(example_of(number).SerializeToString())
    records = tf.data.TFRecordDataset([name]).map(parse, num_parallel_calls=2).batch(3)
    for batch in mirrored_strategy.experimental_distribute_dataset(records):
        show("half", batch["half"])


# --- values that are made for each replica

ids = mirrored_strategy.experimental_distribute_values_from_function(
    lambda context: tf.constant(10.0 * context.replica_id_in_sync_group)
)
show("ids", ids)
with mirrored_strategy.scope():
    total = tf.Variable(
        np.float32(0),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
mirrored_strategy.run(lambda x: total.assign_add(x + 1.5), args=(ids,))
print("total", total.read_value().numpy())
