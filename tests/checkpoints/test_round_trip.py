"""What is saved comes back: every bit, whatever the structure, dtype, strategy and executor."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from replicax._src.checkpoints import _arrays
from tests.scripts import run_python
from tests.under_test import EXECUTORS, STRATEGIES, Executor, cpus

DTYPES = [
    *("float32", "float16", "bfloat16", "int8", "int16", "int32", "uint8", "uint16", "uint32"),
    *("bool", "complex64", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"),
]


def random_bits(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """An array of any bits: also subnormals, -0.0, and NaNs with something in them."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype in ("int4", "uint4"):
        return generator.integers(-8 if dtype == "int4" else 0, 8, shape).astype(kind)
    count = int(np.prod(shape, dtype=int))
    raw = generator.integers(0, 256, count * kind.itemsize, dtype=np.uint8)
    return np.frombuffer(raw.tobytes(), kind).reshape(shape)


def bits(value: Any) -> bytes:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(value)).tobytes()
    return np.asarray(value).tobytes()


def test_every_bit_of_every_dtype(tmp_path: Path):
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 0), (4, 5)]
    values = [random_bits(dtype, shape, seed=3) for dtype in DTYPES for shape in shapes]
    vs = [rx.Variable(value) for value in values]
    before = [bits(v.read_value()) for v in vs]
    arrays = [np.array(value) for value in values]
    on_device = [jnp.asarray(value) for value in values]
    checkpoint = rx.train.Checkpoint(vs=vs, arrays=arrays, on_device=on_device)
    path = checkpoint.save(tmp_path / "ckpt")
    for v, array in zip(vs, arrays, strict=True):
        v.assign(np.zeros(v.shape, v.dtype))
        array[...] = 0
    on_device[:] = [jnp.asarray(np.zeros(v.shape, v.dtype)) for v in vs]
    checkpoint.restore(path).assert_consumed()
    assert [bits(v.read_value()) for v in vs] == before
    assert [array.tobytes() for array in arrays] == [value.tobytes() for value in values]
    assert [bits(array) for array in on_device] == before
    assert [array.dtype for array in on_device] == [v.dtype for v in vs]


NEW_PROCESS = """
import jax
import replicax as rx
from tests.checkpoints.test_round_trip import bits, one_of_each

checkpoint = rx.train.Checkpoint(all=one_of_each(2), key=rx.Variable(jax.random.key(6)))
checkpoint.restore(rx.train.latest_checkpoint(".")).assert_consumed()
wanted = {d: bits(v.read_value()) for d, v in one_of_each(1).items()}
assert {d: bits(v.read_value()) for d, v in checkpoint.all.items()} == wanted
assert bits(checkpoint.key.read_value()) == bits(jax.random.key(5))
assert checkpoint.key.dtype == jax.random.key(5).dtype
"""


def one_of_each(seed: int) -> dict[str, rx.Variable]:
    return {dtype: rx.Variable(random_bits(dtype, (5, 3), seed)) for dtype in DTYPES}


def test_in_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "program.py").write_text(NEW_PROCESS)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    checkpoint = rx.train.Checkpoint(all=one_of_each(1), key=rx.Variable(jax.random.key(5)))
    checkpoint.save(tmp_path / "ckpt")
    run_python(["program.py"], tmp_path, warm=True)


# --- structures -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


class Named(NamedTuple):
    first: Any
    second: Any


class Module:
    """A user's class: public and private attributes, and some that are no state."""

    def __init__(self, items: list[Any]):
        self.size = 64
        self.activation = jnp.tanh
        self.first = items[0]
        self._rest = items[1:]


class Slotted:
    __slots__ = ("_b", "a")

    def __init__(self, a: Any, b: Any):
        self.a, self._b = a, b


leaves = st.integers(0, 2**31 - 1).map(
    lambda seed: random_bits(DTYPES[seed % 11], (seed % 3, 1 + seed % 2), seed)
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.tuples(inner, inner).map(lambda pair: Named(*pair)),
        st.tuples(inner, inner).map(lambda pair: Slotted(*pair)),
        st.lists(inner, min_size=1, max_size=3).map(Module),
        inner.map(lambda value: SimpleNamespace(x=value)),
    ),
    max_leaves=6,
)


