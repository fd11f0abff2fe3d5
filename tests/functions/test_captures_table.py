"""Every row of the table in docs/captures.md, in each of its three columns."""

import collections
import dataclasses
import functools
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.guards import ROOT


class Row(NamedTuple):
    """One way to be a row: how it is read, and how it changes from 1 to 3 meanwhile."""

    read: Callable[[], Any]
    change: Callable[[], Any]


@dataclasses.dataclass
class Object:
    scale: Any = 1.0
    per_class = 1.0

    @property
    def by_property(self) -> Any:
        return SCALE

    def __abs__(self) -> Any:
        return SCALE

    def by_method(self) -> Any:
        return self.scale


SCALE = 1.0
SETTINGS = types.ModuleType("settings_of_a_test")
INNER = types.ModuleType("settings_of_a_test.inner")


def set_global() -> None:
    global SCALE
    SCALE = 3.0


def read_global() -> Any:
    return SCALE


def other_helper() -> Any:
    return 3.0


def with_cell() -> Row:
    value = 1.0

    def change() -> None:
        nonlocal value
        value = 3.0

    return Row(lambda: value, change)


def with_array_in_cell() -> Row:
    value = jnp.float32(1)

    def change() -> None:
        nonlocal value
        value = jnp.float32(3)

    return Row(lambda: value, change)


def with_default(value: Any, other: Any, keyword: bool) -> Row:
    if keyword:

        def by_keyword(*, k: Any = value) -> Any:
            return k

        return Row(by_keyword, lambda: setattr(by_keyword, "__kwdefaults__", {"k": other}))

    def by_default(k: Any = value) -> Any:
        return k

    return Row(by_default, lambda: setattr(by_default, "__defaults__", (other,)))


def with_partial() -> Row:
    partial = functools.partial(lambda k: k["k"], k={"k": 1.0})
    return Row(lambda: partial(), lambda: partial.keywords["k"].update(k=3.0))


def held(made: Any, read: Callable[[Any], Any], change: Callable[[Any], Any]) -> Row:
    return Row(lambda: read(made), lambda: change(made))


def with_attribute() -> Row:
    def owner() -> Any:
        return owner.scale  # type: ignore[attr-defined]

    owner.scale = 1.0  # type: ignore[attr-defined]
    return Row(owner, lambda: setattr(owner, "scale", 3.0))


def with_code() -> Row:
    def own() -> Any:
        return 1.0

    return Row(lambda: own(), lambda: setattr(own, "__code__", other_helper.__code__))


def of_a_package() -> Row:
    text = collections.UserString("x")
    text.scale = 1.0  # type: ignore[attr-defined]
    return held(text, lambda d: d.scale, lambda d: setattr(d, "scale", 3.0))


def iterating() -> Row:
    numbers = iter([1.0, 3.0, 3.0, 3.0])
    return Row(lambda: next(numbers), lambda: None)


