"""Restoring what does not fit, what is not there yet, and what is not there at all."""

import gc
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.variable import late_value_sources
from tests.under_test import STRATEGIES, cpus


@pytest.fixture(autouse=True)
def no_other_sources() -> Iterator[None]:
    """Checkpoints of earlier tests that somebody still holds, and that wait, do not count."""
    others = late_value_sources[:]
    late_value_sources.clear()
    yield
    late_value_sources[:] = [*others, *late_value_sources]


def test_all_differences_are_listed_and_nothing_is_changed(tmp_path: Path):
    saved = {
        "same": rx.Variable(1.0),
        "shape": rx.Variable(jnp.zeros((2, 3))),
        "dtype": rx.Variable(jnp.zeros(2, jnp.int32)),
        "renamed": rx.Variable(5.0),
        "number": rx.Variable(0.0),
    }
    path = rx.train.Checkpoint(model=saved, step=4).save(tmp_path / "ckpt")
    wanted = {
        "same": rx.Variable(0.0),
        "shape": rx.Variable(jnp.zeros((2, 4))),
        "dtype": rx.Variable(jnp.zeros(2, jnp.bfloat16)),
        "new_name": rx.Variable(0.0),
        "number": 3,
    }
    iterator = iter(rx.data.Dataset.range(3))
    checkpoint = rx.train.Checkpoint(model=wanted, step=0, iterator=iterator)
    with pytest.raises(rx.errors.CheckpointError) as caught:
        checkpoint.restore(path)
    text = str(caught.value)
    assert "model/shape: saved float32[2,3], wanted float32[2,4]" in text
    assert "model/dtype: saved int32[2], wanted bfloat16[2]" in text
    assert "model/new_name: not in the checkpoint, wanted float32[]" in text
    assert "model/renamed: float32[]" in text  # in the checkpoint and not in the program
    assert "model/number: saved float32[], wanted a number (now 3)" in text
    assert "iterator: not in the checkpoint" in text
    assert "model/same" not in text
    assert path in text and "nothing was restored" in text
    assert (float(wanted["same"]), checkpoint.step) == (0.0, 0)


def test_missing_is_an_error_unless_partial(tmp_path: Path):
    path = rx.train.Checkpoint(a=rx.Variable(1.0)).save(tmp_path / "ckpt")
    checkpoint = rx.train.Checkpoint(a=rx.Variable(0.0), b=rx.Variable(7.0))
    with pytest.raises(rx.errors.CheckpointError, match=r"(?s)b: not in .*partial=True"):
        checkpoint.restore(path)
    assert float(checkpoint.a) == 0.0
    status = checkpoint.restore(path, partial=True)
    assert (float(checkpoint.a), float(checkpoint.b)) == (1.0, 7.0)
    with pytest.raises(AssertionError, match="b: not in the checkpoint"):
        status.assert_existing_objects_matched()
    with pytest.raises(AssertionError):
        status.assert_consumed()
    status.assert_nontrivial_match().expect_partial()
    checkpoint.save(tmp_path / "ckpt")  # goes on


def test_what_only_the_checkpoint_has_is_left_out(tmp_path: Path):
    model = SimpleNamespace(w=rx.Variable(1.0))
    path = rx.train.Checkpoint(model=model, other=rx.Variable(2.0)).save(tmp_path / "ckpt")
    model.w.assign(0.0)
    status = rx.train.Checkpoint(model=model).restore(path)
    assert float(model.w) == 1.0
    status.assert_existing_objects_matched().assert_nontrivial_match()
    with pytest.raises(AssertionError, match=r"no place for:\n  other: float32"):
        status.assert_consumed()


def test_nothing_in_common(tmp_path: Path):
    path = rx.train.Checkpoint(a=rx.Variable(1.0)).save(tmp_path / "ckpt")
    status = rx.train.Checkpoint(b=SimpleNamespace()).restore(path)
    with pytest.raises(AssertionError, match="Nothing of the checkpoint"):
        status.assert_nontrivial_match()


def test_none_restores_nothing():
    status = rx.train.Checkpoint(a=rx.Variable(1.0)).restore(None)
    status.expect_partial().initialize_or_restore()
    for check in (
        status.assert_consumed,
        status.assert_existing_objects_matched,
        status.assert_nontrivial_match,
    ):
        with pytest.raises(AssertionError, match="No checkpoint"):
            check()


