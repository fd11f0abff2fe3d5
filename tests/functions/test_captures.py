"""What `rx.value_and_grad(..., compile=True)` captures: never stale, never compiled in vain."""

import collections
import dataclasses
import functools
import inspect
import itertools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx

OFFSET = jnp.array([0.0, 0.0])


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class FrozenRecord:
    left: Any
    right: Any


@pytest.fixture
def w() -> Any:
    return rx.Variable(2.0)


def compiled(loss: Callable[[], Any], variable: Any) -> float:
    """Returns the loss from the compiled program, having checked that eager Python agrees."""
    expected, expected_gradient = rx.value_and_grad(loss, [variable])
    value, gradient = rx.value_and_grad(loss, [variable], compile=True)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient[0], expected_gradient[0], rtol=1e-6)
    return float(value)


# --- arrays become inputs -------------------------------------------------------------------------


def _closure(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
    return lambda: (count(), jnp.sum(w * x - y))[1]


def _default(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
    def loss(x: Any = x, *, y: Any = y) -> Any:
        count()
        return jnp.sum(w * x - y)

    return loss


def _partial(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
    def loss(x: Any, y: Any) -> Any:
        count()
        return jnp.sum(w * x - y)

    return functools.partial(loss, x, y=y)


def _nested_function(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
    def predict() -> Any:
        return w * x

    def loss() -> Any:
        count()
        return jnp.sum(predict() - y)

    return loss


def _inner_function(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
    def loss() -> Any:
        count()

        def predict() -> Any:
            return w * x

        return jnp.sum(predict() - y)

    return loss


def _container(make: Callable[[Any, Any], Any], read: Callable[[Any], tuple[Any, Any]]) -> Any:
    def build(x: Any, y: Any, count: Callable[[], Any], w: Any) -> Callable[[], Any]:
        batch = make(x, y)

        def loss() -> Any:
            count()
            left, right = read(batch)
            return jnp.sum(w * left - right)

        return loss

    return build


WAYS_TO_CAPTURE = {
    "closure": _closure,
    "defaults": _default,
    "partial": _partial,
    "function in the closure": _nested_function,
    "function made inside": _inner_function,
    "list": _container(lambda x, y: [x, y], lambda b: (b[0], b[1])),
    "tuple in a list": _container(lambda x, y: [(x, y)], lambda b: b[0]),
    "dict": _container(lambda x, y: {"x": x, "y": y}, lambda b: (b["x"], b["y"])),
    "unsortable keys": _container(lambda x, y: {1: x, "y": y}, lambda b: (b[1], b["y"])),
    "named tuple": _container(Pair, lambda b: (b.left, b.right)),
    "dataclass": _container(Record, lambda b: (b.left, b.right)),
    "frozen dataclass": _container(FrozenRecord, lambda b: (b.left, b.right)),
    "ordered dict": _container(
        lambda x, y: collections.OrderedDict(x=x, y=y), lambda b: (b["x"], b["y"])
    ),
    "numpy": _container(lambda x, y: (np.asarray(x), np.asarray(y)), lambda b: b),
}


@pytest.mark.parametrize("way", WAYS_TO_CAPTURE)
def test_new_arrays_do_not_compile_again(way: str, w: Any):
    traces = itertools.count()
    counted = []
    for step in range(6):
        x, y = jnp.arange(3.0) + step, jnp.ones(3) * step
        loss = WAYS_TO_CAPTURE[way](x, y, lambda: next(traces), w)
        value, (gradient,) = rx.value_and_grad(loss, [w], compile=True)
        np.testing.assert_allclose(value, jnp.sum(2.0 * x - y))
        np.testing.assert_allclose(gradient, jnp.sum(x))
        counted.append(next(traces))
    assert np.diff(counted).tolist() == [1] * 5, "the loss was traced again"


def test_a_global_array_that_is_rebound_is_fresh(w: Any, monkeypatch: pytest.MonkeyPatch):
    traces = itertools.count()

    def loss() -> Any:
        next(traces)
        return jnp.sum(w * OFFSET)

    results = []
    for value in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "OFFSET", jnp.array([value, value]))
        results.append(float(rx.value_and_grad(loss, [w], compile=True)[0]))
    assert results == [4.0, 8.0, 12.0]
    assert next(traces) <= 2


def test_one_loss_over_a_batch_that_is_rebound(w: Any):
    x = jnp.ones(4)

    def loss() -> Any:
        return jnp.sum(w * x)

    results = []
    for x in (jnp.ones(4), 3 * jnp.ones(4), 5 * jnp.ones(4)):  # noqa: B007
        results.append(compiled(loss, w))
    assert results == [8.0, 24.0, 40.0]


def test_one_loss_over_a_rebound_batch_whose_shape_changes(w: Any):
    x = jnp.ones(4)

    def loss() -> Any:
        return jnp.sum(w * x)

    results = []
    for x in (jnp.ones(4), 2 * jnp.ones(3), 5 * jnp.ones(3), 7 * jnp.ones(4)):  # noqa: B007
        results.append(compiled(loss, w))
    assert results == [8.0, 12.0, 30.0, 56.0]


def test_a_constant_that_a_loop_rebinds_and_a_shape_that_changes(w: Any):
    def step(x: jax.Array) -> list[float]:
        results = []
        for scale in (1.0, 2.0):

            def loss() -> Any:
                return scale * jnp.sum(w * x)  # noqa: B023

            results.append(compiled(loss, w))
        return results

    assert step(jnp.ones(4)) == [8.0, 16.0]
    assert step(jnp.ones(3)) == [6.0, 12.0]


def test_a_batch_replaced_inside_its_dict(w: Any):
    batch = {"x": jnp.ones(2)}

    def loss() -> Any:
        return jnp.sum(w * batch["x"])

    results = []
    for new in (jnp.ones(2), 2 * jnp.ones(2), 3 * jnp.ones(3), 4 * jnp.ones(3)):
        batch["x"] = new
        results.append(compiled(loss, w))
    assert results == [4.0, 8.0, 18.0, 24.0]


def test_dicts_with_their_keys_in_another_order_are_not_mixed_up(w: Any):
    def step(batch: dict[str, Any]) -> float:
        return compiled(lambda: jnp.sum(w * batch["x"]) - jnp.sum(batch["y"]), w)

    x, y = jnp.array([5.0]), jnp.array([1.0])
    assert step({"x": x, "y": y}) == 9.0
    assert step({"y": y, "x": x}) == 9.0


def test_the_same_array_twice_and_two_arrays_are_two_programs(w: Any):
    def step(x: Any, y: Any) -> float:
        return compiled(lambda: jnp.sum(w * x) - jnp.sum(y), w)

    one, two = jnp.array([1.0]), jnp.array([2.0])
    assert [step(one, one), step(one, two), step(two, one), step(two, two)] == [1, 0, 3, 2]


def test_registered_nodes_that_flatten_into_new_containers(w: Any):
    @jax.tree_util.register_pytree_node_class
    class Boxed:
        def __init__(self, x: Any):
            self.x = x

        def tree_flatten(self) -> tuple[Any, None]:
            return ([self.x],), None

        @classmethod
        def tree_unflatten(cls, aux: None, children: Any) -> Any:
            return cls(children[0][0])

    def step(p: Any, q: Any) -> float:
        return compiled(lambda: jnp.sum(w * p.x) - jnp.sum(q.x), w)

    assert step(Boxed(jnp.array([5.0])), Boxed(jnp.array([1.0]))) == 9.0
    assert step(Boxed(jnp.array([5.0])), Boxed(jnp.array([2.0]))) == 8.0


def test_a_compiled_loss_is_the_eager_one_whatever_the_batches(w: Any):
    batch: dict[str, Any] = {}

    def loss() -> Any:
        return jnp.sum(jnp.square(w * batch["x"]))

    @settings(max_examples=12)
    @given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=4), min_size=2, max_size=5))
    def check(batches: list[list[int]]) -> None:
        for items in batches:
            batch["x"] = jnp.array(items, jnp.float32)
            compiled(loss, w)

    check()


# --- everything else is a constant, and a change of it is seen ------------------------------------


def change(loss: Callable[[], Any], w: Any, act: Callable[[], Any]) -> tuple[float, float]:
    """Returns the compiled loss before and after `act`; each must be what eager Python gives."""
    before = compiled(loss, w)
    act()
    return before, compiled(loss, w)


class Thing:
    """An object of the user's."""

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Layer(Thing):
    """A callable one, as layers of models are."""

    def __call__(self, x: Any) -> Any:
        return self.scale * x


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: Any):
        self.scale = scale


