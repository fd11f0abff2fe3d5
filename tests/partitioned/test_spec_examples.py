"""The examples with logical devices of the `tf.distribute.Strategy` page, `tf.` written as `rx.`.

The page has them for TPUs of eight cores; here they run on eight virtual CPU devices. `inputs` and
`model` are what the page leaves open.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax
from tests.partitioned.looking import compiled_by, logical_devices, operations_in, shards_of
from tests.partitioned.models import convolved

rx: Any = replicax  # the page's programs are not annotated

IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype(np.float32)
LABELS = np.arange(8, dtype=np.int32) % 4
KERNEL = np.random.default_rng(1).normal(scale=0.3, size=(3, 3, 3, 4)).astype(np.float32)


def model(inputs):
    return jax.nn.relu(convolved(inputs, KERNEL))


def classifier(inputs):
    return jnp.mean(model(inputs), axis=(1, 2))


def loss_fn(labels, output):
    return optax.softmax_cross_entropy_with_integer_labels(output, labels)


def two_logical_devices_and_four_replicas(TPUStrategy, name="experimental_device_assignment"):
    # Initializing TPU system with 2 logical devices and 4 replicas.
    resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    rx.config.experimental_connect_to_cluster(resolver)
    topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    device_assignment = rx.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=4
    )
    strategy = TPUStrategy(resolver, **{name: device_assignment})
    assert strategy.num_replicas_in_sync == 4
    return strategy


@pytest.fixture(params=["TPUStrategy", "experimental.TPUStrategy", "MirroredStrategy"])
def strategy(request):
    """2 logical devices and 4 replicas, by each of the spellings."""
    if request.param == "TPUStrategy":
        return two_logical_devices_and_four_replicas(rx.distribute.TPUStrategy)
    if request.param == "experimental.TPUStrategy":
        with warnings.catch_warnings(action="ignore"):  # it is an older name
            return two_logical_devices_and_four_replicas(
                rx.distribute.experimental.TPUStrategy, "device_assignment"
            )
    return rx.distribute.MirroredStrategy(logical_devices_per_replica=2)


@pytest.fixture(params=["TPUStrategy", "MirroredStrategy"])
def strategy_of_eight(request):
    """8 logical devices and 1 replica."""
    if request.param == "MirroredStrategy":
        return rx.distribute.MirroredStrategy(logical_devices_per_replica=8)
    # Initializing TPU system with 8 logical devices and 1 replica.
    resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    rx.config.experimental_connect_to_cluster(resolver)
    topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    device_assignment = rx.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 2, 2, 2], num_replicas=1
    )
    return rx.distribute.TPUStrategy(resolver, experimental_device_assignment=device_assignment)


def distributed(strategy, arrays):
    """`inputs` of the page: a distributed data set of batches of 8."""
    dataset = rx.data.Dataset.from_tensor_slices(arrays).batch(8)
    return strategy.experimental_distribute_dataset(dataset)


# Section "experimental_assign_to_logical_device".
def test_assign_to_logical_device(strategy):
    inputs = distributed(strategy, IMAGES)
    iterator = iter(inputs)

    @rx.function()
    def step_fn(inputs):
        output = jnp.add(inputs, inputs)

        # Add operation will be executed on logical device 0.
        output = strategy.experimental_assign_to_logical_device(output, 0)
        return output

    result = strategy.run(step_fn, args=(next(iterator),))
    parts = strategy.experimental_local_results(result)
    np.testing.assert_array_equal(np.concatenate(parts), IMAGES * 2)
    for replica, part in enumerate(parts):
        assert part.devices() == {logical_devices(strategy, replica)[0]}


# Section "experimental_replicate_to_logical_devices". As it stands on the page it cannot run: it
# splits the pair `inputs` and not the images, and 2 * 4 ways over what are 2 logical devices.
def test_replicate_to_logical_devices_as_it_stands(strategy):
    inputs = distributed(strategy, (IMAGES, LABELS))
    iterator = iter(inputs)
    batch = next(iterator)

    @rx.function()
    def step_fn(inputs):
        images, labels = inputs
        images = strategy.experimental_split_to_logical_devices(inputs, [1, 2, 4, 1])
        return images, labels

    with pytest.raises(TypeError, match="takes one tensor; got tuple"):
        strategy.run(step_fn, args=(batch,))

    @rx.function()
    def split_images(inputs):
        images, labels = inputs
        images = strategy.experimental_split_to_logical_devices(images, [1, 2, 4, 1])
        return images, labels

    # "if product of elements of `partition_dimensions` does not match the number of logical
    # devices per replica"
    with pytest.raises(ValueError, match=r"is 8, but a replica has 2 logical device"):
        strategy.run(split_images, args=(batch,))


def test_replicate_to_logical_devices_corrected(strategy):
    inputs = distributed(strategy, (IMAGES, LABELS))
    iterator = iter(inputs)

    @rx.function()
    def step_fn(inputs):
        images, labels = inputs
        images = strategy.experimental_split_to_logical_devices(images, [1, 2, 1, 1])

        # model() function will be executed on 2 logical devices with `images`
        # split 2 ways.
        output = classifier(images)

        # For loss calculation, all logical devices share the same logits
        # and labels.
        labels = strategy.experimental_replicate_to_logical_devices(labels)
        output = strategy.experimental_replicate_to_logical_devices(output)
        loss = loss_fn(labels, output)

        return loss

    result = strategy.run(step_fn, args=(next(iterator),))
    found = np.concatenate(strategy.experimental_local_results(result))
    np.testing.assert_allclose(found, loss_fn(LABELS, classifier(IMAGES)), rtol=1e-5)


# Section "experimental_split_to_logical_devices".
def test_split_to_logical_devices(strategy_of_eight):
    strategy = strategy_of_eight
    assert strategy.num_replicas_in_sync == 1
    inputs = distributed(strategy, IMAGES)
    iterator = iter(inputs)

    @rx.function()
    def step_fn(inputs):
        inputs = strategy.experimental_split_to_logical_devices(inputs, [1, 2, 4, 1])

        # model() function will be executed on 8 logical devices with `inputs`
        # split 2 * 4  ways.
        output = model(inputs)
        return output

    result = strategy.run(step_fn, args=(next(iterator),))
    np.testing.assert_allclose(result, model(IMAGES), rtol=1e-5, atol=1e-6)
    # "`tensor` will be split 2 in width dimension and 4 way in height dimension and the split
    # tensor values will be fed into 8 logical devices"
    (part,) = strategy.experimental_local_results(result)
    pieces = shards_of(part)
    assert (
        list(pieces) == logical_devices(strategy, 0) and len({str(p) for p in pieces.values()}) == 8
    )
    assert {shard.data.shape for shard in part.addressable_shards} == {(8, 4, 2, 4)}
    whole = rx.function(lambda x: strategy.run(step_fn, args=(x,)))
    assert operations_in(compiled_by(whole, IMAGES))["collective-permute"]


# The same section, "Raises".
@pytest.mark.parametrize(
    ("partition_dimensions", "text"),
    [
        ([1, 2, 4], r"with 3 number\(s\), but the tensor has 4 dimension"),
        ([1, 2, 2, 1], r"is 4, but a replica has 8 logical device"),
        ([1, 1, 1, 8], "dimension 3 of the tensor has size 3, which cannot be split into 8"),
    ],
    ids=["size", "product", "divisible"],
)
def test_what_split_raises(strategy_of_eight, partition_dimensions, text):
    strategy = strategy_of_eight

    @rx.function()
    def step_fn(inputs):
        return strategy.experimental_split_to_logical_devices(inputs, partition_dimensions)

    with pytest.raises(ValueError, match=text):
        strategy.run(step_fn, args=(IMAGES,))


# Section "experimental_assign_to_logical_device", "Raises".
@pytest.mark.parametrize("logical_device_id", [-1, 2, 8])
def test_what_assign_raises(strategy, logical_device_id):
    @rx.function()
    def step_fn(inputs):
        return strategy.experimental_assign_to_logical_device(inputs, logical_device_id)

    with pytest.raises(ValueError, match=f"no logical device {logical_device_id}"):
        strategy.run(step_fn, args=(IMAGES,))
