"""Placement is real: what lies on which device, what is computed there, and what travels."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.partitioned.looking import (
    bytes_by_device,
    bytes_on_each,
    compiled_by,
    logical_devices,
    operations_in,
    report_of,
    shards_of,
    temporary_bytes,
)
from tests.partitioned.models import (
    MESHES,
    MODELS,
    Marks,
    MeshOf,
    Task,
    adam,
    convolved,
    mirrored_on,
    state_layout,
)
from tests.replicas import by_replica
from tests.under_test import Eager

PARTITIONED = {name: mesh for name, mesh in MESHES.items() if mesh.logical > 1}
partitioned = pytest.mark.parametrize("mesh", PARTITIONED.values(), ids=PARTITIONED)


# --- a convolution over an image in parts ---------------------------------------------------------

KERNELS = [
    np.random.default_rng(i).normal(scale=0.1, size=(3, 3, 8, 8)).astype(np.float32)
    for i in range(6)
]
IMAGE = np.random.default_rng(9).normal(size=(2, 64, 64, 8)).astype(np.float32)


def filtered(x: Any, mark: Callable[[Any], Any] = lambda x: x) -> Any:
    for kernel in KERNELS:
        x = jnp.sin(convolved(mark(x), kernel))
    return x


def images_on(strategy: Any) -> Any:
    return by_replica(strategy, lambda index: jnp.asarray(IMAGE) + index)


@partitioned
def test_a_split_convolution_exchanges_its_edges_and_nothing_else(mesh: MeshOf):
    strategy = mirrored_on(mesh)
    marks = Marks(strategy, mesh)
    fn = rx.function(lambda x: strategy.run(lambda x: filtered(x, marks.image), args=(x,)))
    images = images_on(strategy)
    found = operations_in(compiled_by(fn, images))
    # Two edges of each dimension that is split, for each convolution.
    edges = 2 * ((mesh.height > 1) + (mesh.width > 1))
    assert found["collective-permute"] == edges * len(KERNELS)
    assert not found["all-gather"] and not found["all-reduce"] and not found["all-to-all"]
    expected = [jax.jit(filtered)(IMAGE + index) for index in range(mesh.replicas)]
    for part, value in zip(strategy.experimental_local_results(fn(images)), expected, strict=True):
        np.testing.assert_allclose(part, value, rtol=1e-5, atol=1e-5)


@partitioned
def test_work_and_memory_of_a_split_convolution_fall(mesh: MeshOf):
    strategy = mirrored_on(mesh)
    marks = Marks(strategy, mesh)
    with strategy.scope():
        scale = rx.Variable(1.0)

    def gradient(x: Any, mark: Callable[[Any], Any]) -> Any:
        return rx.value_and_grad(lambda: jnp.sum(filtered(scale * x, mark)), [scale])

    def compiled(mark: Callable[[Any], Any]) -> tuple[Any, float]:
        fn = rx.function(lambda x: strategy.run(lambda x: gradient(x, mark), args=(x,)))
        images = images_on(strategy)
        return compiled_by(fn, images), report_of(fn, images).flops

    whole, whole_work = compiled(lambda x: x)
    split, split_work = compiled(marks.image)
    # The edges come on top of what each device has: at 1/8 of an image they are a good part of it.
    assert temporary_bytes(split) < 1.5 * temporary_bytes(whole) / mesh.logical
    assert split_work < 1.35 * whole_work / mesh.logical


@partitioned
def test_training_a_convolutional_net_exchanges_edges(mesh: MeshOf):
    task = Task(mirrored_on(mesh), mesh, MODELS["convolutional"](), adam())
    found = operations_in(compiled_by(rx.function(task.step), *task.batch(0)))
    assert found["collective-permute"] >= 4  # forwards and backwards


# --- results --------------------------------------------------------------------------------------


def kept(executor: Any, strategy: Any, fn: Callable[[Any], Any]) -> list[Any]:
    """What each replica returns for an image of its own."""
    images = by_replica(strategy, lambda index: jnp.full((2, 8, 8, 3), float(index)))
    return list(strategy.experimental_local_results(executor.run(strategy, fn, (images,))))


@partitioned
def test_split_results_come_back_split(mesh: MeshOf, executor: Any):
    strategy = mirrored_on(mesh)
    marks = Marks(strategy, mesh)
    height, width = 8 // mesh.height, 8 // mesh.width
    for replica, part in enumerate(kept(executor, strategy, lambda x: marks.image(x) * 2)):
        np.testing.assert_array_equal(part, np.full((2, 8, 8, 3), 2.0 * replica))
        devices = logical_devices(strategy, replica)
        expected = {
            device: (
                slice(None),
                slice(row, row + height) if mesh.height > 1 else slice(None),
                slice(column, column + width) if mesh.width > 1 else slice(None),
                slice(None),
            )
            for device, (row, column) in zip(
                devices,
                ((r, c) for r in range(0, 8, height) for c in range(0, 8, width)),
                strict=True,
            )
        }
        # Row by row over the logical devices, as `reshape` would number them.
        assert shards_of(part) == expected


@partitioned
def test_assigned_results_are_on_that_logical_device_alone(mesh: MeshOf, executor: Any):
    strategy = mirrored_on(mesh)
    for number in range(mesh.logical):

        def fn(x: Any, number: int = number) -> Any:
            return strategy.experimental_assign_to_logical_device(x + x, number)

        for replica, part in enumerate(kept(executor, strategy, fn)):
            np.testing.assert_array_equal(part, np.full((2, 8, 8, 3), 2.0 * replica))
            assert part.devices() == {logical_devices(strategy, replica)[number]}


@partitioned
def test_replicated_tensors_are_on_every_logical_device(mesh: MeshOf):
    strategy = mirrored_on(mesh)
    marks = Marks(strategy, mesh)
    seen = []

    def fn(x: Any) -> Any:
        result = marks.everywhere(marks.image(x) * 2)
        seen.append(result)
        return result

    for replica, part in enumerate(kept(Eager(), strategy, fn)):
        assert seen[replica].devices() == set(logical_devices(strategy, replica))
        for shard in seen[replica].addressable_shards:
            np.testing.assert_array_equal(shard.data, np.full((2, 8, 8, 3), 2.0 * replica))
        # A result of the run is that of one of them, to be combined with those of other replicas.
        assert part.devices() == {logical_devices(strategy, replica)[0]}
    compiled = rx.function(lambda x: strategy.run(fn, args=(x,)))
    images = by_replica(strategy, lambda index: jnp.full((2, 8, 8, 3), float(index)))
    sharding = jax.tree.leaves(compiled_by(compiled, images).output_shardings)[0]
    assert sharding.num_devices == mesh.devices and sharding.is_fully_replicated
    for replica, part in enumerate(strategy.experimental_local_results(compiled(images))):
        np.testing.assert_array_equal(part, np.full((2, 8, 8, 3), 2.0 * replica))


def test_what_follows_a_split_tensor_is_computed_in_parts():
    mesh = MESHES["1x8"]
    strategy = mirrored_on(mesh)
    x = strategy.experimental_split_to_logical_devices(jnp.ones((64, 64)), [8, 1])
    y = jnp.sin(x) * 2 + 1
    assert {shard.data.shape for shard in y.addressable_shards} == {(8, 64)}
    assert len(y.devices()) == 8


def test_a_split_feed_forward_moves_activations_and_no_weights():
    mesh = MeshOf(1, 4)
    strategy = mirrored_on(mesh)
    with strategy.scope():
        inner = rx.Variable(jnp.ones((64, 256)), layout=[1, 4])
        outer = rx.Variable(jnp.ones((256, 64)), layout=[4, 1])
    fn = rx.function(lambda x: strategy.run(lambda x: jax.nn.relu(x @ inner) @ outer, args=(x,)))
    found = operations_in(compiled_by(fn, jnp.ones((2, 64))))
    assert found["all-reduce"] == 1 and not found["all-gather"]
    assert report_of(fn, jnp.ones((2, 64))).flops < 1.1 * 2 * 2 * 2 * 64 * 256 / 4


# --- variables ------------------------------------------------------------------------------------


@partitioned
def test_bytes_of_a_variable_by_its_layout(mesh: MeshOf):
    strategy, logical, size = mirrored_on(mesh), mesh.logical, 4 * 64 * 32
    with strategy.scope():
        whole = rx.Variable(jnp.zeros((64, 32)))
        rows = rx.Variable(jnp.zeros((64, 32)), layout=[logical, 1])
        columns = rx.Variable(jnp.zeros((64, 32)), layout=[1, logical])
        both = rx.Variable(jnp.zeros((64, 32)), layout=[mesh.height, mesh.width])
        own = rx.Variable(
            jnp.zeros((64, 32)),
            layout=[logical, 1],
            synchronization=rx.VariableSynchronization.ON_READ,
            aggregation=rx.VariableAggregation.SUM,
        )
    assert bytes_on_each(whole) == size
    for variable in (rows, columns, both, own):
        assert bytes_on_each(variable) == size // logical
        assert len(bytes_by_device(variable)) == mesh.devices
    with strategy.scope():
        cut = rx.Variable(
            jnp.zeros((64, 32)), layout=rx.distribute.Layout((logical, 1), replica_dim=1)
        )
    assert bytes_on_each(cut) == size // mesh.devices


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("over_replicas", ["nothing", "optimizer", "everything"])
def test_bytes_of_the_state_stay_what_they_should(mesh: MeshOf, over_replicas: str):
    """Also after steps, compiled and eager, and after assignments."""
    strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    shape = (64, 32)
    with strategy.scope():
        weights = [
            rx.Variable(jnp.ones(shape), layout=[1, mesh.logical], name="split"),
            rx.Variable(jnp.ones(shape), name="whole"),
        ]
        optimizer = rx.Optimizer(optax.adam(0.1))
        optimizer.build(weights)

    def step(x: Any) -> None:
        def loss() -> Any:
            return jnp.sum(jnp.square(x @ weights[0] - x @ weights[1]) + x @ weights[0])

        _, gradients = rx.value_and_grad(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    def require_bytes() -> None:
        size, replicas, logical = 4 * 64 * 32, mesh.replicas, mesh.logical
        parameters = replicas if over_replicas == "everything" else 1
        slots = 1 if over_replicas == "nothing" else replicas
        assert bytes_on_each(weights[0]) == size // logical // parameters
        assert bytes_on_each(weights[1]) == size // parameters
        mu_nu = [each for each in optimizer.variables if each.shape == shape]
        assert len(mu_nu) == 4
        for kind in ("split", "whole"):
            of_kind = [each for each in mu_nu if each.name.startswith(kind)]
            expected = size // slots // (logical if kind == "split" else 1)
            assert [bytes_on_each(each) for each in of_kind] == [expected] * 2

    require_bytes()
    compiled = rx.function(lambda x: strategy.run(step, args=(x,)))
    compiled(jnp.ones((4, 64)))
    require_bytes()
    compiled(jnp.ones((4, 64)))
    require_bytes()
    with strategy.scope():  # eagerly
        optimizer.apply_gradients([(jnp.ones(shape), each) for each in weights])
    require_bytes()
    for variable in (*weights, *optimizer.variables):
        variable.assign(jnp.zeros(variable.shape, variable.dtype))
        variable.assign_add(jnp.ones(variable.shape, variable.dtype))
    require_bytes()
    compiled(jnp.ones((4, 64)))
    require_bytes()


def test_only_what_is_large_enough_and_divides_is_cut():
    layout = rx.distribute.StateLayout("everything", min_size=64)
    strategy = rx.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1", "CPU:2", "CPU:3"], state_layout=layout
    )
    expected = {
        (8, 8): 0,
        (7, 12): 1,
        (3, 5, 16): 2,
        (63,): None,
        (64,): 0,
        (9, 9): None,
        (): None,
        (0, 64): None,
    }
    with strategy.scope():
        found = {shape: rx.Variable(jnp.zeros(shape)).layout.replica_dim for shape in expected}
    assert found == expected


MASKED: dict[str, Callable[[], Any]] = {
    "masked": lambda: optax.masked(optax.adam(0.1), [True, False]),
    "multi_transform": lambda: optax.multi_transform(
        {"a": optax.adam(0.1), "b": optax.sgd(0.1, momentum=0.9)}, ["a", "b"]
    ),
    "muon": lambda: optax.contrib.muon(0.1),
    "multi_steps": lambda: optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(0.1), 2),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(0.1),
    "adafactor": lambda: optax.adafactor(0.1, momentum=0.9, min_dim_size_to_factor=256),
}


@pytest.mark.parametrize("name", MASKED)
def test_the_state_of_any_optimizer_is_cut(name: str):
    strategy = mirrored_on(MESHES["8x1"], state_layout=state_layout("optimizer"))
    with strategy.scope():
        weights = [rx.Variable(jnp.ones((64, 32))), rx.Variable(jnp.ones((32, 64)))]
        optimizer = rx.Optimizer(MASKED[name]())
        optimizer.build(weights)
    large = [each for each in optimizer.variables if np.prod(each.shape) == 64 * 32]
    assert large
    assert {bytes_on_each(each) for each in large} == {4 * 64 * 32 // 8}


# --- what travels ---------------------------------------------------------------------------------


def travels(over_replicas: str, transformation: Any = None) -> tuple[dict[str, int], Any]:
    """The bytes that each replica contributes in a step, by kind, and the compiled program."""
    mesh = MESHES["8x1"]
    strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    task = Task(strategy, mesh, MODELS["dense"](), transformation or adam())
    step = rx.function(task.step)
    found: dict[str, int] = {}
    for each in step.explain(*task.batch(0)).collectives:
        found[each.kind] = found.get(each.kind, 0) + each.bytes * each.times
    return found, compiled_by(step, *task.batch(0))


PARAMETERS = 4 * sum(each.size for each in MODELS["dense"]().weights.values())
LOSS = 4  # the sum over the replicas, which the step returns


def test_whole_state_is_updated_after_an_all_reduce():
    found, compiled = travels("nothing")
    assert found == {"all-reduce": PARAMETERS + LOSS}
    assert not operations_in(compiled)["reduce-scatter"]


@pytest.mark.parametrize("over_replicas", ["optimizer", "everything"])
def test_gradients_are_scattered_and_parameters_gathered(over_replicas: str):
    found, compiled = travels(over_replicas)
    # Each replica contributes a whole gradient, and its part of the parameters.
    assert found == {
        "all-reduce": LOSS,
        "reduce-scatter": PARAMETERS,
        "all-gather": PARAMETERS // 8,
    }
    operations = operations_in(compiled)
    assert operations["reduce-scatter"] and operations["all-gather"]


def test_a_global_norm_costs_one_number_more():
    clipped = optax.chain(optax.clip_by_global_norm(0.5), adam())
    found, _ = travels("everything", clipped)
    assert found["all-reduce"] == LOSS + 4
    assert found["reduce-scatter"] == PARAMETERS and found["all-gather"] == PARAMETERS // 8


def test_peak_memory_of_a_step_falls():
    mesh = MESHES["8x1"]
    peaks = {}
    for over_replicas in ("nothing", "optimizer", "everything"):
        strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
        with strategy.scope():
            weights = [rx.Variable(jnp.ones((256, 256)) / 256, name=f"w{i}") for i in range(8)]
            optimizer = rx.Optimizer(optax.adam(0.1))
            optimizer.build(weights)

        def step(x: Any, weights: Any = weights, optimizer: Any = optimizer) -> None:
            def loss() -> Any:
                y = x
                for w in weights:
                    y = jnp.tanh(y @ w)
                return jnp.sum(y)

            _, gradients = rx.value_and_grad(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

        fn = rx.function(lambda x, strategy=strategy, step=step: strategy.run(step, args=(x,)))
        peaks[over_replicas] = report_of(fn, jnp.ones((4, 256))).peak_bytes
    p = 4 * 8 * 256 * 256
    # Whole: the state, and the gradients. In parts the state falls; a step still gathers.
    assert peaks["optimizer"] < peaks["nothing"] - 1.6 * p
    assert peaks["everything"] < peaks["optimizer"]
