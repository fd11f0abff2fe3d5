"""Random programs of replicas: variables of every kind, collectives, control flow and losses.

Numbers are small whole ones, so that most sums are exact in any order. A program is *alike on any
replicas* if it says the same of a batch however its rows are shared out; only such statements are
then drawn. Where shares are uneven, `lax.cond` and `lax.scan` have no variables inside: such calls
run as Python, which refuses them.

Values are rows (row by row the same on any replicas), partial (their sum over the replicas is), or
common (the same number on every replica).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from tests.fuzz.sources import Picker, Statement, check, load, run_ways, source_of
from tests.replicas import mirrored, parts_of

TEMPLATE = """
#plain
with strategy.scope():
    pass
    #variables

def replica_fn(x):
    context = rx.get_replica_context()
    out = {}
    #replica
    return out

def step(x):
    out = strategy.run(compiled_replicas(replica_fn), args=(x,))
    results = {}
    #cross
    return out, results
"""
COLUMNS = 3


class Writer(Picker):
    """Writes one random program, statement by statement."""

    def __init__(self, random: np.random.Generator, alike: bool, even: bool):
        super().__init__(random)
        self.alike, self.even = alike, even
        self.statements: list[Statement] = []
        self.variables: dict[str, tuple[str, str, tuple[int, ...]]] = {}
        self.rows, self.partials, self.commons = (
            ["x"],
            ["jnp.sum(x)"],
            ["jnp.float32(1)", "jnp.float32(3)"],
        )
        self.out: dict[str, str] = {}
        self.has_loss = False
        self._names, self._may_meet = 0, True

    def write(self) -> list[Statement]:
        for _ in range(self.random.integers(1, 4)):
            self._variable()
        kinds = [self._name_rows, self._name_partial, self._name_common, self._output]
        kinds += [self._effect] * 3 + [self._branch, self._loop, self._merge, self._loss]
        for _ in range(self.random.integers(2, 7)):
            self.pick(kinds)()
        self._output()
        for _ in range(self.random.integers(1, 4)):
            self.pick([self._reduction, self._reading, self._assignment])()
        return self.statements

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names:02}"

    def _add(self, section: str, text: str) -> None:
        self.statements.append(Statement(section, text))

    # ---------------------------------------------------------------- expressions

    def row(self) -> str:
        name = self.pick(self.rows)
        other = self.pick([*self.rows, *self.commons, *self._readable()])
        forms = [f"{name} {self.pick('+-*')} {other}", f"jnp.abs({name})", f"{name}[:, ::-1]"]
        forms += [f"jnp.where({name} > {self.common()}, {name}, {other})", name]
        forms += [f"jax.nn.relu({name} - 2)", f"jnp.cumsum({name}, axis=-1)"]
        return self.pick(forms)

    def partial(self) -> str:
        """A number of this replica's own; alike on any replicas, their sum is the same."""
        forms = [*self.partials, f"jnp.sum({self.row()})"]
        if not self.alike:
            forms += ["jnp.float32(context.replica_id_in_sync_group)", self.common()]
            forms += [name for name, kind in self.variables.items() if kind[0] == "ON_READ"]
        return self.pick(forms)

    def common(self) -> str:
        forms = [*self.commons, *self._readable()]
        if self._may_meet and self.random.random() < 0.4:
            value = self.pick([self.partial(), f"jnp.sum({self.pick(self.rows)}, axis=0)"])
            forms = [f"context.all_reduce('SUM', {value}) % 16"]
            forms.append(f"jnp.max(context.all_gather({self.pick(self.rows)}, axis=0), initial=0)")
        return self.pick(forms)

    def _readable(self) -> list[str]:
        """Variables that have one value on all replicas."""
        return [name for name, kind in self.variables.items() if kind[0] == "ON_WRITE"]

    # ---------------------------------------------------------------- statements

    def _variable(self) -> None:
        synchronization = self.pick(["ON_WRITE", "ON_READ"])
        aggregations = ["SUM", "MEAN", "ONLY_FIRST_REPLICA"]
        if synchronization == "ON_WRITE" or not self.alike:
            aggregations.append("NONE")
        aggregation, shape = self.pick(aggregations), self.pick([(), (COLUMNS,)])
        name, start = self._name("v"), int(self.random.integers(4))
        if self.alike and (synchronization, aggregation) == ("ON_READ", "SUM"):
            start = 0  # every copy starts with it, and all count
        self.variables[name] = (synchronization, aggregation, shape)
        self._add(
            "variables",
            f"{name} = rx.Variable(jnp.full({shape}, {start}.0), name='{name}',\n"
            f"    synchronization=rx.VariableSynchronization.{synchronization},\n"
            f"    aggregation=rx.VariableAggregation.{aggregation})",
        )
        if not self.alike and self.random.random() < 0.2:
            plain = self._name("plain")
            self._add("plain", f"{plain} = rx.Variable({int(self.random.integers(4))}.0)")
            self._add("replica", f"{plain}.assign_add(jnp.sum({self.partial()}))")

    def _name_rows(self) -> None:
        name = self._name("r")
        self._add("replica", f"{name} = ({self.row()}) % 8")
        self.rows.append(name)

    def _name_partial(self) -> None:
        name = self._name("p")
        self._add("replica", f"{name} = {self.partial()}")
        self.partials.append(f"jnp.sum({name})")

    def _name_common(self) -> None:
        name = self._name("c")
        self._add("replica", f"{name} = ({self.common()}) % 16")
        self.commons.append(name)

    def _output(self) -> None:
        kind = self.pick(["rows", "partial", "common"])
        value = {"rows": self.row, "partial": self.partial, "common": self.common}[kind]()
        name = self._name("a")
        self.out[name] = kind
        self._add("replica", f"out['{name}'] = ({value}) * 1")

    def _change(self, only: Callable[[str], bool] = lambda synchronization: True) -> str | None:
        """An assignment that replicas may make, to one of the variables."""
        able = [
            name
            for name, (synchronization, aggregation, _) in self.variables.items()
            if only(synchronization) and (synchronization, aggregation) != ("ON_WRITE", "NONE")
        ]
        if not able:
            return None
        name = self.pick(able)
        _, aggregation, shape = self.variables[name]
        method = self.pick(["assign", "assign_add", "assign_sub"])
        if self.alike and aggregation != "SUM":
            value = f"({self.common()}) % 8"
        else:
            value = self.partial()
        value = f"jnp.zeros({COLUMNS}) + {value}" if shape else f"jnp.sum({value})"
        return f"{name}.{method}({value})"

    def _own_change(self) -> str | None:
        """An assignment that some replicas may make and others not."""
        self._may_meet = False
        change = self._change(lambda synchronization: synchronization == "ON_READ")
        self._may_meet = True
        return change

    def _effect(self) -> None:
        if change := self._change():
            self._add("replica", change)

    def _branch(self) -> None:
        name = self._name("b")
        # Replicas that meet in a branch must take it together.
        together = self.alike or self.random.random() < 0.5
        condition = f"jnp.sum({self.common() if together else self.partial()}) > 3"
        own = self._change() if together else self._own_change()
        change = f"    {own}\n" if own and self.even and self.random.random() < 0.6 else ""
        self._add(
            "replica",
            f"def {name}_taken():\n{change}    return jnp.sum(x) * 2\n"
            f"{name} = cond({condition}, {name}_taken, lambda: jnp.sum(x))",
        )
        self.partials.append(name)

    def _loop(self) -> None:
        name = self._name("l")
        own = None if self.alike else self._own_change()
        change = f"    {own}\n" if own and self.even and self.random.random() < 0.6 else ""
        self._add(
            "replica",
            f"def {name}_body(carry, item):\n{change}"
            f"    return carry + jnp.sum(item), item * 2\n"
            f"{name}, {name}_rows = scan({name}_body, jnp.float32(0), {self.pick(self.rows)})",
        )
        self.partials.append(name)
        self.rows.append(f"{name}_rows")

    def _merge(self) -> None:
        name = self._name("m")
        changes = [
            f"    strategy.extended.update({variable}, lambda v, u: v.{method}(v * 0 + u), "
            "args=(total,))\n"
            for variable, kind in self.variables.items()
            if kind[0] == "ON_WRITE"
            for method in ("assign", "assign_add")
        ]
        change = self.pick(["", *changes])
        op = "SUM" if self.alike else self.pick(["SUM", "MEAN"])
        self._add(
            "replica",
            f"def {name}_merge(strategy, value):\n"
            f"    total = strategy.extended.reduce_to('{op}', value, destinations=value)\n"
            f"{change}    return total\n"
            f"{name} = context.merge_call({name}_merge, args=(jnp.sum({self.partial()}),)) % 16",
        )
        self.commons.append(name)

    def _loss(self) -> None:
        names = self._readable()
        if not names:
            return
        self.has_loss = True
        variable, name = self.pick(names), self._name("g")
        lines, factors = [], [*names, *self.commons, "x"]
        if self.random.random() < 0.4:
            own = [each for each, kind in self.variables.items() if kind[0] == "ON_READ"]
            if own and not self.alike:
                between = self.pick(own)
                lines.append(f"{between}.assign({between} * 0 + jnp.sum({variable}) * 2)")
                factors = [between]
        factor = self.pick(factors)
        lines.append(f"return jnp.sum({self.pick(self.rows)} * {variable} * {factor})")
        body = "\n    ".join(lines)
        self._add(
            "replica",
            f"def {name}_loss():\n    {body}\n"
            f"{name}, ({name}_d,) = "
            f"rx.value_and_grad({name}_loss, [{variable}], compile=compiled_losses)",
        )
        self.partials += [name, f"jnp.sum({name}_d)"]
        self.out[seen := self._name("a")] = "partial"
        self._add("replica", f"out['{seen}'] = {name} + jnp.sum({name}_d) * 100")

    # ---------------------------------------------------------------- around the run

    def _reduction(self) -> None:
        if not self.out:
            return
        name, kind = self.pick(list(self.out.items()))
        forms = {
            "rows": [
                "reduce('SUM', {}, axis=0)",
                "reduce('MEAN', {}, axis=0)",
                "gather({}, axis=0)",
            ],
            "partial": ["reduce('SUM', {}, axis=None)"],
            "common": ["reduce('MEAN', {}, axis=None)"],
        }[kind]
        if not self.alike and kind != "common":
            forms = [*forms, "reduce('MEAN', {}, axis=None)"] if self.even else forms
        form = self.pick(forms).format(f"out['{name}']")
        self._add("cross", f"results['{self._name('c')}'] = strategy.{form}")

    def _reading(self) -> None:
        able = [name for name, kind in self.variables.items() if kind[:2] != ("ON_READ", "NONE")]
        if able:
            self._add("cross", f"results['{self._name('c')}'] = {self.pick(able)}.read_value() * 1")

    def _assignment(self) -> None:
        if able := self._readable():
            name, method = self.pick(able), self.pick(["assign", "assign_add"])
            self._add("cross", f"{name}.{method}({name} * 0 + {self.random.integers(4)})")


