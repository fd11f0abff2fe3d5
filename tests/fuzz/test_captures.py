"""What a function captures is changed between its calls, in every place where it can be.

`total()` reads all of these places. Compiled losses, `TPUStrategy.run` and the runs in a compiled
loop over a data set must see what plain Python sees. A plain `rx.function` keeps what it was traced
with, as `docs/captures.md` says, and is not asked.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.sources import Picker, Statement, check, load, run_ways, source_of
from tests.replicas import mirrored

LAW = "A compiled loss or run sees every change of what it captures."
COUNT = 20
STEPS = 4

TEMPLATE = """
import array, collections, dataclasses, functools, types
import jax.numpy as jnp
import numpy as np
import replicax as rx

A, B, C = jnp.float32(5), jnp.float32([6, 7]), np.float32([8, 9])

def weigh(*values):
    return sum(jnp.sum(value).astype(jnp.float32) * 10**place for place, value in enumerate(values))

def swap(items):
    items[0], items[-1] = items[-1], items[0]

#setup

def total():
    out = jnp.float32(0)
    #reads
    return out
"""


class Writer(Picker):
    """Writes one random program: places, reads of them, and changes before each step."""

    def __init__(self, random: np.random.Generator):
        super().__init__(random)
        self.statements: list[Statement] = []
        self._changes: list[Callable[[], str]] = []
        self._count = 0

    def write(self) -> list[Statement]:
        for _ in range(self.random.integers(1, 4)):
            self._place(self.pick(PLACES))
        for step in range(1, STEPS):
            for _ in range(self.random.integers(1, 3)):
                self.statements.append(Statement(f"step {step}", self.pick(self._changes)()))
        return self.statements

    def value(self) -> str:
        digit = int(self.random.integers(10))
        forms = [f"{digit}", f"{digit}.0", f"jnp.float32({digit})", "A", "B", "C", f"{digit > 4}"]
        forms += [f"jnp.float32([{digit}, 1])", f"np.float32([{digit}, 2])", f"np.float32({digit})"]
        return self.pick(forms)

    def _place(self, place: tuple[str, str, list[str]]) -> None:
        """Writes a place: how it is made, how it is read, and how it may be changed."""
        self._count += 1
        setup, read, changes = place
        self._add("setup", self._filled(setup))
        self._add("reads", f"out = out * 3 + weigh({self._filled(read)})")
        number = self._count
        self._changes += [lambda text=text: self._filled(text, number) for text in changes]

    def _add(self, section: str, text: str) -> None:
        self.statements.append(Statement(section, text))

    def _filled(self, text: str, number: int | None = None) -> str:
        text = text.strip("\n").replace("@@", "\0").replace("@", str(number or self._count))
        text = text.replace("\0", "@")
        while "$" in text:
            text = text.replace("$", self.value(), 1)
        return text


# How a place is made, how `total` reads it, and what changes it. `$` is a value, `@` its number,
# and `@@` an at sign.
PLACES: list[tuple[str, str, list[str]]] = [
    ("g@ = $", "g@", ["g@ = $"]),
    ("g@ = $, $", "*g@", ["g@ = $, $", "g@ = g@[::-1]"]),
    ("def make@(x, y): return lambda: weigh(x, y)\nf@ = make@($, $)", "f@()", ["f@ = make@($, $)"]),
    (
        """
def make@(x):
    def read(): return x
    def change(new):
        nonlocal x
        x = new
    return read, change
f@, set@ = make@($)""",
        "f@()",
        ["set@($)", "f@, set@ = make@($)"],
    ),
    (
        """
def make@(x):
    def outer():
        def inner(): return x
        return inner
    def change(new):
        nonlocal x
        x = new
    return outer, change
