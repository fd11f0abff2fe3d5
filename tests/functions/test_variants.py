"""Programs that differ in shapes, merged into one: the same numbers as each of them."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from replicax._src import _jax_internals
from replicax._src._typing import Tracer
from replicax._src.functions._flat_variant import CannotMerge, Variant
from replicax._src.functions._variants import merge

AXIS = "replica"
local = threading.local()


def traced(fn: Callable[..., Any], replicas: int, *arguments: Any) -> Variant:
    program, constants = _jax_internals.trace_to_program(
        lambda *given: jax.tree.leaves(fn(*given)),
        fn,
        [f"number {index}" for index in range(len(arguments))],
        [jax.typeof(jnp.asarray(each)) for each in arguments],
        [(AXIS, replicas)],
    )
    outputs = range(len(program.jaxpr.outvars))
    return Variant(program, [*constants, *range(len(arguments))], outputs)


def on_replicas(
    fn: Callable[..., Any], shares: Sequence[np.ndarray], *common: Any
) -> list[list[np.ndarray]]:
    """Runs the merged program of `fn(share, *common)`; the outputs of each replica."""
    shapes = sorted({share.shape for share in shares}, reverse=True)
    largest = tuple(map(max, zip(*shapes, strict=True)))
    variants = [traced(fn, len(shares), np.zeros(s, np.float32), *common) for s in shapes]
    numbers = np.array([shapes.index(share.shape) for share in shares])
    rows = np.stack([np.pad(x, [(0, m - n) for n, m in zip(x.shape, largest)]) for x in shares])
    found_shapes: list[Any] = []

    def program(which: Any, share: Any, *common: Any) -> Any:
        outputs, shapes = merge(variants, which[0], [share[0], *common])[:2]
        found_shapes.append(shapes)
        return [output[None] for output in outputs]

    mesh = Mesh(np.array(jax.devices()[: len(shares)]), (AXIS,))
    cut, whole = PartitionSpec(AXIS), PartitionSpec()
    mapped = jax.shard_map(
        program,
        mesh=mesh,
        in_specs=(cut, cut, *[whole] * len(common)),
        out_specs=cut,
        check_vma=False,
    )
    outputs = jax.jit(mapped)(numbers, rows, *common)
    return [
        [
            np.asarray(output[replica])[tuple(map(slice, shapes[numbers[replica]]))]
            for output, shapes in zip(outputs, found_shapes[0], strict=True)
        ]
        for replica in range(len(shares))
    ]


def eagerly(
    fn: Callable[..., Any], shares: Sequence[np.ndarray], *common: Any
) -> list[list[np.ndarray]]:
    """The same with replicas that are threads, and meet in `total`."""
    meetings: dict[int, list[Any]] = {}
    barrier = threading.Barrier(len(shares), timeout=200)
    results: list[Any] = [None] * len(shares)
    errors: list[BaseException] = []

    def run(replica: int) -> None:
        count = 0

        def exchange(value: Any) -> list[Any]:
            nonlocal count
            meetings.setdefault(count, [None] * len(shares))[replica] = value
            barrier.wait()
            found = meetings[count]
            count += 1
            return found

        try:
            local.exchange = exchange
            results[replica] = [
                np.asarray(x) for x in jax.tree.leaves(fn(shares[replica], *common))
            ]
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(shares))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def total(value: Any) -> Any:
    """The sum over the replicas, in a trace and in threads."""
    if isinstance(value, Tracer):
        return lax.psum(value, AXIS)
    return sum(local.exchange(value))


def same(fn: Callable[..., Any], shares: Sequence[np.ndarray], *common: Any) -> None:
    found, expected = on_replicas(fn, shares, *common), eagerly(fn, shares, *common)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def shares_of(*rows: int, width: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(sum(rows))
    return [random.normal(size=(count, width)).astype(np.float32) for count in rows]


WEIGHTS = np.linspace(-1, 1, 3, dtype=np.float32)
SHARES = [(4, 3, 2, 1), (2, 1, 1, 1), (4, 4, 1, 0), (3, 3)]


@pytest.mark.parametrize("rows", SHARES)
def test_a_step_with_a_mean_and_an_update(rows: tuple[int, ...]):
    def step(x: Any, w: Any) -> Any:
        def loss_fn(w: Any) -> Any:
            return jnp.sum(jnp.tanh(x @ w) ** 2) / 7

        loss, gradient = jax.value_and_grad(loss_fn)(w)
        gradient, loss = total(gradient), total(loss)
        return loss, w - 0.1 * gradient, x @ w

    same(step, shares_of(*rows), WEIGHTS)


@pytest.mark.parametrize("rows", SHARES)
def test_values_that_live_across_a_collective(rows: tuple[int, ...]):
    def normalized(x: Any) -> Any:
        count = total(jnp.float32(x.shape[0]))
        mean = total(jnp.sum(x, axis=0)) / count
        centered = x - mean
        variance = total(jnp.sum(centered**2, axis=0)) / count
        return centered / jnp.sqrt(variance + 1e-3), jnp.sum(centered), mean

    same(normalized, shares_of(*rows))


@pytest.mark.parametrize("rows", SHARES)
def test_shapes_that_broadcast_and_literals_of_rows(rows: tuple[int, ...]):
    def program(x: Any, w: Any) -> Any:
        outer = x[:, None, :] * x[None, :, :]
        scaled = x * w / max(x.shape[0], 1)
        return total(jnp.sum(outer)), scaled.reshape(-1), jnp.concatenate([x, x * 2]).sum(0)

    same(program, shares_of(*rows), WEIGHTS)


@pytest.mark.parametrize("rows", SHARES)
def test_collectives_in_functions_that_are_called(rows: tuple[int, ...]):
    @jax.jit
    def inner(x: Any) -> Any:
        return total(jnp.sum(x)) + jnp.sum(x), x * 2

    def program(x: Any) -> Any:
        first, doubled = inner(x)
        return first, inner(doubled)[0], doubled

    found = on_replicas(program, shares_of(*rows))
    whole = sum(float(x.sum()) for x in shares_of(*rows))
    for x, (first, second, doubled) in zip(shares_of(*rows), found, strict=True):
        np.testing.assert_allclose(first, whole + x.sum(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(second, 2 * whole + 2 * x.sum(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(doubled, x * 2)


def test_constants_of_inner_functions_are_told_apart():
    def program(x: Any) -> Any:
        @jax.jit
        def inner(y: Any) -> Any:
            return y * np.full(2, 1 / max(x.shape[0], 1), np.float32)

        return jax.jit(lambda y: inner(y) + 1)(jnp.ones(2))

    same(program, shares_of(4, 2))


def test_random_keys_of_each_row():
    def program(x: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), x.shape[0])
        return total(x.sum()) + jax.vmap(jax.random.normal)(keys)

    same(program, shares_of(4, 2))


def test_what_is_alike_is_computed_once():
    def step(x: Any, w: Any) -> Any:
        gradient = total(jnp.sum(x, axis=0))
        return jnp.sin(w) - jnp.cos(gradient)

    shares = shares_of(4, 2)
    shapes = [(4, 3), (2, 3)]
    variants = [traced(step, 2, np.zeros(shape, np.float32), WEIGHTS) for shape in shapes]

    def merged(which: Any, x: Any, w: Any) -> Any:
        return merge(variants, which, [x, w])[0]

    program, _ = _jax_internals.trace_to_program(
        merged,
        merged,
        ["which", "x", "w"],
        [jax.typeof(jnp.asarray(each)) for each in (0, shares[0], WEIGHTS)],
        [(AXIS, 2)],
    )
    names = [equation.primitive.name for equation in program.jaxpr.eqns]
    assert [names.count(name) for name in ("cond", "sin", "cos", "sub")] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: lax.all_gather(x, AXIS), "differs in shape"),
        (lambda x: total(x.sum()) if x.shape[0] > 2 else x.sum(), "same collectives"),
        (lambda x: lax.pmax(x.sum(), AXIS) if len(x) > 2 else total(x.sum()), "differs"),
        (lambda x: lax.fori_loop(0, 2, lambda _, y: total(y), x.sum()), "inside a"),
        (lambda x: jax.debug.print("{}", x.sum()) or x.sum(), "side effects"),
    ],
)
def test_what_cannot_be_merged_says_why(program: Any, reason: str):
    variants = [traced(program, 2, np.zeros((rows, 3), np.float32)) for rows in (4, 2)]

    def merged(which: Any, x: Any) -> Any:
        return merge(variants, which, [x])[0]

    with pytest.raises(CannotMerge, match=reason):
        jax.make_jaxpr(merged, axis_env=[(AXIS, 2)])(0, np.zeros((4, 3), np.float32))
