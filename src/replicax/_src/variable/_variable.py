"""`Variable`: a mutable array, and the surface that all kinds of variables share.

`rx.Variable(...)` asks the current strategy which kind to make (see `_creator.py`). Outside a
strategy that is this class itself: one array, on one device.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar

import jax

from replicax._src._typing import ArrayInput, Device, Tracer
from replicax._src.collectives import default_device
from replicax._src.context import (
    StrategyLike,
    current_replica,
    first_of,
    replica_devices_of,
    replica_id_of,
    require_threads,
    thread_state,
    world,
)
from replicax._src.devices import (
    PLAIN,
    Layout,
    ReplicaMesh,
    canonical_name,
    checked_parts,
    device_of,
    put,
)
from replicax._src.values import ArrayLike, Mirrored, OneBuffer, Storage, array_here
from replicax._src.variable import _creator, _display, _late_values
from replicax._src.variable._conversion import coerced
from replicax._src.variable._holder import Holder
from replicax._src.variable._policy import (
    Change,
    VariableAggregation,
    VariableSynchronization,
    as_aggregation,
    as_synchronization,
    resolve_trainable,
)
from replicax._src.variable._scatter import Scattering

# Held while a variable is read, changed and written back: threads may share variables.
UPDATING = threading.RLock()


_Made = TypeVar("_Made")


class _VariableMeta(type):
    """Lets `rx.Variable(...)` return the kind of variable that the current strategy makes."""

    # The type of the result is the class: else type checkers would know nothing of a variable.
    def __call__(cls: type[_Made], *args: object, **kwargs: object) -> _Made:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        return _creator.create(_bound(args, kwargs), super().__call__)


def _bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `rx.Variable` by name, after the checks that need no strategy."""
    arguments = _signature().bind(None, *args, **kwargs).arguments
    arguments.pop("self")
    _creator.require_meaning(arguments)
    for argument, as_member in (
        ("synchronization", as_synchronization),
        ("aggregation", as_aggregation),
    ):
        if argument in arguments:
            arguments[argument] = as_member(arguments[argument])
    return arguments


@functools.cache
def _signature() -> inspect.Signature:
    return inspect.signature(Variable.__init__)