def test_a_path_that_is_none(tmp_path: Path):
    checkpoint = rx.train.Checkpoint(a=rx.Variable(1.0))
    with pytest.raises(FileNotFoundError, match="There is no checkpoint at"):
        checkpoint.restore(tmp_path / "nothing")
    checkpoint.save(tmp_path / "ckpt")
    with pytest.raises(rx.errors.CheckpointError, match=r"The number is missing: ckpt-1\."):
        checkpoint.restore(tmp_path / "ckpt")
    with pytest.raises(rx.errors.CheckpointError, match="directory of checkpoints: ckpt-1"):
        checkpoint.restore(tmp_path)
    with pytest.raises(rx.errors.CheckpointError, match="There are: ckpt-1"):
        checkpoint.restore(tmp_path / "ckpt-2")


# --- later ----------------------------------------------------------------------------------------


def adam(model: Any, build: bool = True) -> rx.Optimizer:
    optimizer = rx.Optimizer(optax.adam(0.1))
    if build:
        optimizer.build([model.a, model.b])
    return optimizer


def model() -> SimpleNamespace:
    return SimpleNamespace(a=rx.Variable(1.0, name="a"), b=rx.Variable([1.0, 2.0], name="b"))


def trained() -> tuple[Any, rx.Optimizer]:
    one = model()
    optimizer = adam(one)
    for scale in (1.0, 2.0):
        optimizer.apply([jnp.float32(scale), jnp.ones(2) * scale], [one.a, one.b])
    return one, optimizer


def values(optimizer: rx.Optimizer) -> list[Any]:
    return [v.numpy().tolist() for v in optimizer.variables]


def test_the_state_of_an_optimizer_follows_its_variables(tmp_path: Path):
    one, optimizer = trained()
    path = rx.train.Checkpoint(model=one, optimizer=optimizer).save(tmp_path / "ckpt")
    other = model()
    turned = rx.Optimizer(optax.adam(0.1))
    turned.build([other.b, other.a])  # in another order
    rx.train.Checkpoint(model=other, optimizer=turned).restore(path).assert_consumed()
    by_shape = {v.name: v.numpy().tolist() for v in optimizer.variables}
    assert {v.name: v.numpy().tolist() for v in turned.variables} == by_shape


@pytest.mark.parametrize("where", ["eager", "compiled"])
def test_an_optimizer_that_is_built_later(where: str, tmp_path: Path):
    one, optimizer = trained()
    path = rx.train.Checkpoint(model=one, optimizer=optimizer).save(tmp_path / "ckpt")
    other = model()
    later = adam(other, build=False)
    status = rx.train.Checkpoint(model=other, optimizer=later).restore(path)

    def step(m: Any, o: rx.Optimizer) -> None:
        o.apply([m.a.value(), m.b.value()], [m.a, m.b])

    for m, o in ((one, optimizer), (other, later)):
        (rx.function(step) if where == "compiled" else step)(m, o)
    assert values(later) == values(optimizer)
    assert other.b.numpy().tolist() == one.b.numpy().tolist()
    status.assert_consumed()
    rx.train.Checkpoint(model=other, optimizer=later).save(tmp_path / "later")


def test_an_optimizer_that_is_built_later_for_other_variables(tmp_path: Path):
    one, optimizer = trained()
    path = rx.train.Checkpoint(optimizer=optimizer).save(tmp_path / "ckpt")
    other = SimpleNamespace(a=rx.Variable(1.0), b=rx.Variable([1.0, 2.0, 3.0]))
    later = adam(other, build=False)
    rx.train.Checkpoint(optimizer=later).restore(path)
    with pytest.raises(rx.errors.CheckpointError, match=r"saved float32\[2\], wanted float32\[3\]"):
        later.build([other.a, other.b])
    sgd = rx.Optimizer(optax.sgd(0.1, momentum=0.9))
    rx.train.Checkpoint(optimizer=sgd).restore(path)
    with pytest.raises(rx.errors.CheckpointError, match="another optimizer or other variables"):
        sgd.build([other.a])


