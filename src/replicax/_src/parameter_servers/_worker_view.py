"""How a worker sees the variables on the servers, in the course of one function.

What a function reads is read from each server in one call: the variables that it read the last
time. It sees them as they were then, with its own changes. These go to the servers when the
function ends, and at each `apply_gradients`: with what is read next, in the same call, and at the
latest when the functions have ended that the worker was given together.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import DTypeLike
from replicax._src.parameter_servers._messages import (
    Assignment,
    Exchange,
    Gradient,
    Key,
    Pulled,
    Push,
    RowChange,
    Update,
)
from replicax._src.parameter_servers._servers import Servers
from replicax._src.parameter_servers._variable import ServerVariable, Spec, loaded
from replicax._src.strategies import Strategy
from replicax._src.values import OneBuffer, Storage
from replicax._src.variable import (
    Change,
    Scatter,
    Variable,
    outside_of_everything,
    own_storage,
    set_storage,
)


@final
class Mailbox:
    """A local variable in which a program leaves what is to be sent."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike):
        with outside_of_everything():
            self.variable = Variable(jnp.zeros(shape, dtype), trainable=False)
        self._taken = own_storage(self.variable).assembled

    @property
    def is_full(self) -> bool:
        """Whether something was written that was not taken."""
        return own_storage(self.variable).assembled is not self._taken

    def take(self) -> np.ndarray:
        """Returns what was written. The value stays."""
        self._taken = own_storage(self.variable).assembled
        return np.asarray(self._taken)

    def contents(self) -> np.ndarray:
        """Returns a copy of what was written."""
        return np.array(own_storage(self.variable).assembled)

    def empty_if_full(self) -> None:
        """Makes the value zero, if something was written."""
        if self.is_full:
            self._taken = jnp.asarray(np.zeros(self.variable.shape, self.variable.dtype))
            set_storage(self.variable, OneBuffer(self._taken))


@final
class Mailboxes:
    """What programs leave of one variable."""

    def __init__(self, spec: Spec):
        self.added = Mailbox(spec.shape, spec.dtype)
        self.assigned = Mailbox((), jnp.int32)

    def empty(self) -> None:
        """Forgets what programs have left."""
        self.assigned.take()
        self.added.empty_if_full()


@final
class Wanted(NamedTuple):
    """Rows that were looked up, and are read with whatever is read next.

    Attributes:
      parts: the variables that have them, and their numbers.
      take: is given them, in this order.
    """

    parts: Sequence[tuple[ServerVariable, np.ndarray]]
    take: Callable[[list[np.ndarray]], None]


@final
class _Unsent(NamedTuple):
    """The changes of a function that wait for the next call of the servers.

    Attributes:
      token: of the function.
      pushes: by server.
      updated: the servers that make an update.
      ages: what the servers say, how old the values were.
    """

    token: str
    pushes: dict[int, Push]
    updated: list[int]
    ages: dict[int, int]


@final
class Habits:
    """What a function usually reads.

    Attributes:
      read: the variables that it read before.
      passed: those that are in its arguments.
    """

    def __init__(self) -> None:
        self.read: set[Key] = set()
        self.passed: set[Key] = set()

    def begin(self, passed: set[Key]) -> None:
        """Begins a call: variables of other arguments are not read, and may be gone."""
        self.read -= self.passed - passed
        self.passed = passed


