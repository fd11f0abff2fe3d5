"""What a compiled loss sees of changes in containers and objects, however it reads them."""

import collections
import copy
import dataclasses
import enum
import itertools
import operator
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.functions._captures import Captures
from tests.functions.seen_late import CHANGES, losses_of

SCALE = 1.0


@pytest.fixture
def v() -> Any:
    return rx.Variable(1.0)


@pytest.mark.parametrize("what", CHANGES)
def test_changes_that_losses_see(what: str, v: Any):
    make, read, change = CHANGES[what]
    held = make()
    assert losses_of(lambda: v * read(held), v, [lambda: change(held)]) == [1, 3]


class Plain:
    """An object whose attributes its own class does not name."""


class Matched:
    __match_args__ = ("first",)


class Made:
    def __init__(self) -> None:
        self.made = SCALE

    @classmethod
    def another(cls) -> Any:
        return cls()


class Copied:
    def __copy__(self) -> Any:
        return SCALE


class Named(enum.Enum):
    ONE = Matched()
    TWO = 2


Named.ONE.value.inner = 1.0  # type: ignore[attr-defined]


class Tagged(np.ndarray):
    """An array with attributes."""


def an_object(**attributes: Any) -> Any:
    held = Plain()
    for name, value in attributes.items():
        setattr(held, name, value)
    return held


def matches(held: Any, v: Any) -> Any:
    match held:
        case Matched(1.0):
            return v * 1.0
        case _:
            return v * 3.0


prefix = "is_"
called = operator.methodcaller("read_it")
Plain.read_it = lambda self: self.only_here  # type: ignore[attr-defined]


def odd_reads() -> dict[str, tuple[Any, Callable[[Any, Any], Any], Callable[[Any], Any]]]:
    """What is held, how a loss reads it, and how it is changed; 1 becomes 3."""
    matched = Matched()
    matched.first = 1.0  # type: ignore[attr-defined]
    tagged = np.ones(2).view(Tagged)
    tagged.scale = 1.0  # type: ignore[attr-defined]
    parent = an_object(scale=1.0)
    numbers = {"a": 1.0}
    records = np.array([(1, "x")], dtype=[("number", int), ("any", object)])
    texts = np.array(["a"], dtype=np.dtypes.StringDType())
    return {
        "a pattern": (matched, matches, lambda d: setattr(d, "first", 3.0)),
        "hasattr": (
            Plain(),
            lambda d, v: v * (3.0 if hasattr(d, prefix + "on") else 1.0),
            lambda d: setattr(d, "is_on", True),
        ),
        "a method caller": (
            an_object(only_here=1.0),
            lambda d, v: v * called(d),
            lambda d: setattr(d, "only_here", 3.0),
        ),
        "a weak proxy": (
            weakref.proxy(parent),
            lambda d, v: v * d.scale,
            lambda _: setattr(parent, "scale", 3.0),
        ),
        "values of a dict": (
            numbers.values(),
            lambda d, v: v * sum(d),
            lambda _: numbers.update(a=3.0),
        ),
        "a method of a list": (
            [1].__len__,
            lambda d, v: v * d(),
            lambda d: d.__self__.extend([2, 3]),
        ),
        "an attribute of an array": (
            tagged,
            lambda d, v: v * d.scale,
            lambda d: setattr(d, "scale", 3.0),
        ),
        "records with objects": (
            records,
            lambda d, v: v * d["number"][0],
            lambda d: d["number"].fill(3),
        ),
        "an array of texts": (
            texts,
            lambda d, v: v * len(d[0]),
            lambda d: d.__setitem__(0, "abc"),
        ),
        "a value of an enum": (
            Named.ONE,
            lambda d, v: v * d.value.inner,
            lambda d: setattr(d.value, "inner", 3.0),
        ),
        "an attribute of an enum": (
            Named.TWO,
            lambda d, v: v * getattr(d, "scale", 1.0),
            lambda d: setattr(d, "scale", 3.0),
        ),
        "a slice": (
            (slice(np.array(1), None),),
            lambda d, v: v * int(d[0].start),
            lambda d: d[0].start.fill(3),
        ),
        "long lists": (
            [1.0] * 100,
            lambda d, v: v * d[50],
            lambda d: d.__setitem__(50, 3.0),
        ),
    }


