"""Input for two replicas, of all kinds, with replicax.

In the shape of TensorFlow's guide to distributed input: data sets that are shared out, data sets
made by a function, partial batches, and values made for each replica. Its twin,
`distributed_input_tensorflow.py`, prints the same.
"""

import jax.numpy as jnp
import numpy as np

import replicax as rx

# Two virtual devices stand in for two GPUs.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 2)
strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
GLOBAL_BATCH_SIZE = 6

temperatures = np.array([12, 14, 11, 15, 17, 15, 13, 12, 18, 19, 14, 14, 16], np.float32)


def show(what, value):
    rows = [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]
    print(f"{what}: {rows}")


print("--- a data set, shared out: the last batch is not full")
dataset = rx.data.Dataset.from_tensor_slices(temperatures).batch(GLOBAL_BATCH_SIZE)
dist_dataset = strategy.experimental_distribute_dataset(dataset)
for batch in dist_dataset:
    show("batch", batch)

print("--- the mean of all rows, however they are shared out")
with strategy.scope():
    total = rx.Variable(
        0.0,
        synchronization=rx.VariableSynchronization.ON_READ,
        aggregation=rx.VariableAggregation.SUM,
        trainable=False,
    )
    count = rx.Variable(
        0.0,
        synchronization=rx.VariableSynchronization.ON_READ,
        aggregation=rx.VariableAggregation.SUM,
        trainable=False,
    )


@rx.function
def count_rows(batch):
    def replica_fn(rows):
        total.assign_add(jnp.sum(rows))
        count.assign_add(jnp.size(rows))

    strategy.run(replica_fn, args=(batch,))


for batch in dist_dataset:
    count_rows(batch)
print(f"{count.numpy():.0f} rows, mean {total.numpy() / count.numpy():.4f}")

print("--- only full batches")
full = rx.data.Dataset.from_tensor_slices(temperatures)
full = full.batch(GLOBAL_BATCH_SIZE, drop_remainder=True)
for batch in strategy.experimental_distribute_dataset(full):
    show("batch", batch)

print("--- a data set made by a function, in batches for one replica")


def dataset_fn(context):
    rows = rx.data.Dataset.from_tensor_slices(temperatures)
    rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows.batch(context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE))


by_function = strategy.distribute_datasets_from_function(dataset_fn)
iterator = iter(by_function)
for _ in range(2):
    show("batch", next(iterator))

print("--- as long as there is something")
optional = iterator.get_next_as_optional()
while optional.has_value():
    show("rest", optional.get_value())
    optional = iterator.get_next_as_optional()
try:
    iterator.get_next()
except rx.errors.OutOfRangeError:
    print("no more")

print("--- all replicas together")


@rx.function
def standardized(batch):
    def replica_fn(rows):
        context = rx.distribute.get_replica_context()
        mean = context.all_reduce(rx.distribute.ReduceOp.MEAN, jnp.mean(rows))
        return rows - mean

    return strategy.run(replica_fn, args=(batch,))


for batch in strategy.experimental_distribute_dataset(full):
    result = standardized(batch)
    show("less the mean", result)
    print("gathered:", np.asarray(strategy.gather(result, axis=0)).tolist())

print("--- values made for each replica")
noise = strategy.experimental_distribute_values_from_function(
    lambda context: np.float32(context.replica_id_in_sync_group) / context.num_replicas_in_sync
)
show("noise", strategy.run(lambda value: rx.constant(10.0) + value, args=(noise,)))
