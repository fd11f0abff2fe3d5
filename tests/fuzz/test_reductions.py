"""Random programs of many small reductions, beside `jax.vmap` with plain JAX's collectives."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.fuzz.replica_programs import python_cond
from tests.fuzz.sources import Picker, Statement, check, load, run_ways, source_of
from tests.replicas import mirrored, parts_of

LAW = "Reductions give what plain JAX gives, whichever of them the compiler of a step joins."
COUNT = 5

TEMPLATE = """
def replica_fn(x):
    x00, x01, x02, x03 = x
    out = {}
    #replica
    return out

def step(x):
    out = run(replica_fn, x)
    results = {}
    #cross
    return out, results
"""
DTYPES = ["float32", "float32", "float32", "int32", "bfloat16", "float16", "int8", "uint8"]
DTYPES += ["complex64"]
SHAPES = [(), (), (3,), (2, 3), (1,), (40, 3)]
BOTH = ["SUM", "MEAN"]


class Writer(Picker):
    """Writes one random program. Numbers stay small, so that short floats hold their sums."""

    def __init__(self, random: np.random.Generator):
        super().__init__(random)
        self.looks = [(self.pick(DTYPES), self.pick(SHAPES)) for _ in range(4)]
        self._values = {f"x{index:02}": dtype for index, (dtype, _) in enumerate(self.looks)}
        self._out: list[str] = []
        self._results: list[str] = []
        self._names = 3
        self.has_loss = False
        self._statements: list[Statement] = []

    def write(self) -> list[Statement]:
        kinds = [self._sum_of_several] * 2 + [self._reduction] * 4 + [self._value] * 2
        kinds += [self._pack, self._branch, self._loop, self._loss, self._output, self._output]
        for _ in range(self.random.integers(3, 12)):
            self.pick(kinds)()
        self._output()
        for _ in range(self.random.integers(1, 8)):
            self.pick([self._across, self._across, self._again])()
        return self._statements

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names:02}"

    def _add(self, text: str, section: str = "replica") -> None:
        self._statements.append(Statement(section, text))

    def _named(self, prefix: str, text: str, dtype: str) -> None:
        name = self._name(prefix)
        self._add(f"{name} = small({text})")
        self._values[name] = dtype

    def _one(self) -> tuple[str, str]:
        return self.pick(list(self._values.items()))

    def _op_for(self, dtype: str) -> str:
        return "SUM" if "int" in dtype else self.pick(BOTH)

    def _real(self) -> str:
        """A float of this replica."""
        return f"jnp.real(jnp.sum({self._one()[0]})).astype('float32')"

    def _value(self) -> None:
        (name, dtype), (other, _) = self._one(), self._one()
        forms = [f"{name} + {name}", f"{name} * 2", f"{name}[None]", f"jnp.sum({name})"]
        forms += [f"{name} * as_type(jnp.sum({other}), '{dtype}')", f"jnp.ravel({name})"]
        forms += [f"jnp.ravel({name})[:0]"]  # arguments without items would be left to Python
        self._named("v", f"as_type({self.pick(forms)}, '{dtype}')", dtype)

    def _reduction(self) -> None:
        name, dtype = self._one()
        self._named("r", f"all_reduce('{self._op_for(dtype)}', {name})", dtype)

    def _sum_of_several(self) -> None:
        given = [self._one() for _ in range(self.random.integers(2, 12))]
        op = "SUM" if any("int" in dtype for _, dtype in given) else self.pick(BOTH)
        names = [self._name("r") for _ in given]
        self._add(
            f"{', '.join(names)} = map(small, all_reduce('{op}', "
            f"[{', '.join(name for name, _ in given)}]))"
        )
        self._values |= {name: dtype for name, (_, dtype) in zip(names, given, strict=True)}

    def _pack(self) -> None:
        """A pack of the program's own, which it may also return."""
        name, dtype = self._one()
        alike = [each for each, kind in self._values.items() if kind == dtype]
        parts = [name, *(self.pick(alike) for _ in range(self.random.integers(1, 4)))]
        self._named("k", f"jnp.concatenate([{', '.join(f'jnp.ravel({p})' for p in parts)}])", dtype)
        pack = list(self._values)[-1]
        self._named("r", f"all_reduce('{self._op_for(dtype)}', {pack})", dtype)

    def _branch(self) -> None:
        (name, dtype), name_of = self._one(), self._name("b")
        meets = f"all_reduce('{self._op_for(dtype)}', {name})"
        self._add(
            f"{name_of} = cond(all_reduce('SUM', {self._real()}) > {self._names % 5},\n"
            f"    lambda: small({self.pick([meets, name])}), lambda: small({meets} * 2))"
        )
        self._values[name_of] = dtype

    def _loop(self) -> None:
        (name, dtype), (other, kind), name_of = self._one(), self._one(), self._name("l")
        self._add(
            f"def {name_of}_body(_, carry):\n"
            f"    one, two = carry\n"
            f"    one = small(all_reduce('{self._op_for(dtype)}', one))\n"
            f"    return one, small(two + all_reduce('{self._op_for(kind)}', two))\n"
            f"{name_of}, {name_of}_2 = loop(0, 3, {name_of}_body, ({name}, {other}))"
        )
        self._values |= {name_of: dtype, f"{name_of}_2": kind}

    def _loss(self) -> None:
        floats = [name for name, dtype in self._values.items() if "float" in dtype]
        if not floats:
            return
        self.has_loss = True
        name, name_of, op = self.pick(floats), self._name("g"), self.pick(BOTH)
        self._add(
            f"def {name_of}_loss(value):\n"
            f"    total = all_reduce('{op}', jnp.sum(value * {name}))\n"
            f"    return (total * jnp.sum(value)).astype('float32')\n"
            f"{name_of}, {name_of}_d = jax.value_and_grad({name_of}_loss)({name})\n"
            f"{name_of}, {name_of}_d = small({name_of}), small({name_of}_d)"
        )
        self._values |= {name_of: "float32", f"{name_of}_d": self._values[name]}

    def _output(self) -> None:
        name = self._name("a")
        self._out.append(name)
        of, self._values[name] = self._one()
        self._add(f"{name} = out['{name}'] = {of} * 1")

    def _across(self) -> None:
        of, name = self.pick(self._out), self._name("c")
        self._results.append(name)
        op = self._op_for(self._values[of])
        self._add(f"results['{name}'] = small(reduce('{op}', out['{of}']))", "cross")

    def _again(self) -> None:
        if not self._results:
            return
        of, total, name = self.pick(self._out), self.pick(self._results), self._name("a")
        self._values[name] = self._values[of]
        self._add(
            f"out['{name}'] = run(lambda x: small(x * as_type(jnp.sum(results['{total}']), "
            f"'{self._values[of]}')), out['{of}'])",
            "cross",
        )
        self._out.append(name)


