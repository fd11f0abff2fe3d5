"""What can be told about the batches of a data set before they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._batching import Batch, PaddedBatch, Rebatch, Unbatch, Window
from replicax._src.data._caching import Prefetch, WithOptions
from replicax._src.data._choosing import Choose, CountUp, RandomNumbers
from replicax._src.data._combining import Concatenate, Interleave, Zip
from replicax._src.data._elements import ElementSpec, leaves_with_names, map_leaves
from replicax._src.data._grouping import RaggedBatch
from replicax._src.data._indexed import Indexed
from replicax._src.data._mapping import Filter, Map
from replicax._src.data._node import Node, NoElements, walk
from replicax._src.data._ordering import Repeat, Shard, Skip, Take
from replicax._src.data._running import IgnoreErrors, Scan, TakeWhile, Unique
from replicax._src.data._saving import Saved
from replicax._src.data._sources import Files, Numbers, OneElement, PythonIterator, TensorSlices

# What hands on some elements of its input as they are.
_SOME_OF = (Repeat, Take, Skip, Shard, Filter, TakeWhile, Unique, IgnoreErrors)


def batch_size_of(node: Node, may_run: bool = True) -> int | None:
    """Returns the global batch size where it can be seen, as TensorFlow sees it.

    Through a `map` after `batch` it cannot be seen, unless the shapes say it. To know those, the
    function may have to run.
    """
    while isinstance(node, _SOME_OF) or node.keeps_elements:
        node = node.inputs[0]
    if isinstance(node, Batch | PaddedBatch):
        return node.batch_size
    if isinstance(node, Zip | Concatenate | Choose):
        sizes = {batch_size_of(part, may_run) for part in node.parts}
        return sizes.pop() if len(sizes) == 1 else None
    if not may_run:
        return batch_size_of(node.input, may_run) if isinstance(node, Map) else None
    if not _shapes_can_be_told(node):
        return None
    sizes = set()
    try:
        specs = leaves_with_names(node.spec)
    except NoElements:
        return None
    for _, spec in specs:
        sizes.add(spec.shape[0] if getattr(spec, "shape", None) else None)
    return sizes.pop() if len(sizes) == 1 else None


def _shapes_can_be_told(node: Node) -> bool:
    """Returns whether the first elements tell the shapes of all; a generator's do not."""
    if isinstance(node, Interleave):
        made = node.first_made
        if made is None or not _shapes_can_be_told(made):
            return False
    if isinstance(node, PythonIterator):
        return node.signature is not None
    return not isinstance(node, Indexed) and all(map(_shapes_can_be_told, node.inputs))


def has_static_shapes(node: Node) -> bool:
    """Returns whether all elements have one shape, as far as the first ones tell.

    Elements are read only where a function of the user's gives them its shape.
    """
    match node:
        case TensorSlices() | Numbers() | OneElement():
            return True
        case PythonIterator():
            if node.signature is None:
                return False
            return _is_known(node.signature)
        case Files():
            return node.yields_records
        case Batch():
            return node.drop_remainder and has_static_shapes(node.input)
        case PaddedBatch():
            known = node.padded_shapes is not None and all(
                shape is not None and None not in shape for shape in node.padded_shapes
            )
            return node.drop_remainder and (known or has_static_shapes(node.input))
        case Unbatch():
            return _have_static_rows(node.input)
        case Rebatch():
            is_one_size = node.drop_remainder and len(set(node.sizes)) == 1
            return is_one_size and _have_static_rows(node.input)
        case Interleave():
            return (made := _made_by(node)) is not None and has_static_shapes(made)
        case Window() | Indexed() | RaggedBatch():
            return False
        case Saved():
            return _is_known(node.spec)
        case Choose() | Concatenate() | Map() | Scan():
            parts = node.parts if isinstance(node, Choose) else node.inputs
            try:
                return all(map(has_static_shapes, parts)) and _is_known(node.spec)
            except NoElements:
                return False
    return all(map(has_static_shapes, node.inputs))


