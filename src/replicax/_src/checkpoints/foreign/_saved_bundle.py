"""A checkpoint of TensorFlow as `Checkpoint.restore` sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.checkpoints._graph import GraphNode, Kind
from replicax._src.checkpoints._problems import DamagedCheckpointError
from replicax._src.checkpoints._saved import Saved
from replicax._src.checkpoints.foreign._bundle import Bundle
from replicax._src.checkpoints.foreign._object_graph import GRAPH, objects_of
from replicax._src.checkpoints.foreign._spelling import ITERATIONS, TENSORFLOW
from replicax._src.training import Optimizer

_STEP = "global_step"


@final
class SavedBundle(Saved):
    """A checkpoint that TensorFlow wrote."""

    def __init__(self, prefix: str):
        self.bundle = Bundle(prefix)
        self.path = self.bundle.prefix
        self.mark = self.bundle.mark
        self.spelling = TENSORFLOW
        try:
            self.objects = objects_of(self.bundle)
        except (ValueError, LookupError, RecursionError) as error:
            if isinstance(error, DamagedCheckpointError):
                raise
            raise DamagedCheckpointError(
                f"The TensorFlow checkpoint {self.path} is damaged: {error}, in "
                f"{self.bundle.index}.",
                path=self.path,
            ) from None
        self._has_objects = GRAPH in self.bundle.tensors

    @override
    def arrays(self, indices: list[int]) -> Mapping[int, Any]:
        names = {index: self.objects[index]["tensor"] for index in indices}
        for name in self.watched(list(names.values())):
            self.bundle.verify(name)
        return _Values(self.bundle, names)

    @override
    def named(self, node: GraphNode) -> int | None:
        """Finds variables by their names in checkpoints that have nothing else (TensorFlow 1)."""
        if self._has_objects:
            return None
        if isinstance(node.value, Optimizer):
            return 0
        children = self.objects[0]["children"]
        if node.kind != Kind.VARIABLE:
            return None
        if node.path.rpartition("/")[2] in ITERATIONS and _STEP in children:
            return children[_STEP]
        return children.get(node.value.name.removesuffix(":0"))


@final
class _Values(Mapping[int, np.ndarray]):
    """Tensors that have been checked, and are read one by one: what is large is held once."""

    def __init__(self, bundle: Bundle, names: dict[int, str]):
        self._bundle = bundle
        self._names = names

    @override
    def __getitem__(self, index: int) -> np.ndarray:
        return self._bundle.read(self._names[index])

    @override
    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    @override
    def __len__(self) -> int:
        return len(self._names)
