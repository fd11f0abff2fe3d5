"""The lines under a gradient tape, and whether they can be a function."""

from typing import NamedTuple, final

import libcst as cst
import libcst.matchers as m

from replicax._src._typing import override
from replicax._src.cli.migrate._edits import Place
from replicax._src.cli.migrate._source import found_in


@final
class Block(NamedTuple):
    """The lines under a tape that compute the loss."""

    node: cst.With
    lines: tuple[cst.BaseStatement, ...]
    """All of the block, up to the line in it that asks for gradients."""
    end: Place


def names_in(block: Block) -> list[cst.Name]:
    """Returns the names in the lines, in their order."""
    return [each for line in block.lines for each in found_in(line, cst.Name)]


def is_plain_tape(item: cst.WithItem) -> bool:
    """Returns whether it is `tf.GradientTape() as tape`, or a persistent one."""
    call = item.item
    return (
        isinstance(call, cst.Call)
        and m.matches(call.func, m.Attribute(attr=m.Name("GradientTape")) | m.Name("GradientTape"))
        and all(each.keyword and each.keyword.value == "persistent" for each in call.args)
        and item.asname is not None
        and isinstance(item.asname.name, cst.Name)
    )


def can_be_moved(block: cst.With) -> bool:
    """Returns whether a block can move to the left: no text in it goes over several lines."""
    texts = m.findall(block.body, m.SimpleString() | m.FormattedString())
    return not any("\n" in cst.Module([]).code_for_node(each) for each in texts)


def cannot_be_a_function(block: Block, given: list[str]) -> bool:
    """Returns whether lines do what a function that is traced cannot do for what is around it."""
    found = _Leaving(given)
    for line in block.lines:
        line.visit(found)
    return found.is_found


@final
class _Leaving(cst.CSTVisitor):
    """Looks for what leaves a block, or keeps what it computes elsewhere."""

    def __init__(self, own: list[str]) -> None:
        """Begins with nothing found.

        Args:
          own: names that the block gives: lists of its own may be added to.
        """
        self.is_found = False
        self._own = own
        self._loops = 0

    @override
    def on_visit(self, node: cst.CSTNode) -> bool:
        loops = cst.For | cst.While
        self._loops += isinstance(node, loops)
        leaves_loop = isinstance(node, cst.Break | cst.Continue) and not self._loops
        leaves = isinstance(node, cst.Return | cst.Yield | cst.Await | cst.Global | cst.Nonlocal)
        keeps = isinstance(node, cst.AssignTarget | cst.AugAssign) and not isinstance(
            node.target, cst.Name | cst.Tuple
        )
        appends = m.matches(node, m.Call(m.Attribute(attr=m.Name("append") | m.Name("extend"))))
        if appends:
            assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
            appends = not m.matches(node.func.value, m.Name(m.MatchIfTrue(self._own.__contains__)))
        self.is_found |= leaves_loop or leaves or keeps or appends
        return not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef)

    @override
    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._loops -= isinstance(original_node, cst.For | cst.While)
