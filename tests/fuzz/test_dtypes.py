"""Values of every dtype, strong and weak, empty and without dimensions, in every place.

Arguments, per-replica values, captured values and variables meet each other and Python's numbers.
What comes out has the same value, dtype and weak type in every way to run the program.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.sources import Picker, Statement, check, load, run_ways, source_of
from tests.replicas import mirrored

LAW = "Results have the same value, dtype and weak type eagerly and compiled."
COUNT = 20

TEMPLATE = """
import jax
import jax.numpy as jnp
import numpy as np
import replicax as rx

with strategy.scope():
    w = rx.Variable(2.0)
    #variables
#captured

def fn(given):
    out = {}
    #results
    return out

def arguments():
    given = {}
    #arguments
    return given
"""

DTYPES = ["float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool", "complex64"]
SHAPES = ["()", "(2,)", "(0,)", "(1, 2)", "(2, 0)"]


class Writer(Picker):
    """Writes one random program: values in their places, and results that combine them."""

    def __init__(self, random: np.random.Generator):
        super().__init__(random)
        self.names: list[str] = []
        self.statements: list[Statement] = []

    def write(self) -> list[Statement]:
        for number in range(self.random.integers(1, 4)):
            place = self.pick(["arguments", "captured", "captured", "variables"])
            self._value(place, number)
        for number in range(self.random.integers(1, 4)):
            text = f"out['r{number}'] = {self.result()}"
            self.statements.append(Statement("results", text))
        return self.statements

    def _value(self, place: str, number: int) -> None:
        if place == "arguments":
            name, text = f"given['a{number}']", self.pick([self.array, self.each])()
        elif place == "captured":
            name = f"c{number}"
            text = self.captured()
            if self.random.random() < 0.5:
                self.statements.append(Statement("changes", f"{name} = {self.captured()}"))
        else:
            name, text = f"v{number}", f"rx.Variable({self.strong()})"
        self.names.append(name)
        self.statements.append(Statement(place, f"{name} = {text}"))

    def captured(self) -> str:
        return self.pick([self.array, self.wide, lambda: self.pick(["3", "1.5", "True", "2j"])])()

    def strong(self) -> str:
        dtype, shape = self.pick(DTYPES), self.pick(SHAPES)
        return f"jnp.full({shape}, {self.random.integers(1, 4)}, '{dtype}')"

    def weak(self) -> str:
        return f"jnp.asarray({self.pick(['1.5', '2', '1j'])})"

    def array(self) -> str:
        dtype = self.pick([each for each in DTYPES if each != "bfloat16"])
        numpy = f"np.full({self.pick(SHAPES)}, {self.random.integers(1, 4)}, '{dtype}')"
        return self.pick([self.strong(), self.strong(), self.weak(), numpy])

    def each(self) -> str:
        """A value of each replica's own."""
        text = self.pick([self.strong, self.weak])()
        return f"each({text})"

    def wide(self) -> str:
        """What NumPy has and JAX does not, unless it is asked for 64 bits."""
        forms = ["np.float64(100000001)", "np.full(2, 2**40 + 1)", "np.full(2, 100000001.0)"]
        return self.pick([*forms, "np.int64(2**40 + 1)"])

    def result(self) -> str:
        name, other = self.pick(self.names), self.pick([*self.names, "2", "1.5", "True"])
        forms = [f"jnp.multiply({name}, {other})", f"jnp.add({other}, {name})"]
        forms += [f"jnp.stack([{name}])", f"jnp.sum(jnp.asarray({name}))"]
        forms += [f"jnp.where(True, {name}, {other})", f"jnp.concatenate([jnp.ravel({name})] * 2)"]
        forms += [f"jnp.maximum(jnp.asarray({name}), 0)", f"jnp.asarray({name}) * {other}"]
        if name.startswith("c"):  # NumPy's own arithmetic, in 64 bits
            forms += [f"jnp.asarray({name}.sum() - 100000000)", f"jnp.asarray({name} % 1000)"]
            forms.append(f"jnp.asarray({name}, jnp.int32)")
        return self.pick(forms)


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    replicas = int(random.choice([1, 1, 2]))
    statements = _that_run(Writer(random).write(), replicas)
    ways: dict[str, Any] = {"eagerly": _eager_step, "compiled": _compiled_step}
    if replicas == 1:
        ways = {"in plain Python": _plain_call, **ways, "in a compiled loss": _compiled_loss}

    def compare(statements: Sequence[Statement]) -> int:
        return run_ways(
            {name: lambda way=way: _twice(way, statements, replicas) for name, way in ways.items()}
        )

    def show(statements: Sequence[Statement]) -> str:
        changes = _changes(statements)
        return f"# on {replicas} replicas\n{source_of(TEMPLATE, statements)}# call\n{changes}# call"

    return check(statements, compare, show)


def _twice(way: Any, statements: Sequence[Statement], replicas: int) -> list[Any]:
    """Calls before and after captured values have changed."""
    module = _loaded(statements, replicas)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy: overflow in a cast
        first = way(module)
        exec(_changes(statements), vars(module))
        return [first, way(module)]


def _changes(statements: Sequence[Statement]) -> str:
    return "".join(f"{each.text}\n" for each in statements if each.section == "changes")


def _that_run(statements: Sequence[Statement], replicas: int) -> list[Statement]:
    """Leaves out results of dtypes and shapes that JAX does not combine."""
    kept = [each for each in statements if each.section != "results"]
    for statement in statements:
        if statement.section == "results":
            try:
                _twice(_eager_step, [*kept, statement], replicas)
            except (AttributeError, OverflowError, RuntimeWarning, TypeError, ValueError):
                continue
            kept.append(statement)
    return kept


def _loaded(statements: Sequence[Statement], replicas: int) -> Any:
    strategy = mirrored(replicas)
    return load(source_of(TEMPLATE, statements), {"strategy": strategy, "each": _each(replicas)})


def _each(replicas: int) -> Any:
    """Returns what makes a value of each replica's own."""
    if replicas == 1:
        return lambda value: value
    return lambda value: rx.distribute.PerReplica([value, value + value])


def _plain_call(module: Any) -> Any:
    return module.fn(module.arguments())


def _eager_step(module: Any) -> Any:
    return module.strategy.run(module.fn, args=(module.arguments(),))


def _compiled_step(module: Any) -> Any:
    @rx.function
    def step(given: Any) -> Any:
        return module.strategy.run(module.fn, args=(given,))

    return step(module.arguments())


def _compiled_loss(module: Any) -> Any:
    w, fn, given = module.w, module.fn, module.arguments()

    def loss() -> Any:
        return w * 1, fn(given)

    return rx.value_and_grad(loss, [w], has_aux=True, compile=True)[0][1]


@pytest.mark.parametrize("seed", range(COUNT))
def test_dtypes(seed: int):
    assert program(seed) > 0
