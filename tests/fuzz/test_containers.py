"""Arguments, keyword arguments and results in containers of every kind, nested at random."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.fuzz.sources import Picker, Statement, check, load, run_ways, source_of
from tests.replicas import mirrored

LAW = "Containers go in and come out with their types, structure and order, eagerly and compiled."
COUNT = 30


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


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, left: Any, right: Any):
        self.left, self.right = left, right

    def tree_flatten(self) -> Any:
        return (self.right, self.left), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> "Registered":
        right, left = children
        return cls(left, right)

    def __repr__(self) -> str:
        return f"Registered({self.left!r}, {self.right!r})"


TEMPLATE = """
def values(tree):
    if isinstance(tree, dict):
        return [leaf for key in tree for leaf in values(tree[key])]
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in values(item)]
    if hasattr(tree, "left"):
        return values(tree.left) + values(tree.right)
    return [] if tree is None else [jnp.sum(tree)]

def fn(x, *args, **kwargs):
    out = [jnp.stack(values((x, args, kwargs)))]
    #results
    return out

def call(number):
    args, kwargs = [], {}
    #arguments
    return args, kwargs
"""


class Writer(Picker):
    """Writes one random program: arguments, and results that are made of them."""

    def write(self) -> list[Statement]:
        statements = []
        for _ in range(self.random.integers(0, 3)):
            statements.append(Statement("arguments", f"args.append({self.tree(self.leaf)})"))
        names = self.random.permutation(["height", "age", "weight"])
        for name in names[: self.random.integers(0, 4)]:
            text = f"kwargs[{str(name)!r}] = {self.tree(self.leaf)}"
            statements.append(Statement("arguments", text))
        for _ in range(self.random.integers(0, 3)):
            statements.append(Statement("results", f"out.append({self.tree(self.result)})"))
        echo = self.pick(["args", "kwargs", "args, kwargs", "values(kwargs)"])
        statements.append(Statement("results", f"out.append(({echo}))"))
        return statements

    def leaf(self) -> str:
        number = f"number + {self.random.integers(20)}"
        forms = [f"jnp.float32({number})", f"np.full(2, {number}, np.float32)", f"each({number})"]
        return self.pick([*forms, "None"])

    def result(self) -> str:
        return self.pick(["x", "x * 2", "jnp.sum(x)", "None", "jnp.arange(3)"])

    def tree(self, leaf: Any, depth: int = 0) -> str:
        if depth == 3 or self.random.random() < 0.25 * depth:
            return leaf()
        items = [self.tree(leaf, depth + 1) for _ in range(self.random.integers(0, 4))]
        keys: list[Any] = [str(key) for key in self.random.permutation(["b", "a", "d", "c"])]
        if self.random.random() < 0.2:
            keys[0] = 7  # does not sort
        pairs = ", ".join(f"{key!r}: {item}" for key, item in zip(keys, items))
        two = ", ".join(self.tree(leaf, depth + 1) for _ in range(2))
        forms = [f"[{', '.join(items)}]", f"({''.join(item + ', ' for item in items)})"]
        forms += [f"{{{pairs}}}"] * 3 + [f"OrderedDict({{{pairs}}})"]
        forms += [f"defaultdict(list, {{{pairs}}})", f"Pair({two})", f"Record({two})"]
        forms += [f"FrozenRecord({two})", f"Registered({two})"]
        return self.pick(forms)


NAMES = {
    "jnp": jnp,
    "np": np,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    **{kind.__name__: kind for kind in (Pair, Record, FrozenRecord, Registered)},
}


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    statements = Writer(random).write()
    replicas = int(random.choice([0, 1, 2]))  # 0: without a strategy

    def compare(statements: Sequence[Statement]) -> int:
        def run(wrap: Any, inside: Any = None) -> list[Any]:
            module = load(source_of(TEMPLATE, statements), {**NAMES, "each": _each(replicas)})
            call = _caller(replicas, inside(module.fn) if inside else module.fn, wrap)
            return [call(*module.call(number)) for number in (0, 100)]

        def plainly() -> list[Any]:
            module = load(source_of(TEMPLATE, statements), {**NAMES, "each": _each(replicas)})
            calls = [module.call(number) for number in (0, 100)]
            return [module.fn(jnp.ones(2), *args, **kwargs) for args, kwargs in calls]

        ways = {"in plain Python": plainly} if replicas < 2 else {}
        ways["eagerly"] = lambda: run(lambda fn: fn)
        ways["compiled"] = lambda: run(rx.function)
        if replicas:
            ways["replicas compiled"] = lambda: run(lambda fn: fn, rx.function)
        return run_ways(ways)

    where = f"# on {replicas} replicas" if replicas else "# without a strategy"
    return check(
        statements,
        compare,
        lambda each: f"{where}; call(0), call(100)\n{source_of(TEMPLATE, each)}",
    )


def _each(replicas: int) -> Any:
    """Returns what makes a value of each replica's own."""
    if replicas < 2:
        return jnp.float32
    return lambda value: rx.distribute.PerReplica([jnp.float32(value), jnp.float32(value + 1)])


def _caller(replicas: int, fn: Any, wrap: Any) -> Any:
    x = jnp.ones(2)
    if not replicas:
        compiled = wrap(fn)
        return lambda args, kwargs: compiled(x, *args, **kwargs)
    strategy = mirrored(replicas)
    step = wrap(lambda args, kwargs: strategy.run(fn, args=(x, *args), kwargs=kwargs))
    return lambda args, kwargs: step(tuple(args), kwargs)


@pytest.mark.parametrize("seed", range(COUNT))
def test_containers(seed: int):
    assert program(seed) > 0