def test_an_optimizer_saved_before_its_first_step(tmp_path: Path):
    one = model()
    optimizer = adam(one, build=False)
    checkpoint = rx.train.Checkpoint(model=one, optimizer=optimizer)
    path = checkpoint.save(tmp_path / "ckpt")
    optimizer.apply([jnp.float32(3.0), jnp.ones(2)], [one.a, one.b])
    assert any(np.any(v.numpy()) for v in optimizer.variables)
    checkpoint.restore(path).assert_consumed()
    assert not any(np.any(v.numpy()) for v in optimizer.variables)  # as new


def test_an_attribute_of_the_checkpoint_that_is_set_later(tmp_path: Path):
    path = rx.train.Checkpoint(a=rx.Variable(1.0), b=rx.Variable(2.0)).save(tmp_path / "ckpt")
    checkpoint = rx.train.Checkpoint(a=rx.Variable(0.0))
    status = checkpoint.restore(path)
    checkpoint.b = rx.Variable(0.0)
    assert float(checkpoint.b) == 2.0
    status.assert_consumed()
    checkpoint.a = rx.Variable(5.0)  # it has been restored once: this one is meant
    assert float(checkpoint.a) == 5.0


@pytest.fixture
def one(tmp_path: Path) -> str:
    """The path of a checkpoint with m/w = 1 and m/more/0 = 2."""
    tree = SimpleNamespace(w=rx.Variable(1.0), more=[rx.Variable(2.0)])
    return rx.train.Checkpoint(m=tree).save(tmp_path / "ckpt")


def use(way: str, v: Any) -> float:
    if way == "write":
        return float(v.assign_add(0.0).numpy())
    if way == "jit":
        return float(jax.jit(lambda x: x * 1)(v))
    if way == "function":
        return float(rx.function(lambda: v * 1)())
    if way == "grad":
        return float(jax.grad(lambda x: x * v)(1.0))
    return float(repr(v).rpartition("numpy=")[2][:-1]) if way == "repr" else float(v * 1)


@pytest.mark.parametrize("way", ["read", "write", "repr", "jit", "function", "grad"])
@pytest.mark.parametrize("partial", [False, True])
def test_a_variable_that_is_made_later(way: str, partial: bool, one: str):
    lazy = SimpleNamespace()
    checkpoint = rx.train.Checkpoint(m=lazy)
    status = checkpoint.restore(one)
    if partial:
        status.expect_partial()
    lazy.w = rx.Variable(0.0)
    assert use(way, lazy.w) == 1.0
    lazy.w.assign(5.0)  # what is assigned later stays
    lazy.more = []
    lazy.more.append(rx.Variable(0.0))
    assert (use(way, lazy.more[0]), float(lazy.w)) == (2.0, 5.0)
    status.assert_consumed()
    assert late_value_sources == []


def test_later_variables_are_restored_before_they_are_saved(one: str, tmp_path: Path):
    lazy = SimpleNamespace()
    checkpoint = rx.train.Checkpoint(m=lazy)
    checkpoint.restore(one).expect_partial()
    lazy.w, lazy.more = rx.Variable(0.0), [rx.Variable(0.0)]
    path = checkpoint.save(tmp_path / "again")
    other = rx.train.Checkpoint(m=SimpleNamespace(w=rx.Variable(0.0), more=[rx.Variable(0.0)]))
    other.restore(path).assert_consumed()
    assert (float(other.m.w), float(other.m.more[0])) == (1.0, 2.0)


def test_later_variables_that_were_used_before_they_had_their_place(one: str):
    lazy = SimpleNamespace()
    checkpoint = rx.train.Checkpoint(m=lazy)
    checkpoint.restore(one)
    w = rx.Variable(3.0)
    w.assign(w * 2)
    lazy.w = w
    assert float(w) == 1.0


class Model:
    """A user's object, which can be referred to weakly."""

    w: Any


def test_the_checkpoint_itself_need_not_be_kept(one: str):
    lazy: Any = Model()
    lazy.more = []
    rx.train.Checkpoint(m=lazy).restore(one).expect_partial()
    gc.collect()
    lazy.w = rx.Variable(0.0)
    assert float(lazy.w) == 1.0
    lazy.more.append(rx.Variable(0.0))
    assert float(lazy.more[0]) == 2.0
    root: Any = Model()
    root.m = Model()
    rx.train.Checkpoint(root).restore(one).expect_partial()
    gc.collect()
    root.m.w = rx.Variable(0.0)
    assert float(root.m.w) == 1.0