f@, set@ = make@($)""",
        "f@()()",
        ["set@($)"],
    ),
    (
        "def f@(x=$, y=$): return weigh(x, y)",
        "f@()",
        ["f@.__defaults__ = $, $", "def f@(x=$, y=$): return weigh(x, y)"],
    ),
    (
        "def f@(*, x=$): return x",
        "f@()",
        ["f@.__kwdefaults__['x'] = $", "f@.__kwdefaults__ = {'x': $}", "def f@(*, x=$): return x"],
    ),
    (
        "def make@(k): return lambda *, x=k: x\nf@ = make@($)",
        "f@()",
        ["f@ = make@($)", "f@.__kwdefaults__ = {'x': $}"],
    ),
    ("def f@(): return f@.x\nf@.x = $", "f@()", ["f@.x = $"]),
    ("def f@(v): return v * jnp.sum(f@.x)\nf@.x = $", "f@(2)", ["f@.x = $"]),
    ("def f@(): return 1\ndef h@(): return 2", "f@()", ["f@.__code__ = h@.__code__", "f@ = h@"]),
    (
        "l@ = [$, $]",
        "*l@",
        ["l@[0] = $", "l@.append($)", "l@.reverse()", "l@ = [$, $]", "swap(l@)"],
    ),
    (
        "d@ = {'b': $, 'a': $}",
        "*d@.values()",
        ["d@['a'] = $", "d@ = {'a': $, 'b': $}", "d@ = dict(reversed(d@.items()))", "d@['c'] = $"],
    ),
    (
        "n@ = {'a': [$, ($, {'b': $})]}",
        "n@['a'][0], n@['a'][1][0], n@['a'][1][1]['b']",
        ["n@['a'][0] = $", "n@['a'][1][1]['b'] = $", "n@['a'][1] = ($, {'b': $})"],
    ),
    (
        "T@ = collections.namedtuple('T@', 'x y')\nt@ = T@($, $)",
        "t@.x, t@.y",
        ["t@ = T@($, $)", "t@ = t@._replace(x=$)"],
    ),
    (
        "@@dataclasses.dataclass\nclass D@:\n    x: object\n    y: object\nd@ = D@($, $)",
        "d@.x, d@.y",
        ["d@.x = $", "d@ = D@($, $)", "d@.x, d@.y = d@.y, d@.x"],
    ),
    (
        "@@dataclasses.dataclass(frozen=True)\n"
        "class D@:\n    x: object\n    y: object\n"
        "d@ = D@($, $)",
        "d@.x, d@.y",
        ["d@ = dataclasses.replace(d@, x=$)", "d@ = D@($, $)"],
    ),
    (
        "class S@:\n    __slots__ = ('x', 'y')\ns@ = S@()\ns@.x, s@.y = $, $",
        "s@.x, s@.y",
        ["s@.x = $", "s@.x, s@.y = $, $"],
    ),
    (
        """
class M@:
    k = $
    def __init__(self, x): self.x = x
    def read(self): return weigh(self.x, self.k)
m@ = M@($)
f@ = m@.read""",
        "f@(), m@.read()",
        ["m@.x = $", "M@.k = $", "m@.k = $", "m@ = M@($)", "M@.read = lambda self: self.x"],
    ),
    (
        """
class O@:
    x = $
    def read(self): return self.x
o@ = O@()
class H@:
    read = o@.read
h@ = H@()""",
        "h@.read()",
        ["o@.x = $", "O@.x = $", "H@.read = lambda self: 4"],
    ),
    (
        """
x@ = $
class I@:
    def __getitem__(self, index): return x@
    def __add__(self, other): return jnp.sum(x@) + other
    def __len__(self): return 1 if hasattr(x@, 'shape') else 2
    def __iter__(self): return iter((x@, 1))
i@ = I@()""",
        "i@[0], i@ + 1, len(i@), *i@",
        ["x@ = $"],
    ),
    (
        """
class P@:
    k = $
    @@property
    def x(self): return self.k
    @@classmethod
    def y(cls): return cls.k
    @@staticmethod
    def z(): return P@.k
p@ = P@()""",
        "p@.x, p@.y(), p@.z()",
        ["P@.k = $", "p@.k = $"],
    ),
    (
        "def g@(x, y=1): return weigh(x, y)\np@ = functools.partial(g@, $, y=$)",
        "p@()",
        ["p@ = functools.partial(g@, $, y=$)", "p@ = functools.partial(p@, y=$)"],
    ),
    ("l@ = [$]\np@ = functools.partial(weigh, l@)", "*p@.args[0]", ["l@[0] = $", "l@.append($)"]),
    (
        """
pack@ = types.ModuleType('pack@')
pack@.sub = types.ModuleType('pack@.sub')
pack@.sub.X = $
pack@.Y = $""",
        "pack@.sub.X, pack@.Y",
        ["pack@.sub.X = $", "pack@.Y = $"],
    ),
    (
        """
