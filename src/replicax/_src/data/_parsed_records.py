"""`map(parse)` over records: many at a time, if all that the function does is to parse them."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from replicax._src._typing import override
from replicax._src.data._blocks import Block, Columns, RecordRows
from replicax._src.data._composed_blocks import ElementFunction
from replicax._src.data._elements import Structure
from replicax._src.data._indexed import Indexed
from replicax._src.data._node import Node
from replicax._src.data._ordering import Shard, Skip, Take
from replicax._src.data._sources import Files
from replicax._src.records import FeatureConfig, Unparsed, parse_example


@final
class ParsedRecords(ElementFunction):
    """What `parse_single_example` gives of each record, computed for many at a time."""

    whole_blocks = True

    def __init__(
        self, features: Mapping[str, FeatureConfig], names: Sequence[str], structure: Structure
    ):
        self._features = {name: features[name] for name in names}
        self._names = names
        self._structure = structure

    @override
    def rows(self, block: Block) -> list[Any]:
        return Columns(self._columns(block), self._structure).rows()

    @override
    def stacked(self, block: Block) -> Any:
        return self._structure.build(self._columns(block))

    def _columns(self, block: Block) -> list[Any]:
        records = block.records if isinstance(block, RecordRows) else block.rows()
        parsed = parse_example(records, self._features)
        return [parsed[name] for name in self._names]

    @classmethod
    def behind(
        cls, fn: Callable[..., Any], records: Node, of_batches: bool
    ) -> ParsedRecords | None:
        """Returns what `fn` does, if it only parses records and picks features; otherwise None.

        The function is called with something that stands for a record: it can be parsed, and
        nothing else can be done with it or its features.
        """
        if not reads_records(records) or not _may_parse(fn):
            return None
        record = Unparsed(of_batches)
        try:
            result = fn(record)
            structure = Structure(tuple(result) if isinstance(result, list) else result)
            leaves = structure.leaves(result)
        except Exception:
            return None
        features = record.features
        if features is None or not all(record.owns(leaf) for leaf in leaves):
            return None
        return cls(features, [leaf.name for leaf in leaves], structure)


_PARSERS = {"parse_example", "parse_single_example"}


def _may_parse(fn: object) -> bool:
    """Returns whether a function names a parser; others are not called just to see what they do."""
    if isinstance(fn, functools.partial):
        return getattr(fn.func, "__name__", "") in _PARSERS or _may_parse(fn.func)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None or _PARSERS.isdisjoint((*code.co_names, *code.co_freevars)):
        return False
    return _has_one_way(code)


def _has_one_way(code: types.CodeType) -> bool:
    """Returns whether there are no two ways through a function, so that one run tells all of it."""
    names = {each.opname for each in dis.get_instructions(code)}
    if code.co_exceptiontable or any("JUMP" in name and "IF" in name for name in names):
        return False
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return all(map(_has_one_way, inner))


def reads_records(node: Node) -> bool:
    """Returns whether the elements of a node are records of a file."""
    while node.keeps_elements or isinstance(node, Take | Skip | Shard):
        node = node.inputs[0]
    return yields_records(node)


def yields_records(node: Node) -> bool:
    return isinstance(node, Files | Indexed) and node.yields_records
