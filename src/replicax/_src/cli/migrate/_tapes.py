"""What takes the place of a gradient tape: a function of the loss, and a call that differentiates.

Names that the tape's block gives, and that lines below it read, are local to that function then:
it has to return them beside the loss.
"""

import re
import sys
from typing import final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import Access, GlobalScope

from replicax._src.cli.migrate._blocks import (
    Block,
    can_be_moved,
    cannot_be_a_function,
    is_plain_tape,
    names_in,
)
from replicax._src.cli.migrate._edits import Place, Range
from replicax._src.cli.migrate._source import Source, found_in
from replicax._src.cli.migrate._turned import GRADIENTS, Asked, Late, Turned, as_one

# Classes of models, which are built by their first call; what tells of inputs.
_OWN_MODELS = re.compile(r"\bclass \w+\((\w+\.)*Model\b")
_INPUTS = re.compile(r"\bInput(Layer)?\(|\b(batch_)?input_(shape|dim)\b")
# Functions that change nothing.
_PLAIN = m.Name(m.MatchRegex("dict|float|int|len|list|print|range|reversed|sorted|sum|tuple|zip"))


@final
class Tapes:
    """The tapes of a file, and what is computed under them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        has_own = _OWN_MODELS.search(source.text) is not None
        has_open = "Sequential(" in source.text and not _INPUTS.search(source.text)
        self._has_late_models = has_own or has_open
        asking = m.Call(m.Attribute(attr=m.Name("gradient")))
        self._gradients = found_in(source.module, cst.Call, asking)
        targets = [_target(call) for call in self._gradients]
        self._losses = {each for each in targets if each is not None}
        self._turned: dict[cst.With, Turned | None] = {}

    # --- what is said of tapes that are left ------------------------------------------------------

    def block(self, tape: cst.CSTNode) -> str | None:
        """Returns what becomes of the block of `with tf.GradientTape() as tape:`; or None.

        Args:
          tape: the name, in the `with`.
        """
        at = self._source.around(tape, cst.With)
        calls = [] if at is None else self._asking(at)
        if at is None or len(calls) != 1:
            return None
        loss = _loss(calls[0])
        if not (more := self._read_below(self._block(at), [loss])):
            return None
        return f"make the block a function, loss_fn, that returns {loss}, {as_one(more)}"

    def gradient(self, call: cst.Call) -> str:
        """Returns the line that takes the place of `gradients = tape.gradient(loss, variables)`."""
        code = self._source.module.code_for_node
        statement = self._source.parent(call)
        gradients = "gradients"
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            if isinstance(target := statement.targets[0].target, cst.Name):
                gradients = target.value
        sources = _argument(call, 1, "sources")
        variables = code(sources) if sources is not None else ""
        variables = variables if variables and "\n" not in variables else "variables"
        at = self._asked(call)
        more = [] if at is None else self._read_below(self._block(at), [_loss(call)])
        if (weights := _argument(call, 2, "output_gradients")) is not None:
            weighted = f"{_loss(call)} * {code(weights)}"
            return (
                f"loss, {gradients} = rx.value_and_grad(loss_fn, {variables}), with a loss_fn that "
                f"returns the sum of {weighted}"
            )
        if more and at is not None and self._asking(at) == [call]:
            value = f"({_loss(call)}, {as_one(more)})"
            return f"{value}, {gradients} = rx.value_and_grad(loss_fn, {variables}, has_aux=True)"
        return f"{_loss(call)}, {gradients} = rx.value_and_grad(loss_fn, {variables})"

    # --- which tape is asked, and where its lines end ---------------------------------------------

    def _asking(self, block: cst.With) -> list[cst.Call]:
        """Returns the calls that ask the tapes of a block, in the order of the file."""
        found = [call for call in self._gradients if self._asked(call) is block]
        return sorted(found, key=self._source.start)

    def _asked(self, call: cst.Call) -> cst.With | None:
        """Returns the block of the tape that is asked, which is above the call, or around it."""
        assert isinstance(call.func, cst.Attribute)
        tape = call.func.value
        scope = self._source.scope(call)
        if not isinstance(tape, cst.Name) or scope is None:
            return None
        blocks = []
        for assignment in scope[tape.value]:
            around = self._source.outwards(getattr(assignment, "node", None))
            kinds = cst.With | cst.BaseSuite
            at = next((each for each in around if isinstance(each, kinds)), None)
            if isinstance(at, cst.With) and (
                self._source.end(at) <= self._source.start(call) or self._line_in(at, call)
            ):
                blocks.append(at)
        return max(blocks, key=self._source.start, default=None)

    def _line_in(self, block: cst.With, node: cst.CSTNode) -> cst.BaseStatement | None:
        """Returns the line of a block itself that a node is in."""
        around = self._source.outwards(node)
        at = next((each for each in around if self._source.parent(each) is block.body), None)
        return at if isinstance(at, cst.SimpleStatementLine) else None

    def _block(self, block: cst.With) -> Block:
        asking = [line for call in self._asking(block) if (line := self._line_in(block, call))]
        lines = [each for each in block.body.body if isinstance(each, cst.BaseStatement)]
        if not asking:
            return Block(block, tuple(lines), self._source.end(block))
        first = min(map(lines.index, asking))
        return Block(block, tuple(lines[:first]), self._source.start(lines[first]))

    # --- what is given in the lines, and read below them ------------------------------------------

    def _given_in(self, block: Block) -> list[str]:
        """Returns the names that the lines of a block give."""
        scope = self._source.scope(block.node)
        found = [
            each.value
            for each in names_in(block)
            if self._source.is_bound(each) and self._source.scope(each) is scope
        ]
        return list(dict.fromkeys(found))

    def _read_below(self, block: Block, losses: list[str]) -> list[str]:
        """Returns the names that a block gives and that are read below it, in its order."""
        scope = self._source.scope(block.node)
        if scope is None:
            return []
        found: list[str] = []
        for name in self._given_in(block):
            if name in losses:
                continue
            places = {each for given in scope[name] for each in given.references}
            places.update(scope.accesses[name])  # in loops, also above the block
            again = [
                self._source.end(statement)
                for given in scope[name]
                if (statement := self._statement_of(getattr(given, "node", None))) is not None
                and self._source.start(statement) >= block.end
                and (line := self._source.parent(statement)) is not None
                and self._source.parent(line) in (self._source.parent(block.node), block.node.body)
            ]
            if any(self._is_read_outside(each, block, again) for each in places):
                found.append(name)
        return found

    def _is_read_outside(self, access: Access, block: Block, again: list[Place]) -> bool:
        """Returns whether what a block gave is read later: not as a loss, nor given again.

        Later is below the block, above it in the same loop, and in functions of a module.
        """
        place = self._source.start(access.node)
        if access.node in self._losses:
            return False
        if place >= block.end:
            return not any(each <= place for each in again)
        if place >= self._source.start(block.node):
            return False
        scope = self._source.scope(block.node)
        if isinstance(scope, GlobalScope) and self._source.scope(access.node) is not scope:
            return True
        loop = self._loop_around(block.node)
        return loop is not None and place >= self._source.start(loop)

    def _loop_around(self, block: cst.With) -> cst.CSTNode | None:
        """Returns the outermost loop around a block, in its function."""
        found, at = None, self._source.parent(block)
        while at is not None and not isinstance(at, cst.FunctionDef):
            found = at if isinstance(at, cst.For | cst.While) else found
            at = self._source.parent(at)
        return found

    def _statement_of(self, node: cst.CSTNode | None) -> cst.BaseSmallStatement | None:
        return self._source.around(node, cst.BaseSmallStatement)

    # --- tapes that are turned by themselves ------------------------------------------------------

    def turned(self, tape: cst.CSTNode) -> Turned | None:
        """Returns what takes the place of a tape, where that can be written.

        It is one block, whose tapes are asked in lines of their own, below it or at its end.

        Args:
          tape: the name `tf.GradientTape`, in the `with`.
        """
        block = self._source.around(tape, cst.With)
        if block is None:
            return None
        if block not in self._turned:
            self._turned[block] = self._found(block)
        return self._turned[block]

    def is_turned(self, call: cst.Call) -> bool:
        """Returns whether a call of a tape's method goes with the tape."""
        return any(
            each is not None and (call in each.watching or call in [a.call for a in each.asked])
            for each in self._turned.values()
        )

    def _found(self, node: cst.With) -> Turned | None:
        if (
            node.asynchronous
            or not isinstance(node.body, cst.IndentedBlock)
            or not isinstance(node.lpar, cst.MaybeSentinel)
            or not all(map(is_plain_tape, node.items))
        ):
            return None
        block = self._block(node)
        asked = [self._asked_line(call, node) for call in self._asking(node)]
        lines = [each for each in asked if each is not None]
        if len(lines) != len(asked):
            return None
        watching = self._watching(block)
        deleting = self._deleting(node)
        given = self._given_in(block)
        if self._is_used_otherwise(node, lines, watching, deleting) or cannot_be_a_function(
            block, given
        ):
            return None
        is_inside = block.end < self._source.end(node)
        if (is_inside or not lines) and not can_be_moved(node):
            return None
        if not lines:
            return None if watching else Turned(block.node, block.lines)
        watched = [each for call in watching for each in m.findall(call.args[0], m.Name())]
        sources = [name for each in lines for name in m.findall(each.variables, m.Name())]
        by_arrays = bool(watching) and lines[0].array is not None
        if watching and not by_arrays and not self._are_variables(watching, lines):
            return None
        if by_arrays and (len(lines) > 1 or len(watched) != 1 or len(sources) != 1):
            return None
        between = (block.end, self._source.start(lines[0].statement))
        if any(each.loss not in given for each in lines) or _are_asked_for(given, lines):
            return None
        is_early = self._is_read_between(given, between, lines) or self._may_change(block, between)
        if any(each.target is None for each in lines) and (
            len(lines) > 1 or by_arrays or is_early or not self._can_be_named(lines[0])
        ):
            return None
        if is_early and (by_arrays or is_inside or not self._can_be_asked_at(block.end, lines)):
            return None
        outside = [name for name in given if self._is_given_before(name, block)]
        captured = [name for name in outside if self._is_needed_first(name, block)]
        losses = [each.loss for each in lines]
        more = self._read_below(block, [] if by_arrays else losses)  # JAX does not return it
        late = () if by_arrays else tuple(self._late(block, lines, given))
        return Turned(
            block.node,
            block.lines,
            tuple(lines),
            tuple(more),
            tuple(captured),
            tuple(watching),
            tuple(deleting),
            late,
            is_early,
        )

    # --- models that are built by their first call ------------------------------------------------

    def _late(self, block: Block, lines: list[Asked], given: list[str]) -> list[Late]:
        """Returns the models with a tape's variables, which a first call under it would build."""
        if not self._has_late_models:
            return []
        code = self._source.module.code_for_node
        of_models = m.Attribute(attr=m.Name(m.MatchRegex("(trainable_)?(variables|weights)")))
        calls = [each for line in block.lines for each in found_in(line, cst.Call)]
        called = {code(each.func) for each in calls}
        models: dict[str, None] = {}
        for each in lines:
            assigned = self._assigned(each.variables, block)
            for variables in found_in(assigned, cst.Attribute, of_models):
                owner = code(variables.value)
                is_model = "trainable" in variables.attr.value or owner in called
                if is_model and owner != "self":  # fit has built it
                    models[owner] = None
        built = {
            model: [self._building(call, given) for call in calls if code(call.func) == model]
            for model in models
        }
        return [Late(model, next(filter(None, built[model]), None)) for model in models]

    def _assigned(self, variables: cst.BaseExpression, block: Block) -> cst.BaseExpression:
        """Returns what a name of variables was given between a block and the line that asks."""
        scope = self._source.scope(block.node)
        if isinstance(variables, cst.Name) and scope is not None:
            for given in scope.assignments[variables.value]:
                statement = self._statement_of(getattr(given, "node", None))
                if isinstance(statement, cst.Assign):
                    if block.end <= self._source.start(statement) < self._source.start(variables):
                        return statement.value
        return variables

    def _building(self, call: cst.Call, given: list[str]) -> str | None:
        """Returns the call of a model as it can stand above a tape, without training."""
        code = self._source.module.code_for_node
        kept = [each for each in call.args if not _is_of_training(each)]
        names = [name.value for each in kept for name in found_in(each.value, cst.Name)]
        inner = [arg for each in kept for arg in found_in(each.value, cst.Arg)]
        if not kept or not set(names).isdisjoint(given) or any(map(_is_of_training, inner)):
            return None
        arguments = ", ".join(
            (f"{each.keyword.value}=" if each.keyword else each.star) + code(each.value)
            for each in kept
        )
        return None if "\n" in arguments else f"{code(call.func)}({arguments})"

    def _asked_line(self, call: cst.Call, block: cst.With) -> Asked | None:
        """Returns a line `gradients = tape.gradient(loss, variables)` beside or in a block."""
        value: cst.CSTNode | None = call
        variables, target = _argument(call, 1, "sources"), _target(call)
        array: cst.BaseExpression | None = variables if isinstance(variables, cst.Name) else None
        parent = self._source.parent(call)
        if m.matches(
            parent or call,
            m.Subscript(slice=[m.SubscriptElement(m.Index(m.Integer("0")))]),
        ):
            if not isinstance(variables, cst.List) or len(variables.elements) != 1:
                return None
            value, variables = parent, variables.elements[0].value
            array = variables if isinstance(variables, cst.Name) else None
        statement = self._source.parent(value) if value is not None else None
        named = None
        if isinstance(statement, cst.Assign) and statement.value is value:
            named = statement.targets[0].target
            if len(statement.targets) != 1 or not _names_gradients(named, variables):
                return None
        else:
            statement = self._around(call)
        if (
            statement is None
            or not isinstance(target, cst.Name)
            or variables is None
            or len(call.args) != 2
            or (value is not call and (array is None or named is None))
        ):
            return None
        line = self._source.parent(statement)
        above = self._source.parent(line) if line is not None else None
        if above is not self._source.parent(block) and above is not block.body:
            return None
        return Asked(call, statement, named, variables, target.value, array)

    def _around(self, call: cst.Call) -> cst.BaseSmallStatement | None:
        """Returns the line that has a call among its arguments, or returns it."""
        at: cst.CSTNode | None = self._source.parent(call)
        while isinstance(at, cst.Arg | cst.Call | cst.Element | cst.List | cst.Tuple):
            at = self._source.parent(at)
        if not isinstance(at, cst.Assign | cst.Expr | cst.Return):
            return None
        line = self._source.parent(at)
        return at if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None

    def _can_be_named(self, asked: Asked) -> bool:
        """Returns whether a line above one can name its gradients, which are by plain variables."""
        scope = self._source.scope(asked.call)
        is_free = scope is not None and not scope[GRADIENTS]
        return is_free and not m.findall(asked.variables, m.Call())

    def _watching(self, block: Block) -> list[cst.Call]:
        """Returns the lines `tape.watch(x)` of a block."""
        names = {
            item.asname.name.value
            for item in block.node.items
            if item.asname is not None and isinstance(item.asname.name, cst.Name)
        }
        found = []
        for line in block.lines:
            call = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
            call = call.value if isinstance(call, cst.Expr) else None
            if isinstance(call, cst.Call) and len(call.args) == 1:
                func = call.func
                if m.matches(func, m.Attribute(m.Name(), m.Name("watch"))):
                    assert isinstance(func, cst.Attribute) and isinstance(func.value, cst.Name)
                    if func.value.value in names:
                        found.append(call)
        return found

    def _are_variables(self, watching: list[cst.Call], lines: list[Asked]) -> bool:
        """Returns whether only variables are watched, which they are anyway."""
        code = self._source.module.code_for_node
        asked = {code(each.variables) for each in lines}
        return all(
            code(call.args[0].value) in asked
            and code(call.args[0].value).endswith(("trainable_variables", "trainable_weights"))
            for call in watching
        )

    def _uses(self, block: cst.With) -> list[cst.CSTNode]:
        """Returns where the tapes of a block are named, until another one has the name."""
        scope = self._source.scope(block)
        assert scope is not None
        start = self._source.start(block)
        found: set[cst.CSTNode] = set()
        for item in block.items:
            assert item.asname is not None and isinstance(item.asname.name, cst.Name)
            name = item.asname.name.value
            given = list(scope[name])
            places = [self._source.start(getattr(each, "node", block)) for each in given]
            later = [place for place in places if place > self._source.end(block)]
            end = min(later, default=(sys.maxsize, 0))
            accesses = {access for each in given for access in each.references}
            reads = {
                a.node for a in accesses if a.scope is scope or name not in a.scope.assignments
            }
            found.update(node for node in reads if start < self._source.start(node) < end)
        return sorted(found, key=self._source.start)

    def _deleting(self, block: cst.With) -> list[cst.Del]:
        """Returns the lines `del tape` beside a block."""
        found = [self._source.parent(node) for node in self._uses(block)]
        return [
            each
            for each in found
            if isinstance(each, cst.Del)
            and (line := self._source.parent(each)) is not None
            and self._source.parent(line) is self._source.parent(block)
        ]

    def _is_used_otherwise(
        self,
        block: cst.With,
        lines: list[Asked],
        watching: list[cst.Call],
        deleting: list[cst.Del],
    ) -> bool:
        """Returns whether a tape is used for more than the gradients: `f(tape)`."""
        known: set[cst.CSTNode] = {
            call.func.value
            for call in [*(each.call for each in lines), *watching]
            if isinstance(call.func, cst.Attribute)
        }
        known.update(each.target for each in deleting)
        return any(node not in known for node in self._uses(block))

    def _is_read_between(self, given: list[str], between: Range, lines: list[Asked]) -> bool:
        """Returns whether names of the block are read before its tape is asked."""
        start, end = between
        scope = self._source.scope(lines[0].statement)
        return scope is not None and any(
            start <= self._source.start(access.node) < end
            for name in given
            for assignment in scope[name]
            for access in assignment.references
        )

    def _may_change(self, block: Block, between: Range) -> bool:
        """Returns whether lines below a block may change what it reads, or are another block."""
        start, end = between
        names = {each.value for each in names_in(block)}
        beside = getattr(self._source.parent(block.node), "body", ())
        lines = [each for each in beside if start <= self._source.start(each) < end]
        part = m.Attribute() | m.Subscript()
        changing = m.Call(m.DoesNotMatch(_PLAIN)) | m.AssignTarget(part) | m.AugAssign(part)
        return any(
            m.findall(line, changing)
            or any(
                each.value in names and self._source.is_bound(each)
                for each in found_in(line, cst.Name)
            )
            for line in lines
        )

    def _can_be_asked_at(self, end: Place, lines: list[Asked]) -> bool:
        """Returns whether the variables are known at the end of the block: none comes later."""
        scope = self._source.scope(lines[0].statement)
        for each in lines:
            if scope is None or m.findall(each.variables, m.Call()):
                return False
            for name in found_in(each.variables, cst.Name):
                nodes = [getattr(given, "node", None) for given in scope.assignments[name.value]]
                places = [self._source.start(node) for node in nodes if node is not None]
                if any(end <= place < self._source.start(each.call) for place in places):
                    return False
        return True

    def _is_given_before(self, name: str, block: Block) -> bool:
        scope, start = self._source.scope(block.node), self._source.start(block.node)
        found = [] if scope is None else list(scope.assignments[name])
        nodes = [node for each in found if (node := getattr(each, "node", None)) is not None]
        return any(self._source.start(node) < start for node in nodes)

    def _is_needed_first(self, name: str, block: Block) -> bool:
        """Returns whether a block may read a name from before, earlier than it gives it."""
        names = [each for each in names_in(block) if each.value == name]
        first = next(each for each in names if self._source.is_bound(each))
        statement = self._statement_of(first)
        line = None if statement is None else self._source.parent(statement)
        if statement is None or line not in block.lines:
            return True  # in a branch, or in a loop
        end = self._source.end(statement)
        reads = [each for each in names if self._source.is_read(each)]
        return isinstance(statement, cst.AugAssign) or any(
            self._source.start(each) < end for each in reads
        )


