"""Partitioned training is the same training: losses equal to those of one device."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.partitioned.models import (
    MESHES,
    MODELS,
    MeshOf,
    Task,
    adam,
    expected_losses,
    mirrored_on,
    plain_losses,
    state_layout,
    tpu_on,
)

OVER_REPLICAS = ["nothing", "optimizer", "everything"]
STEPS = 20
# Every mesh with every model, and each of both with everything that can be cut over the replicas.
# With one replica there is nothing to cut over the replicas.
CASES = [
    (mesh, OVER_REPLICAS[(row + column) % 3 if shape.replicas > 1 else 0], model)
    for row, (mesh, shape) in enumerate(MESHES.items())
    for column, model in enumerate(MODELS)
]

# Every mesh and every model, and those that differ most.
PAIRS = [
    ("8x1", "dense"),
    ("4x2", "transformer"),
    ("2x4", "convolutional"),
    ("1x8", "transformer"),
    ("1x8", "convolutional"),
    ("2x(2x2)", "convolutional"),
    ("2x(2x2)", "transformer"),
]


def require_equal(losses: Any, expected: Any) -> None:
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=0)


def has_parts(task: Task) -> bool:
    """Whether the weights that the model names are really split."""
    return any(variable.layout.parts for variable in task.variables.values())


@pytest.mark.parametrize(("mesh", "over_replicas", "model"), CASES)
def test_compiled(mesh: str, over_replicas: str, model: str):
    strategy = mirrored_on(MESHES[mesh], state_layout=state_layout(over_replicas))
    task = Task(strategy, MESHES[mesh], MODELS[model](), adam(), by_layout=True)
    assert has_parts(task) == (model != "convolutional" and MESHES[mesh].logical > 1)
    require_equal(task.losses(STEPS, compiled=True), expected_losses(model))


@pytest.mark.parametrize(("mesh", "model"), PAIRS)
def test_run_of_a_tpu_strategy(mesh: str, model: str):
    names, logical = list(MESHES), MESHES[mesh].logical
    over_replicas = OVER_REPLICAS[names.index(mesh) % 3]
    rules = MODELS[model]().layouts(logical)
    strategy = tpu_on(MESHES[mesh], state_layout=state_layout(over_replicas, rules=rules))
    task = Task(strategy, MESHES[mesh], MODELS[model](), adam())
    assert has_parts(task) == (model != "convolutional" and logical > 1)
    require_equal(task.losses(STEPS, compiled=False), expected_losses(model))


@pytest.mark.parametrize("over_replicas", OVER_REPLICAS)
def test_layouts_and_rules_are_two_spellings(over_replicas: str):
    mesh, model = MESHES["2x4"], MODELS["transformer"]()
    rules = state_layout(over_replicas, rules=model.layouts(4))
    by_rule = Task(mirrored_on(mesh, state_layout=rules), mesh, model, adam())
    plain = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    by_layout = Task(plain, mesh, model, adam(), by_layout=True)
    for one, other in zip(by_rule.variables.values(), by_layout.variables.values(), strict=True):
        assert one.layout == other.layout
    slots = [[each.layout for each in task.optimizer.variables] for task in (by_rule, by_layout)]
    assert slots[0] == slots[1]


# --- eagerly: every operation is compiled for every device, so there are fewer steps --------------


@pytest.mark.parametrize(
    ("mesh", "over_replicas"),
    [
        ("4x2", "nothing"),
        ("4x2", "optimizer"),
        ("4x2", "everything"),
        ("2x(2x2)", "everything"),
        ("1x8", "nothing"),
    ],
)
def test_eager(mesh: str, over_replicas: str):
    strategy = mirrored_on(MESHES[mesh], state_layout=state_layout(over_replicas))
    task = Task(strategy, MESHES[mesh], MODELS["dense"](), adam(), by_layout=True)
    require_equal(task.losses(3, compiled=False), expected_losses("dense")[:3])


@pytest.mark.parametrize("model", ["convolutional", "transformer"])
def test_eager_with_eight_logical_devices(model: str):
    strategy = mirrored_on(MESHES["1x8"])
    task = Task(strategy, MESHES["1x8"], MODELS[model](), adam(), by_layout=True)
    require_equal(task.losses(3, compiled=False), expected_losses(model)[:3])


@pytest.mark.parametrize(("mesh", "model"), PAIRS[::2])
def test_eager_with_a_compiled_loss(mesh: str, model: str):
    over_replicas = OVER_REPLICAS[list(MESHES).index(mesh) % 3]
    strategy = mirrored_on(MESHES[mesh], state_layout=state_layout(over_replicas))
    task = Task(strategy, MESHES[mesh], MODELS[model](), adam(), by_layout=True, compile_loss=True)
    require_equal(task.losses(3, compiled=False), expected_losses(model)[:3])


# --- other optimizers -----------------------------------------------------------------------------

TRANSFORMATIONS: dict[str, Callable[[], Any]] = {
    "clip_by_global_norm": lambda: optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(3e-3, weight_decay=0.1)
    ),
    "momentum": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adafactor": lambda: optax.adafactor(3e-2, min_dim_size_to_factor=4),
    "lamb": lambda: optax.lamb(3e-3, weight_decay=0.01),
    "lars": lambda: optax.lars(0.05, weight_decay=0.01, trust_coefficient=0.1),
    "multi_steps": lambda: optax.MultiSteps(adam(), every_k_schedule=3),
    "apply_if_finite": lambda: optax.apply_if_finite(adam(), 2),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(
        learning_rate=optax.cosine_decay_schedule(3e-3, 15)
    ),
    "novograd": lambda: optax.novograd(3e-3),
    "rmsprop": lambda: optax.rmsprop(3e-3, centered=True, momentum=0.9),
    "adaptive_grad_clip": lambda: optax.chain(
        optax.adaptive_grad_clip(0.1), optax.centralize(), optax.adagrad(1e-2)
    ),
    "muon": lambda: optax.contrib.muon(3e-3),
    "add_noise": lambda: optax.chain(optax.add_noise(1e-3, 0.5, 0), optax.sgd(0.05)),
    "accumulated": lambda: optax.chain(optax.ema(0.9), optax.clip_by_block_rms(0.1)),
    "multi_transform": lambda: optax.multi_transform(
        {"fast": optax.sgd(0.05), "slow": optax.adam(1e-3)}, _fast_and_slow
    ),
}
CUT_IN_THE_OPTIMIZER_ALONE = ("clip_by_global_norm", "adafactor", "muon", "add_noise")


def _fast_and_slow(parameters: Any) -> Any:
    """By rank: the biases of a list or dictionary are learned fast."""
    return jax.tree.map(lambda each: "fast" if jnp.ndim(each) == 1 else "slow", parameters)


@pytest.mark.parametrize(
    ("name", "over_replicas"),
    [
        (name, "optimizer" if name in CUT_IN_THE_OPTIMIZER_ALONE else "everything")
        for name in TRANSFORMATIONS
    ],
)
def test_optimizers(name: str, over_replicas: str):
    mesh, model = MESHES["4x2"], MODELS["dense"]()
    strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    task = Task(strategy, mesh, model, TRANSFORMATIONS[name](), by_layout=True)
    expected = plain_losses(model, TRANSFORMATIONS[name](), STEPS)
    require_equal(task.losses(STEPS, compiled=True), expected)


@pytest.mark.parametrize("name", ["adafactor", "lamb", "multi_steps"])
def test_optimizers_eagerly(name: str):
    mesh, model = MESHES["4x2"], MODELS["dense"]()
    strategy = mirrored_on(mesh, state_layout=state_layout("everything"))
    task = Task(strategy, mesh, model, TRANSFORMATIONS[name](), by_layout=True)
    expected = plain_losses(model, TRANSFORMATIONS[name](), 4)
    require_equal(task.losses(4, compiled=False), expected)


def test_steps_with_gradients_that_are_not_finite_are_left_out():
    mesh, model = MESHES["4x2"], MODELS["dense"]()
    strategy = mirrored_on(mesh, state_layout=state_layout("everything"))
    task = Task(strategy, mesh, model, optax.apply_if_finite(adam(), 5), by_layout=True)
    step = rx.function(task.step)
    x, y = task.batch(0)
    first = float(step(x, y))
    bad = strategy.run(lambda x: x.at[0, 0].set(jnp.nan), args=(x,))
    before = [variable.numpy() for variable in task.variables.values()]
    assert not np.isfinite(float(step(bad, y)))
    for variable, value in zip(task.variables.values(), before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert float(step(x, y)) < first


# --- a law: optax on parts is optax ---------------------------------------------------------------

LINKS: dict[str, Callable[[], Any]] = {
    "scale_by_adam": lambda: optax.scale_by_adam(),
    "scale_by_lion": lambda: optax.scale_by_lion(),
    "scale_by_rms": lambda: optax.scale_by_rms(),
    "scale_by_amsgrad": lambda: optax.scale_by_amsgrad(),
    "scale_by_belief": lambda: optax.scale_by_belief(),
    "scale_by_yogi": lambda: optax.scale_by_yogi(),
    "scale_by_novograd": lambda: optax.scale_by_novograd(),
    "scale_by_factored_rms": lambda: optax.scale_by_factored_rms(min_dim_size_to_factor=2),
    "scale_by_trust_ratio": lambda: optax.scale_by_trust_ratio(),
    "scale_by_param_block_norm": lambda: optax.scale_by_param_block_norm(),
    "scale_by_param_block_rms": lambda: optax.scale_by_param_block_rms(),
    "trace": lambda: optax.trace(0.9, nesterov=True),
    "ema": lambda: optax.ema(0.9),
    "clip": lambda: optax.clip(0.5),
    "clip_by_global_norm": lambda: optax.clip_by_global_norm(0.3),
    "clip_by_block_rms": lambda: optax.clip_by_block_rms(0.3),
    "adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.2),
    "centralize": lambda: optax.centralize(),
    "normalize_by_update_norm": lambda: optax.normalize_by_update_norm(),
    "add_decayed_weights": lambda: optax.add_decayed_weights(0.1),
    "keep_params_nonnegative": lambda: optax.keep_params_nonnegative(),
    "zero_nans": lambda: optax.zero_nans(),
    "apply_every": lambda: optax.apply_every(2),
    "scale_by_schedule": lambda: optax.scale_by_schedule(optax.linear_schedule(1.0, 0.1, 3)),
}
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda inner: inner,
    "multi_steps": lambda inner: optax.MultiSteps(inner, every_k_schedule=2),
    "apply_if_finite": lambda inner: optax.apply_if_finite(inner, 2),
    "masked": lambda inner: optax.masked(inner, [True, False, True]),
    "flatten": lambda inner: optax.flatten(inner),
}


@settings(max_examples=6)  # each compiles a step of its own
@given(
    links=st.lists(st.sampled_from(sorted(LINKS)), min_size=1, max_size=4, unique=True),
    wrapper=st.sampled_from(sorted(WRAPPERS)),
    over_replicas=st.sampled_from(["optimizer", "everything"]),
    rows=st.sampled_from([2, 4, 6]),
    columns=st.sampled_from([2, 3, 8]),
    logical=st.sampled_from([1, 2]),
)
def test_any_chain_on_parts_is_what_it_is_on_the_whole(
    links: list[str], wrapper: str, over_replicas: str, rows: int, columns: int, logical: int
):
    def transformation() -> Any:
        chain = optax.chain(*(LINKS[name]() for name in links), optax.scale(-0.1))
        return WRAPPERS[wrapper](chain)

    random = np.random.default_rng(rows * columns)
    start = [
        random.normal(size=shape).astype(np.float32)
        for shape in [(rows, columns), (4,), (2, rows, 4)]
    ]
    # Of each step and each of two replicas; the optimizer adds up those of the replicas.
    given = [
        [[random.normal(size=each.shape).astype(np.float32) for each in start] for _ in range(2)]
        for _ in range(3)
    ]
    mesh = MeshOf(2, logical)
    strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    layouts = [[2, 1], None, [1, 1, 2]] if logical == 2 else [None] * 3
    with strategy.scope():
        variables = [
            rx.Variable(each, layout=layout) for each, layout in zip(start, layouts, strict=True)
        ]
        optimizer = rx.Optimizer(transformation())

    def replica_fn(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    step = rx.function(lambda gradients: strategy.run(replica_fn, args=(gradients,)))
    parameters: Any = [jnp.asarray(each) for each in start]
    reference = transformation()
    state = reference.init(parameters)
    for of_replicas in given:
        step([rx.distribute.PerReplica(list(each)) for each in zip(*of_replicas)])
        total = [first + second for first, second in zip(*of_replicas)]
        updates, state = reference.update(total, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    for variable, value in zip(variables, parameters, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=2e-5, atol=2e-6)