@jax.tree_util.register_pytree_node_class
class Variable(ArrayLike, Scattering, metaclass=_VariableMeta):
    """A mutable array that follows the strategy in whose scope it is made.

    Use it as an array, in operators and in `jax.numpy` and `jax.nn` functions (`jax.lax` takes
    arrays only: `variable.value()`); change it with `assign`, `assign_add`, `assign_sub`. Passed to
    a function that JAX transforms, it arrives as its value.

    >>> import jax.numpy as jnp, replicax as rx
    >>> v = rx.Variable([1.0, 2.0], name="v")
    >>> v.assign_add([1.0, 1.0])
    <rx.Variable 'v:0' shape=(2,) dtype=float32, numpy=array([2., 3.], dtype=float32)>
    >>> jnp.sum(v * 2)
    Array(10., dtype=float32)

    Args:
      initial_value: an array, number or nested list, or a function of no arguments that returns
        one. Required.
      trainable: whether optimizers should change it; by default True, but False for sync-on-read.
      validate_shape: kept for ported code; shapes are always checked.
      caching_device: kept for ported code; must be None.
      name: for messages and checkpoints.
      variable_def: kept for ported code; must be None.
      dtype: converts the initial value.
      import_scope: kept for ported code; must be None.
      constraint: a function from the new value to the allowed one, applied by optimizers.
      synchronization: `rx.VariableSynchronization`.
      aggregation: `rx.VariableAggregation`.
      shape: if given, what the initial value's shape must be (None for any size of a dimension).
      experimental_enable_variable_lifting: kept for ported code.
      layout: into how many parts each dimension is split over the logical devices of a replica,
        as in `strategy.experimental_split_to_logical_devices`, or an `rx.distribute.Layout`; None
        for what the strategy's `rx.distribute.StateLayout` says: usually a copy on each.
    """

    _structure_leaf: ClassVar[bool] = True
    _passed_whole: ClassVar[bool] = True
    _copies_differ: ClassVar[bool] = False

    @property
    def _holder(self) -> Holder | None:
        """The processes that hold the value, if this one does not."""
        return None

    _layout: Layout = PLAIN
    _looks_left: int = 0  # how often others may still have to be asked for its first value
    _stored: Any  # the `Storage`; `_buffers` also sees what a compiled function did

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: object = None,
        name: str | None = None,
        variable_def: object = None,
        dtype: Any = None,
        import_scope: str | None = None,
        constraint: Callable[[jax.Array], Any] | None = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
        shape: Sequence[int | None] | int | None = None,
        experimental_enable_variable_lifting: bool = True,
        *,
        layout: Sequence[int] | Layout | None = None,
        device: Device | None = None,
        strategy: Any = None,
    ):
        self._init_common(name, trainable, constraint, synchronization, aggregation, strategy)
        value = _creator.initial_array(initial_value, dtype, shape, self.name)
        parts = layout.parts if isinstance(layout, Layout) else layout
        if parts is not None and parts != ():
            checked_parts(value.shape, parts, 1, f"Variable {self.name!r}", "layout")
        if device is None:
            device = default_device() if isinstance(value, Tracer) else device_of(value)
        self._device = device
        world().create(self, None, value)

    def _start(self, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        """Gives the new variable its storage; `value` exists."""
        self._stored = OneBuffer(put(value, self._device))

    def _init_common(
        self,
        name: str | None,
        trainable: bool | None,
        constraint: Callable[[jax.Array], Any] | None,
        synchronization: VariableSynchronization | str | None,
        aggregation: VariableAggregation | str | None,
        strategy: StrategyLike,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` of a variable is a text, such as 'kernel'; got {name!r}.")
        self._name = f"{name or 'Variable'}:0"
        self._synchronization = as_synchronization(synchronization)
        self._aggregation = as_aggregation(aggregation)
        self._trainable = resolve_trainable(trainable, self._synchronization)
        if constraint is not None and not callable(constraint):
            raise TypeError(
                f"`constraint` must be a function of the new value; got {constraint!r}."
            )
        self._constraint = constraint
        self._strategy = strategy

    # What it is.

    @property
    def name(self) -> str:
        return self._name

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def constraint(self) -> Callable[[jax.Array], Any] | None:
        return self._constraint

    @property
    def shape(self) -> tuple[int, ...]:
        return self._template.shape

    @property
    def dtype(self) -> Any:
        return self._template.dtype

    @property
    def layout(self) -> Layout:
        """How it lies on the devices: `rx.distribute.Layout`."""
        return self._layout

    @property
    def device(self) -> str:
        """The name of the device that holds the value."""
        return canonical_name(self._placement[0])

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope it was made, or None."""
        return self._strategy

    # Reading.

    def _array(self) -> jax.Array:
        require_threads("A read of a variable")
        if self._looks_left:
            self._catch_up()
        return world().read(self)

    def _catch_up(self) -> None:
        """Takes over the value that the first worker, or a checkpoint, may have for it."""
        self._stored.arrive()  # not under the lock
        with UPDATING:
            _late_values.take_over(self)

    def value(self) -> jax.Array:
        """Returns the current value as an array."""
        return self._array()

    def read_value(self) -> jax.Array:
        """Returns the current value as an array, which later updates do not change."""
        return self._array()

    # Writing.

    def assign(
        self,
        value: object,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Sets the value. In replica context the replicas' values are combined by `aggregation`.

        Returns the variable; None with `read_value=False`. `use_locking` and `name` are kept for
        ported code.
        """
        self._change(Change.ASSIGN, value)
        return self if read_value else None

    def assign_add(
        self,
        delta: ArrayInput,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Adds `delta`. In replica context the replicas' deltas are combined first.

        Returns:
          The variable, or None if `read_value` is False.
        """
        self._change(Change.ADD, delta)
        return self if read_value else None

    def assign_sub(
        self,
        delta: ArrayInput,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtracts `delta`. In replica context the replicas' deltas are combined first.

        Returns:
          The variable, or None if `read_value` is False.
        """
        self._change(Change.SUBTRACT, delta)
        return self if read_value else None

    def _change(self, how: Change, value: object) -> None:
        require_threads(f"{how} of a variable")
        if self._looks_left:
            self._catch_up()
        world().assign(self, how, coerced(self, how, value))

    # What the kinds of variables differ in.

    @property
    def _buffers(self) -> Any:
        """What holds the value, as code here sees it."""
        return world().storage_of(self)

    def _settled(self) -> Storage:
        """Storage of the variable's own, also where a program has its value among its results."""
        require_threads("A read of a variable")
        if not self._stored.is_settled:
            with UPDATING:
                if not (stored := self._stored).is_settled:
                    settled = stored.settled()
                    if self._stored is stored:  # and no signal handler has read it meanwhile
                        self._store(settled)
        return self._stored

    def _store(self, storage: Storage) -> None:
        old, self._stored = self._stored, storage
        old.leave()

    def _set(self, storage: Storage) -> None:
        world().store(self, storage)

    @property
    def _template(self) -> Any:
        """Anything with this variable's shape and dtype."""
        return self._stored.look

    @property
    def _placement(self) -> tuple[Device, ...]:
        return (self._device,)

    @property
    def _root(self) -> Variable:
        """The variable that this is a copy of, or itself."""
        return self

    def _read(self) -> jax.Array:
        with UPDATING:  # no program may take the buffer between our looking and our taking
            return only_copy(self._buffers)

    def _update(self, how: Change, value: jax.Array | Mirrored) -> None:
        value = self._laid_out(value)
        if world().update_in_turn(self, how, value):
            return
        with UPDATING:
            new = changed(how, self._buffers.assembled, value, self._device)
            self._set(OneBuffer(new))

    # All copies at once, for programs that update many variables in one call.

    @property
    def _whole(self) -> jax.Array:
        """All copies as one array, laid out over the variable's devices."""
        return self._buffers.assembled

    def _set_whole(self, array: jax.Array, exclusive: bool = False) -> None:
        """Sets all copies; `exclusive` if a program made `array`, and no other code has it."""
        self._set(OneBuffer(put(array, self._device), exclusive))

    def _laid_out(self, value: jax.Array | Mirrored) -> jax.Array:
        """Returns a value that is the same on all replicas, laid out as `_whole` is."""
        return put(array_here(value), self._device)

    # Python's own protocols.

    def ref(self) -> Reference:
        """Returns a hashable stand-in, as a dictionary key; `ref().deref()` is the variable."""
        return Reference(self)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError(
                f"Variable {self._name!r} has shape (), and cannot be iterated over. Use "
                "variable.value(); in a list of variables, write [variable]."
            )
        return iter(self._array())

    def __hash__(self) -> int:
        raise TypeError(
            "A variable is unhashable, because == compares values. Use variable.ref() as the key."
        )

    def __copy__(self) -> Self:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        require_threads("A copy of a variable")
        world().refuse_in_program(
            lambda: RuntimeError(
                f"Variable {self._name!r} is copied inside an rx.function. Copy it outside, or "
                "keep its value: value = variable.read_value()."
            )
        )
        new = object.__new__(type(self))
        with UPDATING:
            self._settled().exclusive = False
            vars(new).update(vars(self))  # arrays are immutable, so the copy may share them
        memo[id(self)] = new
        return new

    def __reduce__(self) -> Any:
        raise TypeError(
            f"Variable {self._name!r} cannot be pickled, because it belongs to devices of this "
            "process. Pickle its value, np.asarray(variable), or write a checkpoint."
        )

    def __repr__(self) -> str:
        return (
            f"<rx.Variable {self._name!r} shape={self.shape} dtype={self.dtype}, "
            f"numpy={_display.value_text(self._shown)}>"
        )

    def _shown(self) -> jax.Array:
        require_threads("A read of a variable")
        if self._looks_left:
            self._catch_up()
        return self._read()

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        """For notebooks: which device holds what."""
        return _display.table(self, self._display_rows())

    def _display_rows(self) -> list[tuple[Any, ...]]:
        return _display.copies(self)

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self._array(),), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Sequence[Any]) -> Any:
        # A JAX function that is given a variable sees its value.
        return children[0]


class Reference:
    """What `variable.ref()` returns: equal and hashable by identity of the variable."""

    __slots__ = ("_variable",)

    def __init__(self, variable: Variable):
        self._variable = variable

    def deref(self) -> Variable:
        return self._variable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._variable is self._variable

    def __hash__(self) -> int:
        return id(self._variable)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._variable!r}>"


def only_copy(storage: Storage) -> jax.Array:
    """Returns the value that all copies have; in a replica, as an array on its device."""
    context = current_replica() if thread_state.frames else None
    if context is None or storage.is_traced:
        return storage.collected
    devices = replica_devices_of(context.strategy)
    return storage.on_device(devices[first_of(replica_id_of(context))])


def changed(how: Change, old: jax.Array, value: jax.Array, device: Device) -> jax.Array:
    """Returns what a variable holds after the change, on its own device."""
    if how is Change.ASSIGN:
        return value
    with world().on_device(device):
        new = how.of(old, value)
    return put(new, device)
