"""`PerReplica`: a value that may differ from replica to replica.

Used as if it were one array it raises, and says what to do: TensorFlow turns it into an array of
objects, silently, in the same places.
"""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from replicax._src._errors import PerReplicaValueError
from replicax._src._typing import DTypeLike
from replicax._src.values._array_like import BINARY_OPERATORS, COMPARISONS, UNARY_OPERATORS
from replicax._src.values._distributed import DistributedValues


@jax.tree_util.register_pytree_node_class
class PerReplica(DistributedValues):
    """One value per replica, in replica order.

    >>> import replicax as rx
    >>> rx.distribute.PerReplica([1, 2])
    PerReplica:{
      0: 1,
      1: 2
    }
    """

    _is_uneven: bool = False  # components differ in shape, here or on other workers
    _shapes_everywhere: Sequence[tuple[int, ...]] = ()  # of the components on all workers, if known

    # NumPy asks this for every function of an object, so that `np.sum(per_replica)` is refused.
    def __array_ufunc__(self, ufunc: np.ufunc, *args: object, **kwargs: object) -> NoReturn:
        self._refuse(f"numpy.{ufunc.__name__}")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NoReturn:
        self._refuse("numpy.asarray()")

    def __jax_array__(self) -> NoReturn:
        self._refuse("A JAX function")

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse(f"[{key!r}]")

    def __contains__(self, item: object) -> NoReturn:
        self._refuse("'in'")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(f"The format {spec!r}")
        return repr(self)

    def __round__(self, ndigits: int | None = None) -> NoReturn:
        self._refuse("round()")

    def __iter__(self) -> NoReturn:
        self._refuse("Iteration")

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(jax.Array, name):
            raise AttributeError(self._advice(f".{name}"))
        raise AttributeError(f"'PerReplica' object has no attribute {name!r}")

    def _refuse(self, what: str) -> NoReturn:
        raise PerReplicaValueError(self._advice(what))

    def _advice(self, what: str) -> str:
        return (
            f"{what} was used on a PerReplica value, which is {self._count} values, one for each "
            "replica. To compute on each replica: strategy.run(fn, args=(value,)). To combine "
            "them: strategy.reduce('SUM', value, axis=None). To look at them: "
            "strategy.experimental_local_results(value)."
        )

    __hash__ = object.__hash__

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.values, None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> PerReplica:
        return cls(children)


def _refusal(what: str) -> Callable[..., NoReturn]:
    def refuse(value: PerReplica, *_: object) -> NoReturn:
        value._refuse(what)

    return refuse


for _name in BINARY_OPERATORS:
    setattr(PerReplica, f"__{_name}__", _refusal(f"The operator {_name!r}"))
    setattr(PerReplica, f"__r{_name}__", _refusal(f"The operator {_name!r}"))
for _name in COMPARISONS:
    setattr(PerReplica, f"__{_name}__", _refusal(f"The comparison {_name!r}"))
for _name in UNARY_OPERATORS:
    setattr(PerReplica, f"__{_name}__", _refusal(f"{_name}()"))
