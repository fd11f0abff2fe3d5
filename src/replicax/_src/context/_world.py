"""`World`: how things are done here, eagerly or in a program that is being traced.

Code that does something else in a trace does not ask where it runs: it calls a method of
`world()`. There are two worlds, `EagerWorld` (`executors/_eager_world.py`) and `TracedWorld`
(`functions/_traced_world.py`). What differs only where one trace speaks for several replicas is in
`world().replicas` (`collectives/_replicas.py`).
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import jax

from replicax._src._typing import Device
from replicax._src.context._stack import ReplicaId, entered_world
from replicax._src.context._strategy import StrategyLike

if TYPE_CHECKING:  # rooms above this one: a world speaks of what is there, and imports nothing
    import jax

    from replicax._src.collectives import ReduceOp
    from replicax._src.context._replica import ReplicaContext
    from replicax._src.devices import Layout, ReplicaMesh
    from replicax._src.functions import FunctionCache
    from replicax._src.values import DistributedValues, Mirrored, PerReplica, Storage
    from replicax._src.variable import Change, DistributedVariable, Variable

Picked = TypeVar("Picked")
_ONLY_IN_PROGRAMS = "Eagerly, every replica has its own number and whole variables."


class Replicas(abc.ABC):
    """How values of replicas are computed with: one component after the other, or all at once."""

    are_together: bool
    any_replica: Any
    """The number of a replica of which every value has a component."""

    @abc.abstractmethod
    def map_components(self, fn: Callable[[Any], Any], value: DistributedValues) -> PerReplica:
        """Returns `fn(component)` of each component, there where it is."""

    @abc.abstractmethod
    def map_numbered(
        self, fn: Callable[[Any, int | None], Any], value: DistributedValues
    ) -> DistributedValues:
        """Returns `fn(component, number of the replica)`; the number is None for all at once."""

    @abc.abstractmethod
    def over_mesh(self, value: PerReplica, mesh: ReplicaMesh, what: str) -> PerReplica:
        """Returns `value` with its components as one array over `mesh`.

        `what` is done with it, for messages.
        """

    @abc.abstractmethod
    def with_parts(self, value: DistributedValues, parts: Sequence[Any]) -> DistributedValues:
        """Returns `value`, whose components are `parts` as arrays."""

    @abc.abstractmethod
    def all_reduce(
        self, op: ReduceOp, values: Sequence[DistributedValues], bytes_per_pack: int
    ) -> list[Any]:
        """Reduces many values at once; the results are where the values were."""

    @abc.abstractmethod
    def gather(self, value: DistributedValues, axis: int, device: Device) -> jax.Array:
        """Returns the components joined along `axis`, in replica order."""

    @abc.abstractmethod
    def update_copies(
        self,
        devices: Sequence[Device],
        updating: Callable[[Any, Device], AbstractContextManager[None]],
        update: Callable[[Any], Any],
    ) -> Any:
        """Calls `update(number)` for the copy on each device, inside `updating(number, device)`.

        Returns the results as mirrored values.
        """

    @abc.abstractmethod
    def number_of_items(
        self, value: DistributedValues, axes: Sequence[int], over_workers: Callable[[int], int]
    ) -> int:
        """Returns how many items the components of all workers have along `axes`.

        `over_workers` adds up a number of this worker's with those of the others.
        """

    @abc.abstractmethod
    def over_all(self, number: int, add_up: Callable[[jax.Array], jax.Array]) -> Any:
        """Returns the sum over all replicas of a number that the shapes of this one tell.

        `add_up` is a meeting of all replicas.
        """


class RunReplicas(Protocol):
    """How a replica function runs on the replicas of a strategy, which are on these devices."""

    def __call__(
        self,
        strategy: StrategyLike,
        devices: tuple[Device, ...],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Returns what `fn(*args, **kwargs)` returns on the replicas, merged."""


class Substitution(Protocol):
    """Values that stand for variables while a loss is differentiated."""

    def read(self, variable: Variable) -> jax.Array | None:
        """Returns the value to use in place of the variable's own; None if there is none."""

    def written(self, variable: Variable) -> None:
        """Takes note that a variable was assigned."""