def test_nothing_is_kept_for_later_variables(one: str):
    lazy: Any = Model()
    rx.train.Checkpoint(m=lazy).restore(one)
    gone = weakref.ref(lazy)
    del lazy
    gc.collect()
    assert gone() is None
    float(rx.Variable(0.0))
    assert late_value_sources == []


def test_the_counter_of_saves_is_not_awaited(one: str, tmp_path: Path):
    checkpoint = rx.train.Checkpoint(m=SimpleNamespace(w=rx.Variable(0.0), more=[rx.Variable(0.0)]))
    checkpoint.read(one)
    assert late_value_sources == []
    assert checkpoint.save(tmp_path / "new") == str(tmp_path / "new-1")


def test_the_last_restore_counts(one: str, tmp_path: Path):
    lazy = SimpleNamespace()
    checkpoint = rx.train.Checkpoint(m=lazy)
    checkpoint.restore(one)
    other = rx.train.Checkpoint(m=SimpleNamespace(w=rx.Variable(9.0))).save(tmp_path / "other")
    checkpoint.restore(other)
    lazy.w = rx.Variable(0.0)
    assert float(lazy.w) == 9.0
    assert late_value_sources == []


def test_a_later_variable_of_another_shape(one: str):
    lazy = SimpleNamespace()
    status = rx.train.Checkpoint(m=lazy).restore(one).expect_partial()
    lazy.w = rx.Variable([0.0])
    assert float(rx.Variable(4.0)) == 4.0  # no business of others
    for _ in range(10):
        with pytest.raises(rx.errors.CheckpointError, match=r"m/w: saved float32\[\], wanted"):
            lazy.w.numpy()
    with pytest.raises(rx.errors.CheckpointError, match=r"m/w: saved float32\[\], wanted"):
        status.assert_existing_objects_matched()


class Lazy:
    """A model that makes its variables when it is first called."""

    def __init__(self) -> None:
        self.layers: list[Any] = []

    def __call__(self, x: Any) -> Any:
        for index in range(3):
            if len(self.layers) == index:
                self.layers.append({"w": rx.Variable(jnp.ones(2) * 0.5)})
            x = jnp.tanh(x * self.layers[index]["w"])
        return jnp.sum(x)

    @property
    def variables(self) -> list[Any]:
        return [layer["w"] for layer in self.layers]


@pytest.mark.parametrize(
    ("name", "executor", "build"),
    [
        ("mirrored_2", "compiled", "in the step"),
        ("mirrored_2", "eager", "in the step"),
        ("mirrored_2", "compiled", "before"),
        ("default", "eager", "before"),
    ],
)
def test_a_model_that_is_built_later(name: str, executor: str, build: str, tmp_path: Path):
    x = jnp.arange(2.0)
    strategy = STRATEGIES[name]()

    def begin() -> tuple[rx.train.Checkpoint, Any]:
        model = Lazy()
        with strategy.scope():
            optimizer = rx.Optimizer(optax.adam(0.1))

        def replica_step() -> Any:
            model(x)
            loss, gradients = rx.value_and_grad(lambda: model(x), model.variables)
            optimizer.apply_gradients(zip(gradients, model.variables))
            return loss

        def step() -> Any:
            return strategy.reduce("SUM", strategy.run(replica_step), axis=None)

        checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer)
        return checkpoint, rx.function(step) if executor == "compiled" else step

    checkpoint, step = begin()
    for _ in range(2):
        step()
    path = checkpoint.save(tmp_path / "ckpt")
    wanted = [float(step()) for _ in range(2)]
    again, step = begin()
    status = again.restore(path).expect_partial()
    if build == "before":
        with strategy.scope():
            again.model(x)
    assert [float(step()) for _ in range(2)] == wanted
    status.assert_consumed()


# --- positions ------------------------------------------------------------------------------------


def test_the_exact_position_of_an_iterator(tmp_path: Path):
    def make() -> Any:
        return iter(rx.data.Dataset.range(20).shuffle(20, seed=2).batch(3).repeat())

    iterator = make()
    for _ in range(9):
        next(iterator)
    path = rx.train.Checkpoint(iterator=iterator).save(tmp_path / "ckpt")
    wanted = [next(iterator).tolist() for _ in range(9)]
    again = make()
    rx.train.Checkpoint(iterator=again).restore(path).assert_consumed()
    assert [next(again).tolist() for _ in range(9)] == wanted