@pytest.mark.parametrize("what", odd_reads())
def test_what_is_read_in_odd_ways(what: str, v: Any):
    held, read, change = odd_reads()[what]
    assert losses_of(lambda: read(held, v), v, [lambda: change(held)]) == [1, 3]


@pytest.mark.parametrize(
    ("held", "read"),
    [
        (Made(), lambda held: held.another().made),
        (Copied(), lambda held: copy.copy(held)),
        (collections.defaultdict(lambda: SCALE), lambda held: (held["a"], held.clear())[0]),
    ],
    ids=["a class method", "a copy", "a default"],
)
def test_globals_that_make_objects(held: Any, read: Any, v: Any, monkeypatch: pytest.MonkeyPatch):
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * read(held), v, [change]) == [1, 3]


def test_minus_zero_in_a_long_list(v: Any):
    held = [0.0] * 100
    loss = lambda: v * jnp.copysign(1.0, held[0])  # noqa: E731
    assert losses_of(loss, v, [lambda: held.__setitem__(0, -0.0)]) == [1, -1]
    integers: list[Any] = [1] * 100
    loss = lambda: v * (2.0 if isinstance(integers[0], bool) else 1.0)  # noqa: E731
    assert losses_of(loss, v, [lambda: integers.__setitem__(0, True)]) == [1, 2]


@dataclasses.dataclass(eq=False)
class Linked:
    x: Any
    other: Any = None


def test_structures_that_contain_themselves(v: Any):
    a = Linked(jnp.float32(2))
    a.other = Linked(jnp.float32(3), a)
    change = lambda: setattr(a, "x", jnp.float32(5))  # noqa: E731
    assert losses_of(lambda: v * a.other.other.x, v, [change]) == [2, 5]
    own: Any = collections.OrderedDict(x=jnp.float32(2))
    own["own"] = own
    assert losses_of(lambda: v * own["own"]["x"], v, []) == [2]


def test_objects_with_arrays_that_are_keys_too(v: Any):
    layers = [Linked(jnp.float32(1)), Linked(jnp.float32(10))]
    weights = {layers[0]: 1.0, layers[1]: 2.0}
    loss = lambda: v * sum(each.x * weights.get(each, 7.0) for each in layers)  # noqa: E731
    change = lambda: setattr(layers[0], "x", jnp.float32(2))  # noqa: E731
    assert losses_of(loss, v, [change]) == [21, 22]


def test_weak_sets(v: Any):
    layers: list[Any] = [Plain(), Plain()]
    layers[0].x, layers[1].x = 1.0, 2.0
    alive = weakref.WeakSet(layers[:1])
    loss = lambda: v * sum(each.x for each in alive)  # noqa: E731
    assert losses_of(loss, v, [lambda: alive.add(layers[1]), alive.clear]) == [1, 3, 0]


def test_what_cannot_be_looked_at(v: Any):
    class Closed:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("there is no request")

    def read(held: Any) -> list[float]:
        return losses_of(lambda: v * (2.0 if held is not None else 1.0), v, [])

    with pytest.warns(UserWarning, match="runs as plain Python, because it refers to a Closed"):
        assert read(Closed()) == [2]
    gone = weakref.proxy(Plain())
    assert read(gone) == read([gone, jnp.float32(1)]) == [2]


def test_containers_made_anew_are_not_traced_again(v: Any):
    traces = itertools.count()
    for step in range(3):
        names, table = {"a", "b"}, {("a", 0): jnp.float32(step)}

        def loss() -> Any:
            next(traces)
            return v * table["a", 0] * ("a" in names)  # noqa: B023

        assert float(rx.value_and_grad(loss, [v], compile=True)[0]) == step
    assert next(traces) == 1


def test_a_dict_that_another_thread_changes(v: Any):
    held: dict[str, float] = {}
    is_done = threading.Event()

    def change() -> None:
        for number in itertools.count():
            held[f"k{number % 50}"] = 1.0
            held.pop(f"k{number * 3 % 50}", None)
            if is_done.is_set():
                return

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(1000):
            Captures(lambda: v * ("x" in held))
    finally:
        is_done.set()
        thread.join()
        sys.setswitchinterval(interval)