class World(abc.ABC):
    """What code of all rooms asks of the context that it runs in.

    Methods that are about programs have bodies, which say what holds outside of them.

    Attributes:
      replicas: how values of replicas are computed with.
      run_replicas: runs a replica function on every replica; returns the merged results.
      is_program: whether what is done here becomes a part of a program.
      substitutions: those of the losses that are differentiated here, outermost first.
      compiled_runs: where `strategy.run` looks for compiled replica functions, if it is to.
      compiles_losses: whether `rx.value_and_grad` compiles what it can, without being asked.
    """

    replicas: Replicas
    run_replicas: RunReplicas
    is_program: ClassVar[bool]
    substitutions: tuple[Substitution, ...] = ()
    compiled_runs: FunctionCache | None = None
    compiles_losses: bool = False

    def _with(self, **attributes: object) -> AbstractContextManager[None]:
        """Returns a context manager around code for which this world has other attributes."""
        changed = copy.copy(self)
        vars(changed).update(attributes)
        return entered_world(changed)

    # ------------------------------------------------------------------ what has no place here

    @abc.abstractmethod
    def refuse_in_program(self, error: Callable[[], BaseException]) -> None:
        """Raises `error()` where a program is being traced."""

    @abc.abstractmethod
    def refuse_traced(self, value: object, error: Callable[[], Exception]) -> None:
        """Raises `error()` for a value that JAX traces, where no program of ours does."""

    @abc.abstractmethod
    def pick(self, eager: Picked, in_program: Picked) -> Picked:
        """Returns one of two ways to do the same, where they have nothing in common."""

    # ------------------------------------------------------------------ running

    def compiling_runs(self, functions: FunctionCache) -> AbstractContextManager[None]:
        """Returns a context manager in which `strategy.run` compiles the replica functions."""
        return self._with(compiled_runs=functions)

    def compiling_losses(self) -> AbstractContextManager[None]:
        """Returns a context manager in which `rx.value_and_grad` compiles what it can."""
        return self._with(compiles_losses=True)

    @abc.abstractmethod
    def replica_number(self, number: ReplicaId) -> Any:
        """Returns what a replica sees as its number."""

    def is_first_of_program(self) -> Any:
        """Returns whether this is the first replica of a program, which may know it when it runs.

        Outside of programs there is one Python, and so it is True.
        """
        return True

    @abc.abstractmethod
    def leave_to_python(self, reason: str) -> None:
        """Gives up the program that is being traced; elsewhere, does nothing."""

    @abc.abstractmethod
    def on_device(self, device: Device) -> AbstractContextManager[Any]:
        """Returns a context manager around computations that belong on `device`."""

    @abc.abstractmethod
    def beside(self, array: jax.Array) -> AbstractContextManager[Any]:
        """Returns a context manager around computations that belong where `array` is."""

    @abc.abstractmethod
    def mirrored(self, devices: tuple[Device, ...], array: jax.Array) -> Any:
        """Returns `array` as a value that is the same on these devices."""

    def component_for_each(self, value: DistributedValues) -> Any:
        """Returns each replica's component of a value that was made outside of the trace."""
        raise AssertionError(_ONLY_IN_PROGRAMS)

    # ------------------------------------------------------------------ variables

    @abc.abstractmethod
    def read(self, variable: Variable) -> jax.Array:
        """Returns the value of a variable."""

    @abc.abstractmethod
    def assign(self, variable: Variable, how: Change, value: jax.Array | Mirrored) -> None:
        """Changes a variable; `value` has its shape and dtype."""

    def substituted(self, variable: Variable) -> jax.Array | None:
        """Returns what stands for a variable in the innermost loss that has something."""
        for substitution in reversed(self.substitutions):
            value = substitution.read(variable)
            if value is not None:
                return value
        return None

    @abc.abstractmethod
    def require_startable(self, value: object, name: str) -> None:
        """Raises if a variable cannot be made here, from this value."""

    @abc.abstractmethod
    def create(self, variable: Variable, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        """Gives a new variable its storage, on the devices of `mesh` or on its own."""

    @abc.abstractmethod
    def require_unstaged(self, variable: Variable, allowed: object = None) -> None:
        """Refuses a read in what JAX traces and keeps, other than the trace `allowed`."""

    @abc.abstractmethod
    def require_own_copy(self, variable: DistributedVariable, index: ReplicaId) -> None:
        """Gives up the program of one eager replica if it needs another one's copy."""

    @abc.abstractmethod
    def storage_of(self, variable: Variable) -> Storage:
        """Returns what holds the value of a variable, as code here sees it."""

    @abc.abstractmethod
    def store(self, variable: Variable, storage: Storage) -> None:
        """Makes `storage` the value of a variable."""

    @abc.abstractmethod
    def with_copy(
        self, variable: DistributedVariable, index: ReplicaId, value: jax.Array
    ) -> Storage:
        """Returns the storage of a variable with another value for one copy."""

    @abc.abstractmethod
    def laid_out(self, value: jax.Array | Mirrored, mesh: ReplicaMesh, layout: Layout) -> Any:
        """Returns a value that is the same on all replicas, laid out as a variable is."""

    @abc.abstractmethod
    def relaid(self, array: jax.Array, mesh: ReplicaMesh, layout: Layout) -> Any:
        """Returns an array over `mesh`, laid out as a variable is."""

    def update_in_turn(self, variable: Variable, how: Change, value: jax.Array) -> bool:
        """Changes a variable without copies for each replica of a trace; False elsewhere."""
        return False

    def defer(
        self,
        variable: DistributedVariable,
        context: ReplicaContext,
        how: Change,
        value: jax.Array,
    ) -> bool:
        """Notes a change that eager replicas make together after the program; False elsewhere."""
        return False

    # ------------------------------------------------------------------ training

    def in_loss(self, substitution: Substitution) -> AbstractContextManager[None]:
        """Returns a context manager for a loss: other values stand for variables in it."""
        return self._with(substitutions=(*self.substitutions, substitution))

    def cut_of(self, variable: Variable) -> int | None:
        """Returns the dimension in which replicas here have parts of a variable, or None."""
        return None

    def part_of(self, variable: Variable) -> Any:
        """Returns each replica's part of a variable that is cut."""
        raise AssertionError(_ONLY_IN_PROGRAMS)

    def set_part(self, variable: Variable, value: jax.Array) -> None:
        """Sets what `part_of` returns."""
        raise AssertionError(_ONLY_IN_PROGRAMS)

    def keep_on(self, value: object, logical_device: int) -> None:
        """Notes that a result of the program is to be kept on one logical device."""
        raise AssertionError(_ONLY_IN_PROGRAMS)