def rebuilt(tree: Any, leaf: Any) -> Any:
    """The same structure with `leaf(array)` in the place of each array."""
    if isinstance(tree, np.ndarray):
        return leaf(tree)
    if isinstance(tree, Named):
        return Named(*(rebuilt(each, leaf) for each in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(rebuilt(each, leaf) for each in tree)
    if isinstance(tree, dict):
        return {key: rebuilt(each, leaf) for key, each in tree.items()}
    if isinstance(tree, Pair):
        return Pair(rebuilt(tree.left, leaf), rebuilt(tree.right, leaf))
    if isinstance(tree, Slotted):
        return Slotted(rebuilt(tree.a, leaf), rebuilt(tree._b, leaf))
    if isinstance(tree, SimpleNamespace):
        return SimpleNamespace(x=rebuilt(tree.x, leaf))
    assert isinstance(tree, Module)
    return Module([rebuilt(each, leaf) for each in [tree.first, *tree._rest]])


@settings(max_examples=15)
@given(tree=trees)
def test_any_structure(tree: Any, tmp_path_factory: pytest.TempPathFactory):
    found: list[rx.Variable] = []

    def keep(value: np.ndarray) -> rx.Variable:
        found.append(rx.Variable(value))
        return found[-1]

    folder = tmp_path_factory.mktemp("any")
    path = rx.train.Checkpoint(tree=rebuilt(tree, keep)).save(folder / "ckpt")
    wanted = [bits(v.read_value()) for v in found]
    found.clear()
    other = rebuilt(tree, lambda value: keep(np.zeros_like(value)))
    rx.train.Checkpoint(tree=other).restore(path).assert_consumed()
    assert [bits(v.read_value()) for v in found] == wanted


@settings(max_examples=15)
@given(
    numbers=st.lists(
        st.integers() | st.floats() | st.booleans() | st.complex_numbers(), min_size=1, max_size=5
    )
)
def test_python_numbers(numbers: list[Any], tmp_path_factory: pytest.TempPathFactory):
    checkpoint = rx.train.Checkpoint(list=list(numbers), first=numbers[0])
    path = checkpoint.save(tmp_path_factory.mktemp("numbers") / "ckpt")
    other = rx.train.Checkpoint(list=[0] * len(numbers), first=0)
    other.restore(path).assert_consumed()
    assert repr(other.list) == repr(numbers)
    assert repr(other.first) == repr(numbers[0])


def test_numpy_numbers_keep_their_dtype(tmp_path: Path):
    values = [np.int64(2**60), np.float32(0.1), np.bool_(True), ml_dtypes.bfloat16(1.5)]
    path = rx.train.Checkpoint(values=list(values)).save(tmp_path / "ckpt")
    other = rx.train.Checkpoint(values=[0, 0, 0, 0])
    other.restore(path).assert_consumed()
    assert [(type(a), a) for a in other.values] == [(type(a), a) for a in values]


def test_one_variable_under_two_names_is_saved_once(tmp_path: Path):
    v = rx.Variable(1.0)
    path = rx.train.Checkpoint(a=v, b={"again": v}).save(tmp_path / "ckpt")
    assert [name for name, _ in rx.train.list_variables(path)] == ["a", "save_counter"]
    # Whoever has two variables there gives both the value.
    two = rx.train.Checkpoint(a=rx.Variable(0.0), b={"again": rx.Variable(0.0)})
    two.restore(path).assert_consumed()
    assert float(two.a) == float(two.b["again"]) == 1.0


def test_circles_are_walked_once(tmp_path: Path):
    model = SimpleNamespace(w=rx.Variable(1.0))
    model.itself = model
    checkpoint = rx.train.Checkpoint(model=model)
    model.owner = checkpoint
    path = checkpoint.save(tmp_path / "ckpt")
    model.w.assign(0.0)
    checkpoint.restore(path).assert_consumed()
    assert float(model.w) == 1.0


def test_settings_of_users_objects_are_not_state(tmp_path: Path):
    path = rx.train.Checkpoint(model=Module([rx.Variable(1.0)])).save(tmp_path / "ckpt")
    other = Module([rx.Variable(0.0)])
    other.size = 128
    rx.train.Checkpoint(model=other).restore(path).assert_consumed()
    assert (float(other.first), other.size) == (1.0, 128)


class OfPyTorch(Module):
    """What a checkpoint sees of a module of PyTorch."""

    def load_state_dict(self, state: Any) -> None:
        raise NotImplementedError


def test_a_module_of_pytorch_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"`net` .* is a OfPyTorch, .* save its state_dict\(\)"):
        rx.train.Checkpoint(net=OfPyTorch([None])).save(tmp_path / "ckpt")


def test_names_with_slashes_do_not_collide(tmp_path: Path):
    tree = {"a/b": rx.Variable(1.0), "a": {"b": rx.Variable(2.0)}, "a.Sb": rx.Variable(3.0)}
    checkpoint = rx.train.Checkpoint(tree=tree)
    path = checkpoint.save(tmp_path / "a folder/ckpt %20 ü")
    for v in (tree["a/b"], tree["a"]["b"], tree["a.Sb"]):
        v.assign(0.0)
    checkpoint.restore(path).assert_consumed()
    assert [float(v) for v in (tree["a/b"], tree["a"]["b"], tree["a.Sb"])] == [1.0, 2.0, 3.0]


def test_nested_checkpoints_and_a_root(tmp_path: Path):
    model = SimpleNamespace(w=rx.Variable(1.0))
    inner = rx.train.Checkpoint(model, step=5)
    path = rx.train.Checkpoint(inner=inner).save(tmp_path / "ckpt")
    other = SimpleNamespace(w=rx.Variable(0.0))
    again = rx.train.Checkpoint(other, step=0)
    rx.train.Checkpoint(inner=again).restore(path).assert_consumed()
    assert (float(other.w), again.step) == (1.0, 5)


def test_an_array_larger_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_arrays, "_PIECE", 1 << 20)
    value = np.arange(1_000_000, dtype=np.float32).reshape(2, -1)
    v = rx.Variable(value)
    checkpoint = rx.train.Checkpoint(v=v)
    path = checkpoint.save(tmp_path / "ckpt")
    v.assign(jnp.zeros_like(value))
    checkpoint.restore(path)
    assert (v.numpy() == value).all()