def test_a_position_that_does_not_fit_leaves_all_as_it_was(tmp_path: Path):
    v = rx.Variable(1.0)
    first = iter(rx.data.Dataset.range(5))
    next(first)
    path = rx.train.Checkpoint(v=v, a=first, b=iter(rx.data.Dataset.range(5))).save(tmp_path / "c")
    v.assign(0.0)
    a, b = iter(rx.data.Dataset.range(5)), iter(rx.data.Dataset.range(6))
    with pytest.raises(rx.errors.CheckpointError, match="b: the position .* does not fit"):
        rx.train.Checkpoint(v=v, a=a, b=b).restore(path)
    assert float(v) == 0.0
    assert next(a) == 0


class Player:
    """Something of the user's with a state of its own."""

    def __init__(self, state: Any):
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


def test_any_object_with_a_state(tmp_path: Path):
    state = {"raw": b"\x00\xff", "pair": (1, 2.5), 3: [None, True], "$x": {"y": "z"}}
    path = rx.train.Checkpoint(player=Player(state)).save(tmp_path / "ckpt")
    other = Player(None)
    rx.train.Checkpoint(player=other).restore(path).assert_consumed()
    assert other.state == state
    with pytest.raises(TypeError, match="get_state.* gave a object"):
        rx.train.Checkpoint(player=Player(object())).save(tmp_path / "ckpt")
    assert rx.train.list_checkpoints(tmp_path) == [path]


# --- misuse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["text", None, b"bytes", len, jnp.sum, int, ...])
def test_what_cannot_be_saved(value: Any):
    with pytest.raises(ValueError, match="cannot save thing="):
        rx.train.Checkpoint(thing=value)


def test_names_that_are_taken():
    with pytest.raises(ValueError, match="named 'save'"):
        rx.train.Checkpoint(save=rx.Variable(1.0))
    root = SimpleNamespace(v=rx.Variable(1.0))
    with pytest.raises(ValueError, match=r"root\.v is something else"):
        rx.train.Checkpoint(root, v=rx.Variable(2.0))
    rx.train.Checkpoint(root, v=root.v)


def test_keys_that_become_the_same(tmp_path: Path):
    tree = {1: rx.Variable(1.0), "1": rx.Variable(2.0)}
    with pytest.raises(ValueError, match="keys 1 and '1'"):
        rx.train.Checkpoint(tree=tree).save(tmp_path / "ckpt")


def test_not_inside_replicas_or_functions(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    with strategy.scope():
        checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    path = checkpoint.save(tmp_path / "ckpt")
    for call in (lambda: checkpoint.write(tmp_path / "x"), lambda: checkpoint.restore(path)):
        with pytest.raises(rx.errors.WrongContextError, match="between the steps"):
            strategy.run(call)
        with pytest.raises(rx.errors.WrongContextError, match="rx.function"):
            rx.function(lambda call=call: call() and None)()


def test_not_in_the_scope_of_another_strategy(tmp_path: Path):
    with rx.distribute.MirroredStrategy(cpus(2)).scope():
        checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    path = checkpoint.save(tmp_path / "ckpt")
    checkpoint.v.assign(0.0)
    other = rx.distribute.MirroredStrategy(cpus(3))
    with other.scope(), pytest.raises(rx.errors.WrongContextError, match="outside of scopes"):
        checkpoint.restore(path)
    checkpoint.restore(path)
    assert float(checkpoint.v.read_value()) == 1.0


def test_a_newer_checkpoint_asks_nothing_of_an_older_one(tmp_path: Path):
    """Its files may be gone, as by `max_to_keep`, before a variable made later has been used."""

    class Model:
        v: Any

    saved, later = Model(), Model()
    saved.v = rx.Variable(1.0)
    paths = [rx.train.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))]
    saved.v.assign(2.0)
    paths.append(rx.train.Checkpoint(model=saved).save(str(tmp_path / "newer")))
    checkpoint = rx.train.Checkpoint(model=later)
    checkpoint.restore(paths[0]).expect_partial()
    later.v = rx.Variable(0.0)
    shutil.rmtree(paths[0])
    checkpoint.restore(paths[1]).assert_consumed()
    assert later.v.numpy() == 2.0