shared@ = [$, $]
holder@ = types.SimpleNamespace(items=shared@, x=$)
def make@(items): return lambda: weigh(holder@.items[0], items[1], holder@.x, items[0])
f@ = make@(shared@)""",
        "f@()",
        ["shared@[0] = $", "swap(shared@)", "holder@.items = list(shared@)", "holder@.x = $"],
    ),
    ("q@ = collections.deque([$, $])", "*q@", ["q@.rotate()", "q@.append($)", "q@[0] = $"]),
    (
        "u@ = collections.UserDict(x=$)",
        "u@['x']",
        ["u@['x'] = $", "u@ = collections.UserDict(x=$)"],
    ),
    ("b@ = {1: $}\nv@ = b@.values()", "*v@", ["b@[1] = $", "b@[2] = $"]),
    ("g@ = $", "globals()['g' + '@']", ["g@ = $"]),
    ("a@ = np.float32([1, 2])", "a@", ["a@[0] = 7", "a@ += 1", "a@ = np.float32([3, 3])"]),
    ("b@ = bytearray(b'ab')", "b@[0]", ["b@[0] = 9", "b@[0] += 1"]),
    ("c@ = array.array('f', [1, 2])", "c@[0]", ["c@[0] = 9", "c@[0] += 1"]),
    ("e@ = {1, 2}", "*sorted(e@)", ["e@.add(7)", "e@.discard(1)", "e@ = {3}"]),
    (
        "k@ = frozenset({1})",
        "isinstance(next(iter(k@)), bool)",
        ["k@ = frozenset({True})", "k@ = frozenset({1})", "k@ = frozenset({1.0})"],
    ),
    ("v@ = rx.Variable(2.0)", "v@.read_value()", ["v@.assign(7.0)", "v@ = rx.Variable(4.0)"]),
    ("w@ = [rx.Variable(2.0), rx.Variable(3.0)]", "*(v * 1 for v in w@)", ["swap(w@)"]),
]


# ---------------------------------------------------------------------- ways to call it


def eagerly(module: Any, change: Callable[[int], None]) -> list[Any]:
    results = []
    for step in range(STEPS):
        change(step)
        results.append(np.asarray(module.total()))
    return results


def compiled_loss(module: Any, change: Callable[[int], None], again: bool) -> list[Any]:
    """The gradient by `w` is the total; a new loss at each step, or always the same."""
    w = rx.Variable(2.0)

    def loss() -> Any:
        return w * module.total()

    results = []
    for step in range(STEPS):
        change(step)
        if again:
            loss = functools.partial(lambda total: w * total(), module.total)
        value, (gradient,) = rx.value_and_grad(loss, [w], compile=True)
        np.testing.assert_allclose(value, 2 * gradient)
        results.append(np.asarray(gradient))
    return results


@functools.cache
def tpu() -> Any:
    resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    assignment = rx.tpu.experimental.DeviceAssignment.build(topology, num_replicas=1)
    return rx.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)


def tpu_run(module: Any, change: Callable[[int], None], again: bool) -> list[Any]:
    strategy, run = tpu(), module.total
    results = []
    for step in range(STEPS):
        change(step)
        if again:
            run = lambda: module.total() * 1  # noqa: E731
        (part,) = strategy.experimental_local_results(strategy.run(run))
        results.append(np.asarray(part))
    return results


def data_set_loop(module: Any, change: Callable[[int], None], again: bool) -> list[Any]:
    strategy, batches = mirrored(1), rx.data.Dataset.range(STEPS).batch(1)

    @rx.function
    def epoch(batches: Any) -> list[Any]:
        results = []
        run = lambda x: module.total() + 0 * x[0]  # noqa: E731
        for step, x in enumerate(batches):
            change(step)
            if again:
                run = lambda x: module.total() + 0 * x[0]  # noqa: E731
            results.append(strategy.run(run, args=(x,)))
        return results

    return [np.asarray(each) for each in epoch(strategy.experimental_distribute_dataset(batches))]


WAYS: dict[str, Callable[..., list[Any]]] = {
    "compile=True": functools.partial(compiled_loss, again=False),
    "compile=True, a new loss at each step": functools.partial(compiled_loss, again=True),
    "TPUStrategy.run": functools.partial(tpu_run, again=False),
    "TPUStrategy.run, a new function at each step": functools.partial(tpu_run, again=True),
    "a loop over a data set in rx.function": functools.partial(data_set_loop, again=False),
    "the same with a new function at each step": functools.partial(data_set_loop, again=True),
}


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    statements = Writer(random).write()
    chosen = random.choice(list(WAYS), 2, replace=False)

    def compare(statements: Sequence[Statement]) -> int:
        source = source_of(TEMPLATE, statements)

        def run(way: Callable[..., list[Any]]) -> list[Any]:
            module = load(source, {})

            def change(step: int) -> None:
                exec(_text(statements, step), vars(module))

            return way(module, change)

        ways = {"eagerly": eagerly, **{name: WAYS[name] for name in chosen}}
        return run_ways({name: functools.partial(run, way) for name, way in ways.items()})

    def show(statements: Sequence[Statement]) -> str:
        steps = [f"# step {step}\n{_text(statements, step)}total()" for step in range(STEPS)]
        return source_of(TEMPLATE, statements) + "\n".join(steps)

    with warnings.catch_warnings():  # what changes is compiled again; that is the point
        warnings.filterwarnings("ignore", "The loss .* was compiled .* times")
        return check(statements, compare, show)


def _text(statements: Sequence[Statement], step: int) -> str:
    return "".join(f"{each.text}\n" for each in statements if each.section == f"step {step}")


@pytest.mark.parametrize("seed", range(COUNT))
def test_captures(seed: int):
    assert program(seed) > 0