def test_nothing_at_all(tmp_path: Path):
    path = rx.train.Checkpoint().write(tmp_path / "ckpt")
    rx.train.Checkpoint().read(path).assert_consumed()


# --- strategies and executors ---------------------------------------------------------------------


class Training:
    """A small training run, with everything that has state."""

    def __init__(self, strategy: Any, executor: Executor, build: bool = False):
        self.strategy = strategy
        with strategy.scope():
            self.w = rx.Variable(jnp.arange(3.0), name="w")
            self.b = rx.Variable(jnp.ones((2, 2), jnp.bfloat16), name="b")
            self.optimizer = rx.Optimizer(optax.adam(0.1))
            self.loss = rx.metrics.Mean("loss")
            self.noise = rx.random.Generator.from_seed(1)
            self.running = rx.Variable(
                jnp.zeros(3), synchronization="ON_READ", aggregation="MEAN", name="running"
            )
        if build:
            self.optimizer.build([self.w, self.b])
        dataset = rx.data.Dataset.range(96).shuffle(96, seed=3).batch(24).repeat()
        self.iterator = iter(strategy.experimental_distribute_dataset(dataset))
        self.checkpoint = rx.train.Checkpoint(
            model={"w": self.w, "b": self.b, "running": self.running},
            optimizer=self.optimizer,
            iterator=self.iterator,
            loss=self.loss,
            noise=self.noise,
            step=0,
        )

        # Kept, so that it is compiled once.
        self.run = rx.function(self.eager_run) if executor.name == "compiled" else self.eager_run

    def step(self) -> None:
        self.run(next(self.iterator))
        self.checkpoint.step += 1

    def eager_run(self, batch: Any) -> None:
        def one(batch: Any) -> None:
            x = jnp.mean(batch.astype(jnp.float32)) + self.noise.normal([])

            def loss() -> jax.Array:
                return jnp.sum((self.w * x - 1) ** 2) / 1e4 + jnp.sum(self.b.value())

            value, gradients = rx.value_and_grad(loss, [self.w, self.b])
            self.optimizer.apply_gradients(zip(gradients, [self.w, self.b]))
            self.loss.update_state(value)
            self.running.assign(self.running.read_value() * 0.9 + 0.1 * x)

        self.strategy.run(one, args=(batch,))

    def state(self) -> list[Any]:
        """Everything, copy by copy."""
        variables = [self.w, self.b, self.running, *self.optimizer.variables]
        variables += [*self.loss.variables, *self.noise.variables]
        copies = [copy for v in variables for copy in self.strategy.experimental_local_results(v)]
        return [*(bits(copy.read_value()) for copy in copies), self.iterator.get_state()]