def test_a_python_number_that_changes(w: Any):
    results = []
    for scale in (1.0, 2.0, 1.0, 3):
        results.append(compiled(lambda scale=scale: scale * w, w))
    assert results == [2.0, 4.0, 2.0, 6.0]


def test_numbers_that_are_equal_but_not_the_same(w: Any):
    def step(number: Any) -> float:
        return compiled(lambda: w * jnp.copysign(1.0, number), w)

    assert [step(0.0), step(-0.0)] == [2.0, -2.0]
    kinds = [compiled(lambda n=n: w * isinstance(n, bool), w) for n in (1, True, 1.0)]
    assert kinds == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("new", [3.0, jnp.array(3.0), np.array(3.0, np.float32)], ids=type)
def test_an_attribute_that_is_replaced(new: Any, w: Any):
    thing = Thing(scale=type(new)(1.0) if isinstance(new, float) else new / 3)
    result = change(lambda: w * thing.scale, w, lambda: setattr(thing, "scale", new))
    assert result == (2.0, 6.0)


def test_an_attribute_that_is_replaced_many_times_stays_fresh(w: Any):
    thing: Any = Thing(x=jnp.zeros(2))
    for step in range(8):
        thing.x = jnp.full(2, float(step))
        assert compiled(lambda: jnp.sum(w * thing.x), w) == 4.0 * step