def _have_static_rows(node: Node) -> bool:
    """Returns whether the rows of all batches have one shape, however many there are of them."""
    match node:
        case Batch():
            return has_static_shapes(node.input)
        case Interleave():
            return (made := _made_by(node)) is not None and _have_static_rows(made)
    if isinstance(node, (*_SOME_OF, Concatenate, Rebatch)) or node.keeps_elements:
        return all(map(_have_static_rows, node.inputs))
    return has_static_shapes(node)


def _made_by(node: Interleave) -> Node | None:
    """Returns a data set that stands for all that the function makes of elements, if one does."""
    return node.first_made if has_static_shapes(node.input) else None


def _is_known(spec: ElementSpec) -> bool:
    """Returns whether all dimensions are."""
    specs = [each for _, each in leaves_with_names(spec)]
    return all(each.shape is not None and None not in each.shape for each in specs)


def all_whole_but_the_last(node: Node) -> bool:
    while isinstance(node, Prefetch | WithOptions):
        node = node.inputs[0]
    return isinstance(node, Batch)


_ROWS = (TensorSlices, Numbers, Files, Indexed, RandomNumbers, CountUp)


def refuse_unbatched(node: Node) -> None:
    """Raises a `ValueError` for data sets whose elements are rows, not batches."""
    each = node
    while isinstance(each, (Map, *_SOME_OF)) or each.keeps_elements:
        each = each.inputs[0]
    row_source = isinstance(each, _ROWS) and not getattr(each, "may_be_batches", False)
    if row_source and not _may_be_batches(node, each):
        line = "Call .batch(global_batch_size)"
        if isinstance(each, Indexed):  # its own library may have a batch() that does something else
            line = "Write rx.data.Dataset.from_source(data_set).batch(global_batch_size)"
        raise ValueError(
            f"The data set is not batched: its elements are the single rows of {each.label}. "
            f"{line}, and each batch is split over the replicas."
        )


def _may_be_batches(node: Node, source: Node) -> bool:
    """Returns whether functions in between make batches, as those that read a file each do."""
    if not any(isinstance(each, Map) for each in walk(node)):
        return False
    # File names and numbers of batches do; a function of images or sentences is one of rows.
    return isinstance(source, Files | Indexed | Numbers) or all(
        not spec.shape for _, spec in leaves_with_names(source.spec)
    )


# ------------------------------------------------------------------ what elements look like


@final
class PerReplicaSpec:
    """The specs of a per-replica value, one for each replica of this worker."""

    def __init__(self, *specs: TensorSpec):
        self._specs = specs

    def component_specs(self, count: int) -> Sequence[TensorSpec]:
        """Returns what an argument must look like; see `functions/_signature.py`."""
        return self._specs

    @property
    def shape(self) -> Any:
        """Of one replica's part."""
        return self._specs[0].shape

    @property
    def dtype(self) -> Any:
        return self._specs[0].dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerReplicaSpec) and self._specs == other._specs

    def __hash__(self) -> int:
        return hash(self._specs)

    def __repr__(self) -> str:
        return f"PerReplicaSpec({', '.join(map(repr, self._specs))})"


def share_spec(spec: ElementSpec, rows: int | None) -> Any:
    """Returns the spec of a batch with its first dimension set: `rows`, or None if that varies."""

    def of_a_share(leaf: TensorSpec) -> Any:
        shape = leaf.shape
        return TensorSpec.on_host((rows, *shape[1:]) if shape else shape, leaf.dtype)

    return map_leaves(of_a_share, spec)


def per_replica_spec(spec: ElementSpec, local: int, wrap: bool) -> Any:
    """Returns the spec of what `local` replicas get, if each gets what `spec` says."""

    def on_the_devices(leaf: TensorSpec) -> Any:
        each = TensorSpec(leaf.shape, leaf.dtype)
        return PerReplicaSpec(*[each] * local) if wrap else each

    return map_leaves(on_the_devices, spec)