@final
class WorkerView:
    """The variables of one strategy on this worker.

    Attributes:
      named: the variables that references have led to.
    """

    def __init__(self, strategy: Strategy, servers: Servers):
        self.strategy = strategy
        self.holder = None  # checkpoints are the coordinator's
        self.ages: dict[str, list[int]] = {}  # of updates, by the function's token
        self._servers = servers
        self._variables: dict[Key, ServerVariable] = {}
        self._cached: dict[Key, tuple[int, Any]] = {}  # versions and arrays
        self._here: dict[Key, ServerVariable] = {}  # those with a value in this step
        self._mail: dict[Key, Mailboxes] = {}
        self._usual: set[Key] = set()
        self.named: set[Key] = set()
        self._token = ""
        self.pushes = 0
        self._read_at: dict[int, int] = {}
        self._changes: dict[int, list[Assignment | RowChange]] = defaultdict(list)
        self._gradients: dict[int, dict[str, list[Gradient]]] = {}
        self._waiting: list[Wanted] = []
        self._unsent: list[_Unsent] = []

    # ------------------------------------------------------------------ a function's life

    def begin(self, token: str, usual: set[Key]) -> None:
        """Begins a function: `usual` has the variables that it read before, and gets new ones."""
        self._token = token
        self._usual = usual
        self.pushes = 0
        self.ages[token] = []
        for mail in self._mail.values():  # of a function that has failed
            mail.empty()
        self._waiting.clear()
        self._abandon()

    def use_servers(self, strategy_id: str, lives: list[int]) -> None:
        """Finds servers that were started again."""
        self._servers.find(strategy_id, lives)

    def finish(self) -> None:
        """Ends the function: its changes go to the servers with what is read next."""
        self.collect()
        self.send()
        self._abandon()

    def flush(self) -> None:
        """Sends what was not sent yet."""
        if self._unsent:
            self._exchange({})

    def unsent(self) -> set[str]:
        """Returns the tokens of functions whose changes no server has confirmed."""
        return {each.token for each in self._unsent}

    def drop_unsent(self) -> None:
        """Forgets changes that could not be sent: their functions run again."""
        self._unsent.clear()

    def _abandon(self) -> None:
        """Drops what was read, and what was to be sent."""
        self._changes.clear()
        self._gradients.clear()
        self._read_at.clear()
        self._forget()

    def _forget(self) -> None:
        for variable in self._here.values():
            variable.forget()
        self._here.clear()

    # ------------------------------------------------------------------ variables

    def variable(self, spec: Spec) -> ServerVariable:
        """Returns the variable here that is on the servers."""
        self.named.add(spec.key)
        found = self._variables.get(spec.key)
        if found is None:
            found = self._variables[spec.key] = ServerVariable.of_spec(self, spec)
        return found

    def start(self, variable: ServerVariable, value: np.ndarray) -> None:
        raise AssertionError("Workers make no variables.")

    def load(self, variable: ServerVariable) -> Storage:
        self._usual.add(variable.spec.key)
        wanted = [self._variables[key] for key in self._usual if key not in self._here]
        if self._changes:
            self.send()  # with the pull that follows, so that it is seen
            wanted = [self._variables[key] for key in self._usual]
        self._pull(wanted, ())
        return variable.held

    def _pull(
        self, wanted: Sequence[ServerVariable], rows: Sequence[tuple[ServerVariable, np.ndarray]]
    ) -> list[np.ndarray]:
        """Reads variables, and rows of others, in one call for each server."""
        asked: dict[int, Exchange] = {}

        def of(server: int) -> Exchange:
            return asked.setdefault(server, Exchange([], {}, []))

        for variable in wanted:
            spec = variable.spec
            of(spec.servers[0]).wanted[spec.key] = self._cached.get(spec.key, (-1, None))[0]
        waiting, self._waiting = self._waiting, []
        rows = [*rows, *(part for each in waiting for part in each.parts)]
        for variable, ids in rows:
            of(variable.spec.servers[0]).rows.append((variable.spec.key, ids))
        answers = self._exchange(asked)
        for server in asked:
            answer = answers[server]
            self._read_at.setdefault(server, answer.updates)
            versions = {key: version for key, (version, _) in answer.values.items()}
            arrays = jax.device_put([value for _, value in answer.values.values()])
            for (key, version), array in zip(versions.items(), arrays, strict=True):
                self._cached[key] = (version, array)
        for variable in wanted:
            key = variable.spec.key
            variable.keep(OneBuffer(self._cached[key][1]))
            self._here[key] = variable
        found = {server: iter(answer.rows) for server, answer in answers.items()}
        values = [next(found[variable.spec.servers[0]]) for variable, _ in rows]
        end = len(values)
        for each in reversed(waiting):
            each.take(values[end - len(each.parts) : end])
            end -= len(each.parts)
        return values[:end]

    def _exchange(self, asked: dict[int, Exchange]) -> dict[int, Pulled]:
        """Sends what was not sent yet, and reads, in one call for each server."""
        senders: dict[int, list[_Unsent]] = defaultdict(list)
        for each in self._unsent:
            for server, push in each.pushes.items():
                asked.setdefault(server, Exchange([], {}, [])).pushes.append(push)
                senders[server].append(each)
        answers = self._servers.ask(
            "exchange",
            {server: (pickle.dumps(each, protocol=5),) for server, each in asked.items()},
        )
        pulled: dict[int, Pulled] = {}
        for server, data in answers.items():
            ages, pulled[server] = pickle.loads(data)
            for each, age in zip(senders[server], ages, strict=True):
                each.ages[server] = age
        for each in self._unsent:
            if each.updated:
                self.ages[each.token].append(max(each.ages[server] for server in each.updated))
        self._unsent = []
        return pulled

    def rows(self, variable: ServerVariable, rows: np.ndarray) -> np.ndarray:
        return self._read_with_the_usual([(variable, rows)])[0]

    def want_rows(self, wanted: Wanted) -> None:
        """Notes that rows are to be read, in the same call as what is read next."""
        self._waiting.append(wanted)

    def read_wanted(self) -> None:
        """Reads the rows that were looked up."""
        self._read_with_the_usual(())

    def _read_with_the_usual(
        self, rows: Sequence[tuple[ServerVariable, np.ndarray]]
    ) -> list[np.ndarray]:
        """Returns rows of variables; what the function usually reads is read along with them."""
        if self._changes:
            self.send()
        usual = [self._variables[key] for key in self._usual if key not in self._here]
        return self._pull(usual, rows)

    def stored(self, variable: ServerVariable, storage: Storage) -> Storage:
        self._here[variable.spec.key] = variable
        return storage

    def change(self, variable: ServerVariable, how: Change, value: np.ndarray) -> None:
        self.collect()
        self._note(variable.spec, Assignment(variable.spec.key, how, value))
        if variable.spec.key not in self._here and how is not Change.ASSIGN:
            return  # a read sends the change first
        if how is Change.ASSIGN:
            variable.keep(loaded(value))
        else:
            variable.keep(OneBuffer(how.of(variable.held.assembled, jnp.asarray(value))))
        self._here[variable.spec.key] = variable

    def _note(self, spec: Spec, change: Assignment | RowChange) -> None:
        for server in spec.servers:
            self._changes[server].append(change)

    def change_in_program(
        self, variable: ServerVariable, how: Change, value: jax.Array, update: Callable[[], None]
    ) -> None:
        spec = variable.spec
        mail = self._mail.get(spec.key)
        if mail is None:
            mail = self._mail[spec.key] = Mailboxes(spec)
        update()
        match how:
            case Change.ADD:
                mail.added.variable.assign_add(value)
            case Change.SUBTRACT:
                mail.added.variable.assign_sub(value)
            case Change.ASSIGN:
                mail.assigned.variable.assign(1)

    def change_rows(
        self, variable: ServerVariable, how: Scatter, rows: np.ndarray, values: np.ndarray
    ) -> None:
        self.collect()
        self._note(variable.spec, RowChange(variable.spec.key, how, rows, values))
        self.send()

    def dropped(self, spec: Spec) -> None:
        pass

    # ------------------------------------------------------------------ what is sent

    def collect(self) -> None:
        """Takes over what programs have done to variables."""
        for key, mail in self._mail.items():
            spec = self._variables[key].spec
            if mail.assigned.is_full:
                value = np.asarray(self._variables[key].held.assembled)
                self._note(spec, Assignment(key, Change.ASSIGN, value))
            elif mail.added.is_full:
                self._note(spec, Assignment(key, Change.ADD, mail.added.contents()))
            mail.empty()

    def note_update(self, optimizer: str, servers: Iterable[int]) -> None:
        """Notes that an optimizer makes a step, also on servers that get no gradient."""
        for server in servers:
            self._gradients.setdefault(server, {}).setdefault(optimizer, [])

    def note_gradient(self, optimizer: str, spec: Spec, gradient: Gradient) -> None:
        """Notes the gradient of a variable, for an optimizer."""
        for server in spec.servers:
            self._gradients.setdefault(server, {}).setdefault(optimizer, []).append(gradient)

    def add_one(self, variable: ServerVariable) -> None:
        """Notes that a counter goes up by one."""
        one = np.ones((), variable.dtype)
        self._note(variable.spec, Assignment(variable.spec.key, Change.ADD, one))

    def send(self) -> None:
        """Lets all changes go with the next call. What was read before is read again."""
        servers = sorted({*self._changes, *self._gradients})
        if not servers:
            return
        pushes = {
            server: Push(
                (self._token, self.pushes),
                self._read_at.get(server),
                self._changes.get(server, []),
                [Update(*each) for each in self._gradients.get(server, {}).items()],
            )
            for server in servers
        }
        self.pushes += 1
        self._unsent.append(_Unsent(self._token, pushes, list(self._gradients), {}))
        self._abandon()
