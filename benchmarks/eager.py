"""What does an eager training step cost, and how much of it is replicax's own?

One step of `strategy.run` with Adam, in median milliseconds, four ways on the same data:

- limit: JAX's own eager `jax.value_and_grad` of the loss, once per replica, and nothing else;
- plain: `rx.value_and_grad` and `rx.Optimizer` in the replica function;
- compiled: the same with `rx.value_and_grad(..., compile=True)`;
- TensorFlow: its eager `MirroredStrategy` with a Keras Adam, where TensorFlow is installed.

The four take turns, so that a busy machine slows them all. Before any time is taken, each must give
the losses of a plain JAX loop on the whole batch. Run with `--help` for the options.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _child import Child, tensorflow_child
from _eager_cases import (
    CASES,
    CLASSES,
    CLOCKS,
    EPSILON,
    LEARNING_RATE,
    Case,
    initial_weights,
    replica_batches,
)
from _eager_tables import EAGER
from _report import machine_facts, print_sections, write_sections
from _tables import section_of
from _tensorflow_option import add_tensorflow_options, choose_tensorflow

import replicax as rx

TOLERANCE = 1e-4


# The model, in two ways of writing it that JAX runs eagerly at different speed


def nn_activation(x):
    return jax.nn.relu(x)


def nn_losses(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def jnp_activation(x):
    return jnp.maximum(x, 0)


def jnp_losses(logits, labels):
    return -jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, CLASSES), axis=-1)


IDIOMS = {"nn": (nn_activation, nn_losses), "jnp": (jnp_activation, jnp_losses)}


def make_loss(case: Case, idiom: str) -> Callable[..., Any]:
    """The loss as a function of arrays or of Variables, as a share of the whole batch's mean."""
    activation, example_losses = IDIOMS[idiom]

    def loss(weights, inputs, labels):
        hidden = inputs
        for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            hidden = activation(hidden @ kernel + bias)
        logits = hidden @ weights[-2] + weights[-1]
        return jnp.sum(example_losses(logits, labels)) / case.batch

    return loss


# The variants: each is a function that runs k steps and returns their losses and seconds


class Steps(NamedTuple):
    losses: list[float]
    seconds: list[float]


def timed(step: Callable[[], float], clock: str) -> Callable[[int], Steps]:
    """Turns a function that makes one step into one that makes k and times each."""
    now = CLOCKS[clock]

    def run(steps: int) -> Steps:
        losses, seconds = [], []
        for _ in range(steps):
            begin = now()
            losses.append(step())
            seconds.append(now() - begin)
        return Steps(losses, seconds)

    return run


def make_limit(case: Case, replicas: int, idiom: str, clock: str) -> Callable[[int], Steps]:
    """JAX's own eager cost: gradients per replica, one after the other, with no update."""
    loss = make_loss(case, idiom)
    devices = jax.devices()[:replicas]
    weights = initial_weights(case)
    batches = replica_batches(case, replicas)
    placed = [
        jax.device_put((weights, *batch), device)
        for device, batch in zip(devices, batches, strict=True)
    ]

    def step() -> float:
        results = []
        for device, (weights, inputs, labels) in zip(devices, placed, strict=True):
            with jax.default_device(device):
                results.append(jax.value_and_grad(loss)(weights, inputs, labels))
        jax.block_until_ready(results)
        return sum(float(value) for value, _ in results)

    return timed(step, clock)


def make_replicax(
    case: Case, replicas: int, idiom: str, clock: str, compiled: bool
) -> Callable[[int], Steps]:
    """A whole training step of ours, written as a user would."""
    loss = make_loss(case, idiom)
    strategy = rx.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        variables = [rx.Variable(weight) for weight in initial_weights(case)]
        optimizer = rx.Optimizer(optax.adam(LEARNING_RATE, eps=EPSILON))
        optimizer.build(variables)
    batches = replica_batches(case, replicas)

    def part(index: int):
        return strategy.experimental_distribute_values_from_function(
            lambda context: jnp.asarray(batches[context.replica_id_in_sync_group][index])
        )

    def replica_step(inputs, labels):
        value, gradients = rx.value_and_grad(
            lambda: loss(variables, inputs, labels), variables, compile=compiled
        )
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    inputs, labels = part(0), part(1)

    def step() -> float:
        values = strategy.run(replica_step, args=(inputs, labels))
        total = sum(float(value) for value in strategy.experimental_local_results(values))
        # The update is one program per device: when one variable is there, all are.
        jax.block_until_ready(variables[0].read_value())
        return total

    return timed(step, clock)


def make_tensorflow(case: Case, child: Child) -> Callable[[int], Steps]:
    """The step of the child process that runs TensorFlow, see `_eager_tensorflow.py`."""
    child.ask(case=case.name)

    def run(steps: int) -> Steps:
        return Steps(**child.ask(steps=steps))

    return run


