"""What takes the place of a gradient tape: a function of the loss, and a call that differentiates.

Names that the tape's block gives, and that lines below it read, are local to that function then:
it has to return them beside the loss.
"""

import sys
from typing import NamedTuple, final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import Access, GlobalScope

from replicax._src._typing import override
from replicax._src.cli.migrate._edits import Edits, Place, Range
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
        self._turned: dict[cst.CSTNode, Turned | None] = {}

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
            places.update(scope.accesses[node.value])  # in loops, also above the block
            again = [
                self._source.end(statement)
                for given in scope[node.value]
                if (statement := self._statement_of(getattr(given, "node", None))) is not None
                and self._source.start(statement) >= end
                and (line := self._source.parent(statement)) is not None
                and self._source.parent(line) is self._source.parent(block)
            ]
            if any(self._is_read_outside(each, block, again) for each in places):
                found.append(node.value)
        return found

    def _is_read_outside(self, access: Access, block: cst.With, again: list[Place]) -> bool:
        """Whether what a block gave is read later: not as a loss, nor given again.

        Later is below the block, above it in the same loop, and in functions of a module.
        """
        place = self._source.start(access.node)
        if access.node in self._losses:
            return False
        if place >= self._source.end(block):
            return not any(each <= place for each in again)
        if place >= self._source.start(block):
            return False
        scope = self._source.scope(block)
        if isinstance(scope, GlobalScope) and self._source.scope(access.node) is not scope:
            return True
        loop = self._loop_around(block)
        return loop is not None and place >= self._source.start(loop)

    def _loop_around(self, block: cst.With) -> cst.CSTNode | None:
        """The outermost loop around a block, in its function."""
        found, at = None, self._source.parent(block)
        while at is not None and not isinstance(at, cst.FunctionDef):
            found = at if isinstance(at, cst.For | cst.While) else found
            at = self._source.parent(at)
        return found

    def _statement_of(self, node: cst.CSTNode | None) -> cst.CSTNode | None:
        while node is not None and not isinstance(node, cst.BaseSmallStatement):
            node = self._source.parent(node)
        return node

    # --- tapes that are turned by themselves ------------------------------------------------------

    def turned(self, tape: cst.CSTNode) -> "Turned | None":
        """What takes the place of a tape, in its simple shape: one block, one gradient below it.

        Args:
          tape: the name `tf.GradientTape`, in the `with`.
        """
        if tape not in self._turned:
            self._turned[tape] = self._found(tape)
        return self._turned[tape]

    def is_turned(self, gradient: cst.Call) -> bool:
        """Whether the tape that is asked for gradients is turned."""
        return any(each is not None and each.gradient is gradient for each in self._turned.values())

    def _found(self, tape: cst.CSTNode) -> "Turned | None":
        call = self._source.parent(tape)
        item = self._source.parent(call) if isinstance(call, cst.Call) else None
        block = self._source.parent(item) if isinstance(item, cst.WithItem) else None
        if not isinstance(call, cst.Call) or not isinstance(block, cst.With):
            return None
        has_others = any(
            each.keyword is None or each.keyword.value != "persistent" for each in call.args
        )
        gradient = self._only_gradient(block)
        if len(block.items) > 1 or has_others or gradient is None or block.asynchronous:
            return None
        statement = self._source.parent(gradient)
        target, sources = _target(gradient), _argument(gradient, 1, "sources")
        if (
            not isinstance(block.body, cst.IndentedBlock)
            or not isinstance(block.lpar, cst.MaybeSentinel)
            or not isinstance(statement, cst.Assign)
            or not m.matches(statement, m.Assign([m.AssignTarget(m.Name())]))
            or not isinstance(target, cst.Name)
            or sources is None
            or len(gradient.args) != 2
            or not self._is_beside(statement, block)
            or self._is_used_otherwise(block, gradient)
            or _cannot_be_a_function(block.body)
        ):
            return None
        given = self._given_in(block)
        between = (self._source.end(block), self._source.start(statement))
        if target.value not in given or self._reads(given, between, sources):
            return None
        outside = [name for name in given if self._is_given_before(name, block)]
        captured = [name for name in outside if self._is_needed_first(name, block)]
        more = self._read_below(block, target.value)
        return Turned(
            block, gradient, statement, sources, target.value, tuple(more), tuple(captured)
        )

    def _is_beside(self, statement: cst.Assign, block: cst.With) -> bool:
        line = self._source.parent(statement)
        return line is not None and self._source.parent(line) is self._source.parent(block)

    def _is_used_otherwise(self, block: cst.With, gradient: cst.Call) -> bool:
        """Whether a tape is used for more than the one gradient: `tape.watch(x)`, `f(tape)`."""
        name = block.items[0].asname
        scope = self._source.scope(block)
        assert name is not None and isinstance(name.name, cst.Name) and scope is not None
        places = [getattr(each, "node", block) for each in scope[name.name.value]]
        start = self._source.start(block)
        following = [place for each in places if (place := self._source.start(each)) > start]
        later = [place for place in following if place > self._source.end(block)]
        end = min(later, default=(sys.maxsize, 0))
        reads = {access for each in scope[name.name.value] for access in each.references}
        used = [access.node for access in reads if start < self._source.start(access.node) < end]
        assert isinstance(gradient.func, cst.Attribute)
        return any(node is not gradient.func.value for node in used)

    def _given_in(self, block: cst.With) -> list[str]:
        """The names that the lines of a block give."""
        scope = self._source.scope(block)
        names = [each for each in m.findall(block.body, m.Name()) if isinstance(each, cst.Name)]
        found = [
            each.value
            for each in names
            if self._source.is_bound(each) and self._source.scope(each) is scope
        ]
        return list(dict.fromkeys(found))

    def _reads(self, given: list[str], between: Range, sources: cst.BaseExpression) -> bool:
        """Whether names of the block are read before there are gradients, or are the sources."""
        start, end = between
        if any(m.findall(sources, m.Name(name)) for name in given):
            return True
        scope = self._source.scope(sources)
        return scope is not None and any(
            start <= self._source.start(access.node) < end
            for name in given
            for assignment in scope[name]
            for access in assignment.references
        )

    def _is_given_before(self, name: str, block: cst.With) -> bool:
        scope, start = self._source.scope(block), self._source.start(block)
        found = [] if scope is None else list(scope.assignments[name])
        nodes = [node for each in found if (node := getattr(each, "node", None)) is not None]
        return any(self._source.start(node) < start for node in nodes)

    def _is_needed_first(self, name: str, block: cst.With) -> bool:
        """Whether a block may read a name, which was given before, earlier than it gives it."""
        names = [each for each in m.findall(block.body, m.Name(name)) if isinstance(each, cst.Name)]
        first = next(each for each in names if self._source.is_bound(each))
        statement = self._statement_of(first)
        line = None if statement is None else self._source.parent(statement)
        if statement is None or line is None or self._source.parent(line) is not block.body:
            return True  # in a branch, or in a loop
        end = self._source.end(statement)
        reads = [each for each in names if self._source.is_read(each)]
        return isinstance(statement, cst.AugAssign) or any(
            self._source.start(each) < end for each in reads
        )