SEEN_BY_LOSSES = "a loss with `compile=True`"
COLUMNS = (SEEN_BY_LOSSES, "a function given to `run`", "`rx.function`")
ROWS: dict[str, Callable[[], list[Row]]] = {
    "an array in a closure, a default, a global, a list, a dict": lambda: [
        with_array_in_cell(),
        with_default(jnp.float32(1), jnp.float32(3), False),
        held([jnp.float32(1)], lambda d: d[0], lambda d: d.__setitem__(0, jnp.float32(3))),
        held({"k": jnp.float32(1)}, lambda d: d["k"], lambda d: d.update(k=jnp.float32(3))),
    ],
    "a number or string there; an argument of a partial; a keyword-only default": lambda: [
        with_cell(),
        Row(read_global, set_global),
        with_default(1.0, 3.0, False),
        with_default(1.0, 3.0, True),
        with_partial(),
        held({"k": "x"}, lambda d: len(d["k"]), lambda d: d.update(k="xxx")),
    ],
    "a list, dict, set or deque that is changed in place": lambda: [
        held([1.0], lambda d: d[-1], lambda d: d.append(3.0)),
        held({"k": 1.0}, lambda d: d["k"], lambda d: d.update(k=3.0)),
        held({1.0}, max, lambda d: d.add(3.0)),
        held(collections.deque([1.0]), lambda d: d[-1], lambda d: d.append(3.0)),
    ],
    "a NumPy array that is written into": lambda: [
        held(np.ones(2, np.float32), lambda d: d[0], lambda d: d.fill(3.0)),
        held(np.ones(2), lambda d: d.max(), lambda d: d.fill(3.0)),
    ],
    "an attribute of a function": lambda: [with_attribute()],
    "the code or the closure of a helper": lambda: [with_code(), with_cell()],
    "an attribute of an object, `self` too": lambda: [
        held(Object(), lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
        held(Object(), lambda d: d.by_method(), lambda d: setattr(d, "scale", 3.0)),
    ],
    "an attribute of a class; a property, a special method": lambda: [
        held(Object(), lambda d: d.per_class, lambda d: setattr(type(d), "per_class", 3.0)),
        held(Object(), lambda d: d.by_property, lambda d: set_global()),
        held(Object(), abs, lambda d: set_global()),
    ],
    "an attribute of a module, of a module in a package": lambda: [
        Row(lambda: SETTINGS.scale, lambda: setattr(SETTINGS, "scale", 3.0)),
        Row(lambda: SETTINGS.inner.scale, lambda: setattr(INNER, "scale", 3.0)),
    ],
    "attributes of objects of JAX, NumPy, optax, Flax, Keras, Equinox and the standard library": (
        lambda: [of_a_package()]
    ),
    "`np.random`, the clock, files, `os.environ`, `next(iterator)`, a module found by a computed "
    "name": lambda: [
        iterating(),
        Row(
            lambda: float(os.environ["SCALE_OF_A_TEST"]),
            lambda: os.environ.update(SCALE_OF_A_TEST="3"),
        ),
    ],
}
# These are of another form, and have tests of their own below.
OTHERS = {"a variable", "an attribute of an object among the arguments"}


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    monkeypatch.setattr(Object, "per_class", 1.0)
    for module in (SETTINGS, INNER):
        monkeypatch.setattr(module, "scale", 1.0, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(SETTINGS, "inner", INNER, raising=False)
    monkeypatch.setenv("SCALE_OF_A_TEST", "1")
    yield


def table() -> dict[str, dict[str, str]]:
    text = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
    lines = [line for line in text.partition("## The table")[2].splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    head = cells[0][1:]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in cells[2:]}


def test_the_page_has_these_rows_and_columns():
    assert table().keys() == ROWS.keys() | OTHERS
    assert all(tuple(row) == COLUMNS for row in table().values())


def calls(column: str, read: Callable[[], Any]) -> Callable[[], float]:
    """A function that gives what `read` gives, in the way of a column."""
    if column == SEEN_BY_LOSSES:
        one = rx.Variable(1.0)
        return lambda: float(rx.value_and_grad(lambda: one * read(), [one], compile=True)[0])
    if column == "`rx.function`":
        compiled = rx.function(lambda x: x * read())
        return lambda: float(compiled(jnp.float32(1)))
    strategy = rx.distribute.TPUStrategy()

    def run() -> float:
        result = strategy.run(lambda x: x * read(), (jnp.float32(1),))
        return float(strategy.experimental_local_results(result)[0])

    return run


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("what", ROWS)
def test_rows(what: str, column: str, as_it_was: None):
    is_seen = table()[what][column].startswith("seen")
    for index in range(len(ROWS[what]())):
        globals()["SCALE"] = 1.0
        row = ROWS[what]()[index]
        call = calls(column, row.read)
        assert call() == 1
        row.change()
        assert call() == (3 if is_seen else 1), f"the {index}. way to be {what!r}"


@pytest.mark.parametrize("column", COLUMNS)
def test_a_variable(column: str):
    assert table()["a variable"][column] == "seen"
    variable = rx.Variable(1.0)
    call = calls(column, lambda: variable)
    assert call() == 1
    variable.assign(3.0)
    assert call() == 3


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_an_attribute_of_an_object_among_the_arguments(column: str):
    is_seen = table()["an attribute of an object among the arguments"][column] == "seen"
    given = types.SimpleNamespace(scale=1.0)
    strategy = rx.distribute.TPUStrategy()
    compiled = rx.function(lambda x, held: x * held.scale)

    def call() -> float:
        if column == "`rx.function`":
            return float(compiled(jnp.float32(1), given))
        result = strategy.run(lambda x, held: x * held.scale, (jnp.float32(1), given))
        return float(strategy.experimental_local_results(result)[0])

    assert call() == 1
    given.scale = 3.0
    assert call() == (3 if is_seen else 1)