def test_a_numpy_attribute_that_is_changed_in_place(w: Any):
    thing = Thing(x=np.ones(2, np.float32))
    assert change(lambda: jnp.sum(w * thing.x), w, lambda: thing.x.fill(3.0)) == (4.0, 12.0)


def test_a_captured_numpy_array_that_is_changed_in_place(w: Any):
    x = np.ones(2, np.float32)
    assert change(lambda: jnp.sum(w * x), w, lambda: x.fill(3.0)) == (4.0, 12.0)


def test_attributes_of_a_callable_attribute(w: Any):
    model = Thing(layer=Layer(scale=1.0))
    loss = lambda: model.layer(w * 1.0)  # noqa: E731
    assert change(loss, w, lambda: setattr(model.layer, "scale", 3.0)) == (2.0, 6.0)


def test_attributes_of_layers_in_a_list(w: Any):
    model = Thing(layers=[Layer(scale=jnp.array(1.0)), Layer(scale=jnp.array(1.0))])
    loss = lambda: model.layers[1](model.layers[0](w * 1.0))  # noqa: E731
    assert change(loss, w, lambda: setattr(model.layers[1], "scale", jnp.array(3.0))) == (2.0, 6.0)


def test_a_function_attribute_whose_closure_changes(w: Any):
    factor = {"now": 1.0}
    model = Thing(activation=lambda x: factor["now"] * x)
    loss = lambda: model.activation(w * 1.0)  # noqa: E731
    assert change(loss, w, lambda: factor.update(now=3.0)) == (2.0, 6.0)


def test_a_method_as_the_loss(w: Any):
    class Model(Thing):
        def loss(self) -> Any:
            return w * self.scale

    model = Model(scale=jnp.array(1.0))
    assert change(model.loss, w, lambda: setattr(model, "scale", jnp.array(3.0))) == (2.0, 6.0)


def test_a_callable_object_as_the_loss(w: Any):
    class Loss(Thing):
        def __call__(self) -> Any:
            return w * self.scale

    loss = Loss(scale=1.0)
    assert change(loss, w, lambda: setattr(loss, "scale", 3.0)) == (2.0, 6.0)


def test_an_attribute_deep_inside(w: Any):
    root = Thing(a=Thing(b=Thing(c=Thing(d=Thing(scale=1.0)))))
    loss = lambda: w * root.a.b.c.d.scale  # noqa: E731
    assert change(loss, w, lambda: setattr(root.a.b.c.d, "scale", 3.0)) == (2.0, 6.0)


def test_an_object_with_slots(w: Any):
    thing = Slotted(1.0)
    assert change(lambda: w * thing.scale, w, lambda: setattr(thing, "scale", 3.0)) == (2.0, 6.0)


def test_a_dict_of_a_subclass(w: Any):
    class Settings(dict):
        pass

    chosen = Settings(scale=1.0)
    assert change(lambda: w * chosen["scale"], w, lambda: chosen.update(scale=3.0)) == (2.0, 6.0)


def test_a_list_of_a_subclass(w: Any):
    class Many(list):
        pass

    chosen = Many([1.0])
    assert change(lambda: w * chosen[-1], w, lambda: chosen.append(3.0)) == (2.0, 6.0)


def test_a_deque(w: Any):
    recent = collections.deque([1.0])
    assert change(lambda: w * recent[-1], w, lambda: recent.append(3.0)) == (2.0, 6.0)


def test_a_set(w: Any):
    chosen = {"x"}
    loss = lambda: w * (3.0 if "y" in chosen else 1.0)  # noqa: E731
    assert change(loss, w, lambda: chosen.add("y")) == (2.0, 6.0)