@final
class Turned(NamedTuple):
    """A tape that becomes a function of the loss."""

    block: cst.With
    gradient: cst.Call
    statement: cst.Assign
    """The line that asks for the gradients."""
    variables: cst.BaseExpression
    loss: str
    more: tuple[str, ...]
    """What else of the block is read below it."""
    captured: tuple[str, ...]
    """Names that are given before the block, which reads them and gives them again."""

    def write(self, name: str, value_and_grad: str, source: Source, edits: Edits) -> None:
        """Makes the block a function with a name that is free, and calls it."""
        parameters = ", ".join(f"{each}={each}" for each in self.captured)
        item = self.block.items[0]
        assert item.asname is not None
        edits.replace(
            source.start(self.block), source.end(item.asname), f"def {name}({parameters})"
        )
        last = self.block.body.body[-1]
        line = source.end(last)[0]
        first_line = edits.line(source.start(last)[0])
        indentation = first_line[: len(first_line) - len(first_line.lstrip())]
        results = ", ".join([self.loss, _as_one(list(self.more))] if self.more else [self.loss])
        edits.add_line_below(line, f"{indentation}return {results}")
        if edits.line(line + 1).strip():
            edits.add_line_below(line, "")
        gradients = self.statement.targets[0].target
        left = f"({results})" if self.more else results
        edits.replace(
            source.start(self.statement),
            source.end(self.statement),
            f"{left}, ",
            (source.start(gradients), source.end(gradients)),
            f" = {value_and_grad}({name}, ",
            (source.start(self.variables), source.end(self.variables)),
            ", has_aux=True)" if self.more else ")",
        )


def _cannot_be_a_function(body: cst.BaseSuite) -> bool:
    """Whether lines do what a function that is traced cannot do for what is around it."""
    found = _Leaving()
    body.visit(found)
    return found.is_found


@final
class _Leaving(cst.CSTVisitor):
    """Looks for what leaves a block, or keeps what it computes elsewhere."""

    def __init__(self) -> None:
        self.is_found = False
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
        self.is_found |= leaves_loop or leaves or keeps or appends
        return not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef)

    @override
    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._loops -= isinstance(original_node, cst.For | cst.While)


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
