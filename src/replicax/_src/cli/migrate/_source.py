"""A Python file as libcst reads it: the tree, where its parts stand, and what names mean."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    CodeRange,
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from replicax._src.cli.migrate._edits import Place

_BLOCKS = (
    *(cst.SimpleStatementLine, cst.BaseCompoundStatement, cst.MatchCase),
    *(cst.ExceptHandler, cst.ExceptStarHandler),
)
Kind = TypeVar("Kind", bound=cst.CSTNode)
_PROVIDERS = (PositionProvider, ParentNodeProvider, ScopeProvider, ExpressionContextProvider)


class Unreadable(Exception):
    """A file is not a Python program; `line` is where that shows, 0 if in no one line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@final
class Source:
    """A parsed file."""

    def __init__(self, content: bytes) -> None:
        """Parses a file.

        Raises:
          Unreadable: It is not Python 3, or not text.
        """
        try:
            _check_depth(content)
            module = cst.parse_module(content)
            wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
            known: Mapping[Any, Mapping[cst.CSTNode, Any]] = wrapper.resolve_many(_PROVIDERS)
        # A LookupError: an encoding that is not there, or not one of text.
        except (cst.ParserSyntaxError, SyntaxError, ValueError, LookupError) as error:
            raise _explained(content, error) from None
        except RecursionError:
            raise Unreadable("is nested too deeply to be read", 0) from None
        self.module = wrapper.module
        self.text = module.code
        self.encoding = module.encoding
        self._positions: Mapping[cst.CSTNode, CodeRange] = known[PositionProvider]
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = known[ParentNodeProvider]
        self._scopes: Mapping[cst.CSTNode, Scope | None] = known[ScopeProvider]
        self._contexts: Mapping[cst.CSTNode, Any] = known[ExpressionContextProvider]

    def start(self, node: cst.CSTNode) -> Place:
        """Returns where a node begins."""
        place = self._positions[node].start
        return place.line, place.column

    def end(self, node: cst.CSTNode) -> Place:
        """Returns where a node ends."""
        place = self._positions[node].end
        return place.line, place.column

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Returns the node that a node is in; None for the module."""
        return self._parents.get(node)

    def outwards(self, node: cst.CSTNode | None) -> Iterator[cst.CSTNode]:
        """Yields a node, what it is in, what that is in, and so on."""
        while node is not None:
            yield node
            node = self.parent(node)

    def around(self, node: cst.CSTNode | None, kind: type[Kind]) -> Kind | None:
        """Returns the innermost node of a kind that a node is, or is in."""
        return next((each for each in self.outwards(node) if isinstance(each, kind)), None)

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """Returns the scope that a name is looked up in."""
        return next(filter(None, map(self._scopes.get, self.outwards(node))), None)

    @property
    def scopes(self) -> set[Scope]:
        """All scopes of the file."""
        return {scope for scope in self._scopes.values() if scope is not None}

    def is_read(self, name: cst.Name | cst.Attribute) -> bool:
        """Returns whether a name is read here, not bound or deleted."""
        return self._contexts.get(name) is ExpressionContext.LOAD

    def is_bound(self, name: cst.Name) -> bool:
        """Returns whether a name is given something here."""
        return self._contexts.get(name) is ExpressionContext.STORE

    def statement_line(self, node: cst.CSTNode) -> int:
        """Returns the line above which a comment about a node can stand."""
        for at in self.outwards(node):
            if isinstance(at, cst.FunctionDef | cst.ClassDef) and at.decorators:
                return self.start(at.decorators[0])[0]
            if isinstance(at, _BLOCKS):
                return self.start(at)[0]
        return 1

    def statement_line_at(self, line: int) -> int:
        """Returns the line above which a comment about a line can stand."""
        starts = {
            self.statement_line(node)
            for node in self._positions
            if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        }
        return max((start for start in starts if start <= line), default=1)


def found_in(
    root: cst.CSTNode, kind: type[Kind], pattern: m.BaseMatcherNode | None = None
) -> list[Kind]:
    """Returns the nodes of a kind in a tree; those that match a pattern, if there is one."""
    wanted: Any = getattr(m, kind.__name__)() if pattern is None else pattern
    return [each for each in m.findall(root, wanted) if isinstance(each, kind)]


def dotted(node: cst.BaseExpression | None) -> str | None:
    """Returns `a.b.c` for an expression that is a chain of names."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr.value}"
    return None


def _check_depth(content: bytes) -> None:
    """Raises RecursionError for what is nested so deeply that libcst's parser would crash."""
    try:
        ast.parse(content)
    except MemoryError:
        raise RecursionError from None
    except (SyntaxError, ValueError, LookupError):  # or newer than this Python: libcst will say
        if _brackets(content) > _MOST_BRACKETS:
            raise RecursionError from None


_MOST_BRACKETS = 200  # inside each other, as in Python itself


def _brackets(content: bytes) -> int:
    """Returns how many brackets are inside each other; those in texts and comments count too."""
    depth = most = 0
    for bracket in re.findall(rb"[(\[{}\])]", content):
        depth = depth + 1 if bracket in b"([{" else max(depth - 1, 0)
        most = max(most, depth)
    return most


def _explained(content: bytes, error: Exception) -> Unreadable:
    """Says what Python itself would say, which names the mistake; libcst lists what it expected."""
    try:
        ast.parse(content)
    except SyntaxError as said:
        return Unreadable(said.msg, said.lineno or 1)
    except (ValueError, LookupError, RecursionError, MemoryError) as said:
        return Unreadable(str(said), 1)
    line = error.raw_line if isinstance(error, cst.ParserSyntaxError) else 1
    return Unreadable(str(error).splitlines()[0], line)