def test_a_namespace(w: Any):
    settings = types.SimpleNamespace(scale=1.0)
    loss = lambda: w * settings.scale  # noqa: E731
    assert change(loss, w, lambda: setattr(settings, "scale", 3.0)) == (2.0, 6.0)


def test_an_attribute_dict_whose_keys_change_places(w: Any):
    thing = Thing(scales={"x": 1.0, "y": 3.0})
    loss = lambda: w * thing.scales["x"]  # noqa: E731
    swapped = {"y": 1.0, "x": 3.0}
    assert change(loss, w, lambda: setattr(thing, "scales", swapped)) == (2.0, 6.0)


def test_functions_of_libraries_that_are_made_anew(w: Any):
    results = []
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        schedule: Any = optax.constant_schedule(value)
        loss, _ = rx.value_and_grad(lambda: w * schedule(0), [w], compile=True)  # noqa: B023
        results.append(float(loss))
        schedule = None
    assert results == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_objects_that_are_made_anew(w: Any):
    results = []
    for value in range(10):
        thing: Any = Slotted(float(value))
        loss, _ = rx.value_and_grad(lambda: w * thing.scale, [w], compile=True)  # noqa: B023
        results.append(float(loss))
        thing = None
    assert results == [2.0 * value for value in range(10)]


def test_a_function_that_calls_itself(w: Any):
    def power(x: Any, times: int) -> Any:
        return x if times == 0 else w * power(x, times - 1)

    for value in (1.0, 2.0):
        x = jnp.array(value)
        assert compiled(lambda: power(x, 3), w) == 8.0 * value  # noqa: B023


def test_a_loss_that_captures_itself_in_a_container(w: Any):
    book: dict[str, Any] = {"x": jnp.array(3.0)}
    book["loss"] = lambda: w * book["x"]
    assert compiled(book["loss"], w) == 6.0
    book["x"] = jnp.array(4.0)
    assert compiled(book["loss"], w) == 8.0


def test_a_name_that_is_not_bound_yet(w: Any):
    def loss() -> Any:
        return w * later if use_it else w * 1.0

    use_it = False
    assert compiled(loss, w) == 2.0
    later, use_it = jnp.array(5.0), True
    assert compiled(loss, w) == 10.0


def test_captured_jitted_functions_work(w: Any):
    double = jax.jit(lambda x: 2 * x)
    for value in (1.0, 2.0):
        x = jnp.array(value)
        assert compiled(lambda: double(w * x), w) == 4.0 * value  # noqa: B023


def test_random_keys_are_inputs(w: Any):
    traces = itertools.count()
    results = []
    for seed in range(4):
        key = jax.random.key(seed)

        def loss() -> Any:
            next(traces)
            return w * jax.random.normal(key)  # noqa: B023

        results.append(float(rx.value_and_grad(loss, [w], compile=True)[0]))
        np.testing.assert_allclose(results[-1], 2.0 * jax.random.normal(key), rtol=1e-6)
    assert len(set(results)) == 4
    assert next(traces) <= 2


def test_a_warning_when_a_loss_compiles_again_and_again(w: Any):
    with pytest.warns(UserWarning, match="keeps changing") as found:
        for step in range(13):
            rx.value_and_grad(lambda: w * step, [w], compile=True)  # noqa: B023
    here = inspect.currentframe()
    assert here is not None and found[0].filename == __file__
    assert found[0].lineno == here.f_lineno - 3


class Scaled:
    """A class whose attribute, method and global the tests below change."""

    scale = 2.0

    def __call__(self, value: Any) -> Any:
        return value * self.scale * FACTOR


FACTOR = 1.0


def test_class_attributes_and_globals_that_methods_read(monkeypatch: pytest.MonkeyPatch):
    w = rx.Variable(1.0)
    layer = Scaled()

    def loss() -> Any:
        return layer(w)

    assert float(rx.value_and_grad(loss, [w], compile=True)[0]) == 2.0
    monkeypatch.setattr(Scaled, "scale", 5.0)
    assert float(rx.value_and_grad(loss, [w], compile=True)[0]) == 5.0
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert float(rx.value_and_grad(loss, [w], compile=True)[0]) == 15.0


def test_attributes_of_the_users_modules():
    models = types.ModuleType("models")
    exec("SCALE = 2.0\ndef forward(w): return w * SCALE", vars(models))
    w = rx.Variable(1.0)

    def loss() -> Any:
        return models.forward(w)

    assert float(rx.value_and_grad(loss, [w], compile=True)[0]) == 2.0
    models.SCALE = 7.0  # type: ignore[attr-defined]
    assert float(rx.value_and_grad(loss, [w], compile=True)[0]) == 7.0