def small(value: Any) -> Any:
    value = jnp.asarray(value)
    if jnp.iscomplexobj(value):
        return value / (1 + abs(value))
    return jnp.clip(value, 0 if value.dtype.name.startswith("u") else -3, 3)


def as_type(value: Any, dtype: str) -> Any:
    value = jnp.asarray(value)
    if jnp.iscomplexobj(value) and not dtype.startswith("complex"):
        value = jnp.real(value)
    return jnp.clip(value, 0, 3).astype(dtype) if dtype.startswith("u") else value.astype(dtype)


class WithVmap:
    """The replicas are an axis of `jax.vmap`."""

    def __init__(self, replicas: int):
        self._replicas = replicas
        self.names = {"run": self._run, "reduce": self._reduce, "all_reduce": self._all_reduce}

    def _run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return jax.vmap(fn, axis_name="replicas", axis_size=self._replicas)(*args)

    def _reduce(self, op: str, value: Any) -> Any:
        total = jnp.sum(value, 0, value.dtype)
        return total if op == "SUM" else total / self._replicas

    def _all_reduce(self, op: str, value: Any) -> Any:
        together = jax.lax.psum if op == "SUM" else jax.lax.pmean
        # A value that is the same everywhere would not be summed, but multiplied.
        return jax.tree.map(lambda x: together(x + self._zero(x.dtype), "replicas"), value)

    def _zero(self, dtype: Any) -> Any:
        return (jax.lax.axis_index("replicas") * 0).astype(dtype)

    def __call__(self, step: Any, values: list[list[np.ndarray]]) -> Any:
        out, results = step([jnp.stack(each) for each in values])
        return {name: list(np.asarray(each)) for name, each in out.items()}, _on_host(results)


class WithReplicas:
    """The replicas are those of a strategy."""

    def __init__(self, replicas: int, compiled: bool):
        self._strategy = mirrored(replicas)
        self._compiled = compiled
        self.names = {
            "run": lambda fn, *args: self._strategy.run(fn, args=args),
            "reduce": lambda op, value: self._strategy.reduce(op, value, axis=None),
            "all_reduce": _all_reduce,
        }
        if not compiled:
            self.names |= {"cond": python_cond, "loop": _python_loop}

    def __call__(self, step: Any, values: list[list[np.ndarray]]) -> Any:
        given = [rx.distribute.PerReplica([jnp.asarray(x) for x in each]) for each in values]
        called: Any = rx.function(step) if self._compiled else step
        out, results = called(given)
        parts = {name: parts_of(self._strategy, each) for name, each in out.items()}
        return {name: list(map(np.asarray, each)) for name, each in parts.items()}, _on_host(
            results
        )


def _python_loop(start: int, end: int, body: Callable[..., Any], carry: Any) -> Any:
    for index in range(start, end):
        carry = body(index, carry)
    return carry


def _all_reduce(op: str, value: Any) -> Any:
    context: Any = rx.get_replica_context()
    return context.all_reduce(op, value)


def _on_host(results: Mapping[str, Any]) -> Any:
    return {name: np.asarray(value) for name, value in results.items()}


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    replicas = int(random.choice([2, 2, 3, 4, 8]))
    writer = Writer(random)
    statements = writer.write()
    values = [
        [np.asarray(random.integers(0, 4, shape)).astype(jnp.dtype(dtype)) for _ in range(replicas)]
        for dtype, shape in writer.looks
    ]
    ways: dict[str, Any] = {
        "plain JAX": WithVmap(replicas),
        "in rx.function": WithReplicas(replicas, compiled=True),
    }
    if not writer.has_loss:  # of JAX, which traces it: eager replicas cannot meet there
        ways["eagerly"] = WithReplicas(replicas, compiled=False)

    def run(way: Any, source: str) -> Any:
        names = {"cond": jax.lax.cond, "loop": jax.lax.fori_loop, **way.names}
        names |= {"jax": jax, "jnp": jnp, "small": small, "as_type": as_type}
        return way(load(source, names).step, values)

    def compare(statements: Sequence[Statement]) -> int:
        source = source_of(TEMPLATE, statements)
        return run_ways({name: lambda way=way: run(way, source) for name, way in ways.items()})

    def show(statements: Sequence[Statement]) -> str:
        return f"{source_of(TEMPLATE, statements)}\n# {replicas} replicas\n# {writer.looks}"

    return check(statements, compare, show)


@pytest.mark.parametrize("seed", range(COUNT))
def test_reductions(seed: int):
    assert program(seed) > 0