@pytest.fixture
def training() -> Iterator[Callable[..., Training]]:
    """Makes training runs, and ends their reading ahead."""
    made: list[Training] = []

    def make(name: str, executor: str, build: bool = False) -> Training:
        made.append(Training(STRATEGIES[name](), EXECUTORS[executor](), build))
        return made[-1]

    yield make
    for each in made:
        each.iterator.close()


@pytest.mark.parametrize(
    ("strategy", "executor", "build"),
    [
        ("default", "eager", True),
        ("mirrored_3", "compiled", False),
        ("mirrored_2", "eager", False),
        ("central_storage_2", "compiled", True),
    ],
)
def test_training_goes_on_as_if_it_had_not_stopped(
    strategy: str, executor: str, build: bool, training: Callable[..., Training], tmp_path: Path
):
    run = training(strategy, executor)
    for _ in range(3):
        run.step()
    path = run.checkpoint.save(tmp_path / "ckpt")
    saved = run.state()
    for _ in range(3):
        run.step()
    wanted = run.state()

    again = training(strategy, executor, build)
    status = again.checkpoint.restore(path)
    if build:
        assert again.state() == saved
    assert again.checkpoint.step == 3
    for _ in range(3):
        again.step()
    assert again.state() == wanted
    status.assert_consumed()
    # And back, in the program that has gone on.
    run.checkpoint.restore(path).assert_consumed()
    assert run.state() == saved


@pytest.mark.parametrize(
    ("source", "target", "executor"),
    [
        ("mirrored_3", "mirrored_2", "compiled"),
        ("mirrored_2", "mirrored_3", "eager"),
        ("mirrored_2", "one_device", "eager"),
        ("default", "mirrored_2", "eager"),
        ("mirrored_2", "central_storage_2", "eager"),
    ],
)
def test_restored_onto_another_strategy(
    source: str, target: str, executor: str, training: Callable[..., Training], tmp_path: Path
):
    run = training(source, executor)
    for _ in range(2):
        run.step()
    path = run.checkpoint.save(tmp_path / "ckpt")
    again = training(target, executor, build=True)
    del again.checkpoint.iterator  # its position goes along only where the batches are the same
    again.checkpoint.restore(path).assert_existing_objects_matched()
    for mine, theirs in [
        *((getattr(run, name), getattr(again, name)) for name in ("w", "b")),
        *zip(run.optimizer.variables, again.optimizer.variables, strict=True),
        *zip(run.noise.variables, again.noise.variables, strict=True),
    ]:
        assert bits(mine.read_value()) == bits(theirs.read_value()), mine.name
        for copy in again.strategy.experimental_local_results(theirs):
            assert bits(copy.read_value()) == bits(mine.read_value()), mine.name
    np.testing.assert_allclose(again.loss.result(), run.loss.result(), rtol=1e-6)
    np.testing.assert_allclose(again.running.read_value(), run.running.read_value(), rtol=1e-6)
    again.step()


def test_a_sum_is_dealt_out_to_the_copies(tmp_path: Path):
    def counter(count: int) -> rx.Variable:
        with rx.distribute.MirroredStrategy(cpus(count)).scope():
            return rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")

    four = counter(4)
    four.assign(8.0)
    path = rx.train.Checkpoint(v=four).save(tmp_path / "ckpt")
    two = counter(2)
    rx.train.Checkpoint(v=two).restore(path)
    assert float(two.read_value()) == 8.0
    assert [float(each.read_value()) for each in two.values] == [4.0, 4.0]


def test_values_are_safe_from_the_steps_that_follow(tmp_path: Path):
    """Compiled steps write into the buffers of the variables."""
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    with strategy.scope():
        vs = [rx.Variable(jnp.full(100_000, 1.0), aggregation="SUM") for _ in range(20)]

    @rx.function
    def step() -> None:
        strategy.run(lambda: [v.assign_add(jnp.ones_like(v)) for v in vs] and None)

    with rx.train.CheckpointManager(rx.train.Checkpoint(vs=vs), tmp_path) as manager:
        for _ in range(4):
            step()
            wanted = [v.numpy().copy() for v in vs]
            path = manager.save()
            step()
            step()
            manager.wait()
            manager.checkpoint.restore(path)
            assert all((v.numpy() == w).all() for v, w in zip(vs, wanted, strict=True))