# Measuring


def reference_losses(case: Case, idiom: str, steps: int) -> list[float]:
    """The losses of a plain JAX and optax loop on the whole batch, on one device."""
    loss = make_loss(case, idiom)
    transformation = optax.adam(LEARNING_RATE, eps=EPSILON)
    weights = [jnp.asarray(weight) for weight in initial_weights(case)]
    state = transformation.init(weights)
    ((inputs, labels),) = replica_batches(case, 1)

    @jax.jit
    def step(weights, state):
        value, gradients = jax.value_and_grad(loss)(weights, inputs, labels)
        updates, state = transformation.update(gradients, state)
        return value, optax.apply_updates(weights, updates), state

    losses = []
    for _ in range(steps):
        value, weights, state = step(weights, state)
        losses.append(float(value))
    return losses


def check_losses(name: str, losses: Sequence[float], expected: Sequence[float]) -> None:
    """Raises unless a variant trains as the reference does: wrong answers can be fast."""
    if not np.allclose(losses, expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise SystemExit(
            f"{name} computes other losses than plain JAX: {list(losses)}, expected"
            f" {list(expected)}. The times would not be comparable."
        )


class Row(NamedTuple):
    """The median milliseconds of each variant for one model on a number of replicas."""

    case: str
    title: str
    replicas: int
    limit: float
    plain: float
    compiled: float
    tensorflow: float | None
    own_cost: float  # plain / limit
    plain_speedup: float | None  # over TensorFlow
    compiled_speedup: float | None


def measure(case: Case, replicas: int, tensorflow: Child | None, options) -> Row:
    """Checks all variants, then times them in turns."""
    variants = {
        "limit": make_limit(case, replicas, options.idiom, options.clock),
        "plain": make_replicax(case, replicas, options.idiom, options.clock, compiled=False),
        "compiled": make_replicax(case, replicas, options.idiom, options.clock, compiled=True),
    }
    if tensorflow is not None:
        variants["tensorflow"] = make_tensorflow(case, tensorflow)
    expected = reference_losses(case, options.idiom, options.check_steps)
    steps = {}
    for name, run in variants.items():
        warm = run(options.check_steps)
        # The limit never updates its weights.
        wanted = [expected[0]] * len(expected) if name == "limit" else expected
        check_losses(f"{name} ({case.title}, replicas: {replicas})", warm.losses, wanted)
        fit = round(options.seconds / statistics.median(warm.seconds))
        steps[name] = min(max(fit, 1), options.max_steps)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name] += variants[name](steps[name]).seconds
    medians = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    peer = medians.get("tensorflow")
    return Row(
        case.name,
        case.title,
        replicas,
        medians["limit"],
        medians["plain"],
        medians["compiled"],
        peer,
        medians["plain"] / medians["limit"],
        peer / medians["plain"] if peer else None,
        peer / medians["compiled"] if peer else None,
    )


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument(
        "--idiom",
        choices=IDIOMS,
        default="nn",
        help="how the loss is written: jax.nn.relu and optax's cross-entropy, or jnp.maximum and a"
        " one-hot product",
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu counts the processor time of all threads, which a busy machine disturbs less",
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns that each variant takes")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a turn, about")
    parser.add_argument("--max-steps", type=int, default=50, help="most steps in a turn")
    parser.add_argument("--check-steps", type=int, default=5, help="steps whose losses are checked")
    parser.add_argument("--quick", action="store_true", help="a trial run of a few seconds")
    add_tensorflow_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    if options.quick:
        options.cases, options.replicas = ["two-small"], [1, 2]
        options.rounds, options.seconds, options.check_steps = 1, 0.05, 3
    choose_tensorflow(options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(options.replicas))
    results: dict[tuple[str, int], Row] = {}
    version = None
    for replicas in options.replicas:
        tensorflow = None
        if options.tensorflow_python:
            tensorflow = tensorflow_child(
                "_eager_tensorflow.py", options.tensorflow_python, replicas, options.clock
            )
            version = tensorflow.answer()["version"]
        try:
            for name in options.cases:
                print(f"{CASES[name].title}, replicas: {replicas} ...", file=sys.stderr)
                results[name, replicas] = measure(CASES[name], replicas, tensorflow, options)
        finally:
            if tensorflow is not None:
                tensorflow.close()
    rows = [results[name, replicas] for name in options.cases for replicas in options.replicas]
    facts = machine_facts(version)
    unit = "milliseconds" if options.clock == "wall" else "CPU milliseconds"
    title = f"Median {unit} per step; the losses of all variants agree."
    section = section_of(EAGER, title, rows)
    print_sections([section], facts, options.markdown)
    write_sections(options.json, [section], facts, idiom=options.idiom, clock=options.clock)


if __name__ == "__main__":
    main()