def _are_asked_for(given: list[str], lines: list[Asked]) -> bool:
    """Returns whether the gradients are by what a block gives."""
    return any(m.findall(each.variables, m.Name(name)) for each in lines for name in given)


def _names_gradients(target: cst.BaseExpression, variables: cst.BaseExpression | None) -> bool:
    """Returns whether it is one name, or one for each variable of a list: `dw, db = ...`."""
    names = m.Element(m.Name())
    is_each = m.matches(target, m.Tuple([names, m.ZeroOrMore(names)]))
    return isinstance(target, cst.Name) or (is_each and isinstance(variables, cst.List | cst.Tuple))


def _is_of_training(argument: cst.Arg) -> bool:
    return argument.keyword is not None and "training" in argument.keyword.value


def _argument(call: cst.Call, position: int, keyword: str) -> cst.BaseExpression | None:
    positional = [each.value for each in call.args if each.keyword is None]
    named = {each.keyword.value: each.value for each in call.args if each.keyword}
    return named.get(keyword, positional[position] if len(positional) > position else None)


def _target(call: cst.Call) -> cst.BaseExpression | None:
    return _argument(call, 0, "target")


def _loss(call: cst.Call) -> str:
    target = _target(call)
    return target.value if isinstance(target, cst.Name) else "loss"