class Batch(NamedTuple):
    """The rows of one step, and how many of them each replica gets."""

    rows: np.ndarray
    shares: Sequence[int]

    @classmethod
    def draw(cls, random: np.random.Generator, shares: Sequence[int]) -> "Batch":
        return cls(random.integers(0, 5, (sum(shares), COLUMNS)).astype(np.float32), shares)

    def for_one(self) -> "Batch":
        return Batch(self.rows, [len(self.rows)])


def check_ways(statements: Sequence[Statement], batches: Sequence[Batch], ways: Any) -> int:
    """Compares the ways of running a program, the first of them being the reference."""

    def compare(statements: Sequence[Statement]) -> int:
        return run_ways(
            {name: Run(statements, **{"batches": batches, **how}) for name, how in ways.items()}
        )

    return check(statements, compare, lambda each: source_with(each, batches))


def source_with(statements: Sequence[Statement], batches: Sequence[Batch]) -> str:
    """Returns a program as text, and after it what it is given."""
    calls = [
        f"# step, with {list(batch.shares)} rows for the replicas:\n# {batch.rows.tolist()}"
        for batch in batches
    ]
    return "\n".join([source_of(TEMPLATE, statements), *calls])


def python_cond(condition: Any, taken: Any, not_taken: Any) -> Any:
    return taken() if condition else not_taken()


