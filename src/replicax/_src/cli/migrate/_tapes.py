"""What takes the place of a gradient tape: a function of the loss, and a call that differentiates.

Names that the tape's block gives, and that lines below it read, are local to that function then:
it has to return them beside the loss.
"""

from typing import final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import Access

from replicax._src.cli.migrate._source import Source


@final
class Tapes:
    """The tapes of a file, and what is computed under them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._gradients = [
            node
            for node in m.findall(source.module, m.Call(m.Attribute(attr=m.Name("gradient"))))
            if isinstance(node, cst.Call)
        ]
        targets = [_target(call) for call in self._gradients]
        self._losses = {each for each in targets if each is not None}

    def block(self, tape: cst.CSTNode) -> str | None:
        """What to do with the block of `with tf.GradientTape() as tape:`; None if only the loss.

        Args:
          tape: the name, in the `with`.
        """
        at: cst.CSTNode | None = tape
        while at is not None and not isinstance(at, cst.With):
            at = self._source.parent(at)
        call = None if at is None else self._only_gradient(at)
        if at is None or call is None or not (more := self._read_below(at, _loss(call))):
            return None
        return f"make the block a function, loss_fn, that returns {_loss(call)}, {_as_one(more)}"

    def gradient(self, call: cst.Call) -> str:
        """The line that takes the place of `gradients = tape.gradient(loss, variables)`."""
        code = self._source.module.code_for_node
        statement = self._source.parent(call)
        gradients = "gradients"
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            if isinstance(target := statement.targets[0].target, cst.Name):
                gradients = target.value
        sources = _argument(call, 1, "sources")
        variables = code(sources) if sources is not None else ""
        variables = variables if variables and "\n" not in variables else "variables"
        block = self._block_of(call)
        more = [] if block is None else self._read_below(block, _loss(call))
        if more and block is not None and self._only_gradient(block) is call:
            value = f"({_loss(call)}, {_as_one(more)})"
            return f"{value}, {gradients} = rx.value_and_grad(loss_fn, {variables}, has_aux=True)"
        return f"{_loss(call)}, {gradients} = rx.value_and_grad(loss_fn, {variables})"

    def _only_gradient(self, block: cst.With) -> cst.Call | None:
        """The one call that asks the tape of a block; None if several do, or none below it."""
        found = [call for call in self._gradients if self._block_of(call) is block]
        return found[0] if len(found) == 1 else None

    def _block_of(self, call: cst.Call) -> cst.With | None:
        """The block of the tape that is asked, which stands above the call."""
        assert isinstance(call.func, cst.Attribute)
        tape = call.func.value
        scope = self._source.scope(call)
        if not isinstance(tape, cst.Name) or scope is None:
            return None
        blocks = []
        for assignment in scope[tape.value]:
            at: cst.CSTNode | None = getattr(assignment, "node", None)
            while at is not None and not isinstance(at, cst.With | cst.BaseSuite):
                at = self._source.parent(at)
            if isinstance(at, cst.With) and self._source.end(at) <= self._source.start(call):
                blocks.append(at)
        return max(blocks, key=self._source.start, default=None)

    def _read_below(self, block: cst.With, loss: str) -> list[str]:
        """The names that a block gives and that are read below it, in the order of the block."""
        scope, end = self._source.scope(block), self._source.end(block)
        if scope is None:
            return []
        found: list[str] = []
        for node in m.findall(block.body, m.Name()):
            assert isinstance(node, cst.Name)
            is_given = self._source.is_bound(node) and self._source.scope(node) is scope
            if not is_given or node.value in (loss, *found):
                continue
            places = {each for given in scope[node.value] for each in given.references}
            again = [
                self._source.end(statement)
                for given in scope[node.value]
                if (statement := self._statement_of(getattr(given, "node", None))) is not None
                and self._source.start(statement) >= end
            ]
            if any(self._is_read_after(each, end, again) for each in places):
                found.append(node.value)
        return found

    def _is_read_after(
        self, access: Access, end: tuple[int, int], again: list[tuple[int, int]]
    ) -> bool:
        """Whether it is read below a block, what the block gave: not as a loss, nor given anew."""
        start = self._source.start(access.node)
        if start < end or access.node in self._losses:
            return False
        return not any(place <= start for place in again)

    def _statement_of(self, node: cst.CSTNode | None) -> cst.CSTNode | None:
        while node is not None and not isinstance(node, cst.BaseSmallStatement):
            node = self._source.parent(node)
        return node


def _as_one(names: list[str]) -> str:
    """Beside the loss there is one more result, which may be a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _argument(call: cst.Call, position: int, keyword: str) -> cst.BaseExpression | None:
    positional = [each.value for each in call.args if each.keyword is None]
    named = {each.keyword.value: each.value for each in call.args if each.keyword}
    return named.get(keyword, positional[position] if len(positional) > position else None)


def _target(call: cst.Call) -> cst.BaseExpression | None:
    return _argument(call, 0, "target")


def _loss(call: cst.Call) -> str:
    target = _target(call)
    return target.value if isinstance(target, cst.Name) else "loss"