def python_scan(body: Any, carry: Any, items: Any) -> Any:
    results = []
    for item in items:
        carry, result = body(carry, item)
        results.append(result)
    return carry, jnp.stack(results) if results else items


def as_is(fn: Any) -> Any:
    return fn


@functools.cache
def strategy_of(replicas: int) -> Any:
    return mirrored(replicas)


class Run:
    """One way to run a program on batches; calling it returns what is to be compared."""

    def __init__(
        self,
        statements: Sequence[Statement],
        batches: Sequence[Batch],
        *,
        step: Any = as_is,
        replica: Any = as_is,
        losses: bool = False,
        own: bool = True,
    ):
        self._source = source_of(TEMPLATE, statements)
        self._batches = batches
        self._step, self._own = step, own
        eager = step is as_is and replica is as_is
        self._names = {
            "rx": rx,
            "jax": jax,
            "jnp": jnp,
            "np": np,
            "cond": python_cond if eager else jax.lax.cond,
            "scan": python_scan if eager else jax.lax.scan,
            "compiled_losses": losses,
            "compiled_replicas": functools.cache(replica),
        }

    def __call__(self) -> Any:
        replicas = len(self._batches[0].shares)
        strategy = strategy_of(replicas)
        module = load(self._source, {**self._names, "strategy": strategy})
        step = self._step(module.step)
        seen = []
        for batch in self._batches:
            out, results = step(_shared_out(strategy, batch))
            seen.append(_parts(strategy, out) if self._own else None)
            seen.append({name: np.asarray(value) for name, value in results.items()})
        return seen, self._state(module)

    def _state(self, module: Any) -> Any:
        state = {}
        for name, value in vars(module).items():
            if not isinstance(value, rx.Variable):
                continue
            if self._own and hasattr(value, "values"):
                state[name] = [np.asarray(copy.read_value()) for copy in value.values]
            elif not hasattr(value, "values") or value.aggregation.name != "NONE":
                state[name] = value.numpy()
        return state


def _shared_out(strategy: Any, batch: Batch) -> Any:
    if len(batch.shares) == 1:
        return jnp.asarray(batch.rows)
    parts = np.split(batch.rows, np.cumsum(batch.shares)[:-1])
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )


def _parts(strategy: Any, out: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    return {name: parts_of(strategy, value) for name, value in out.items()}
