"""A tape that becomes a function of the loss: what is written in its place."""

from collections.abc import Callable
from typing import NamedTuple, final

import libcst as cst

from replicax._src.cli.migrate._edits import Edits, Range
from replicax._src.cli.migrate._imports import remove_statement
from replicax._src.cli.migrate._source import Source

GRADIENTS = "gradients"  # where a line does not name them


@final
class Asked(NamedTuple):
    """A line that asks a tape: `gradients = tape.gradient(loss, variables)`."""

    call: cst.Call
    statement: cst.BaseSmallStatement
    target: cst.BaseExpression | None
    """What the line names gradients; None if they are not named: `apply(tape.gradient(...))`."""
    variables: cst.BaseExpression
    loss: str
    array: cst.BaseExpression | None
    """What the gradient is of, where it is one name: an array, if it is watched."""


@final
class Late(NamedTuple):
    """A Keras model that has no variables before it is called."""

    model: str
    call: str | None
    """A call that builds it and does no more, above the tape; None if there is none to be seen."""


@final
class Turned(NamedTuple):
    """A tape that becomes a function of the loss; a block that nobody asks stands without one."""

    block: cst.With
    lines: tuple[cst.BaseStatement, ...]
    """The lines of the block that become the function."""
    asked: tuple[Asked, ...] = ()
    more: tuple[str, ...] = ()
    """What else of the block is read below it."""
    captured: tuple[str, ...] = ()
    """Names that are given before the block, which reads them and gives them again."""
    watching: tuple[cst.Call, ...] = ()
    """Calls of `tape.watch`, which go."""
    deleting: tuple[cst.Del, ...] = ()
    """Lines `del tape`, which go too."""
    late: tuple[Late, ...] = ()
    """Models that may have no variables yet, in the order in which they are asked for."""
    is_early: bool = False
    """Whether lines between the block and those that ask need what the block gives."""

    @property
    def by_array(self) -> str | None:
        """The array that is watched and differentiated by, if that is no variable."""
        array = self.asked[0].array if self.asked and self.watching else None
        return array.value if isinstance(array, cst.Name) else None

    @property
    def function(self) -> str:
        """What differentiates."""
        if self.by_array:
            return "jax.grad"
        is_one = len({each.loss for each in self.asked}) == 1
        return "rx.value_and_grad" if is_one else "rx.values_and_grads"

    def write(self, name: str, spelled: Callable[[str], str], source: Source, edits: Edits) -> None:
        """Makes the block a function with a name that is free, and calls it."""
        header = edits.line(source.start(self.block)[0])
        outer = header[: len(header) - len(header.lstrip())]
        first = edits.line(source.start(self.lines[0])[0]) if self.lines else header
        inner = first[: len(first) - len(first.lstrip())]
        if not self.asked:
            edits.remove_lines(source.start(self.block)[0], source.end(self.block.items[-1])[0])
            _dedent(
                source.end(self.block.items[-1])[0] + 1, self.block, inner, outer, source, edits
            )
            return
        for late in self.late:
            if late.call is not None:
                for text in (f"{outer}if not {late.model}.built:", f"{inner}{late.call}"):
                    edits.add_line_above(source.start(self.block)[0], text)
        parameters = [self.by_array] if self.by_array else []
        parameters += [f"{each}={each}" for each in self.captured if each != self.by_array]
        last_item = self.block.items[-1]
        edits.replace(
            source.start(self.block), source.end(last_item), f"def {name}({', '.join(parameters)})"
        )
        for call in self.watching:
            statement = source.parent(call)
            assert isinstance(statement, cst.Expr)
            remove_statement(statement, source, edits)
        for deletion in self.deleting:
            remove_statement(deletion, source, edits)
        line = source.end(self.lines[-1])[0]
        edits.add_line_below(line, f"{inner}return {self._returned(spelled)}")
        if edits.line(line + 1).strip():
            edits.add_line_below(line, "")
        if line < source.end(self.block)[0]:
            _dedent(line + 1, self.block, inner, outer, source, edits)
        if self.is_early:
            if not edits.line(line + 1).strip():
                edits.add_line_below(line, "")
            left, function, ending = self._parts(name, spelled, source)
            edits.add_line_below(line, f"{outer}{left} = {function}{self._sources(source)}{ending}")
        else:
            self._call(name, spelled, source, edits)
        for each in self.asked[0 if self.is_early else 1 :]:
            remove_statement(each.statement, source, edits)

    def _returned(self, spelled: Callable[[str], str]) -> str:
        if self.by_array:
            total = f"{spelled('jnp.sum')}({self.asked[0].loss})"  # as a tape adds them up
            return ", ".join([total, as_one(list(self.more))] if self.more else [total])
        losses = list(dict.fromkeys(each.loss for each in self.asked))
        value = ", ".join(losses)
        if not self.more:
            return value
        return f"{as_one(losses)}, {as_one(list(self.more))}"

    def _call(self, name: str, spelled: Callable[[str], str], source: Source, edits: Edits) -> None:
        first, only = self.asked[0].statement, self.asked[0].variables
        left, function, ending = self._parts(name, spelled, source)
        if self.asked[0].target is None:
            line = source.start(first)[0]
            text = f"{left} = {function}{self._sources(source)}{ending}"
            edits.add_line_above(line, edits.indentation(line) + text)
            call = self.asked[0].call
            edits.replace(source.start(call), source.end(call), GRADIENTS)
            return
        if self.by_array:
            sources: str | Range = self.by_array
        elif len(self.asked) > 1:
            sources = self._sources(source)
        else:
            sources = (source.start(only), source.end(only))
        edits.replace(
            source.start(first), source.end(first), f"{left} = {function}", sources, ending
        )

    def _parts(
        self, name: str, spelled: Callable[[str], str], source: Source
    ) -> tuple[str, str, str]:
        """Returns what is left of the call, and the call before and after its variables."""
        gradients = as_one([_written(each.target, source) for each in self.asked])
        function = spelled(self.function)
        ending = ", has_aux=True)" if self.more else ")"
        if self.by_array:
            left = f"{gradients}, {as_one(list(self.more))}" if self.more else gradients
            return left, f"{function}({name}{ending}(", ")"
        losses = as_one(list(dict.fromkeys(each.loss for each in self.asked)))
        left = f"({losses}, {as_one(list(self.more))})" if self.more else losses
        return f"{left}, {gradients}", f"{function}({name}, ", ending

    def _sources(self, source: Source) -> str:
        return as_one([source.module.code_for_node(each.variables) for each in self.asked])


def _dedent(
    start: int, block: cst.With, inner: str, outer: str, source: Source, edits: Edits
) -> None:
    """Moves the lines of a block, from one on, to where the block itself stands."""
    for line in range(start, source.end(block)[0] + 1):
        if edits.line(line).startswith(inner):
            edits.move_left(line, len(outer), len(inner))


def _written(target: cst.BaseExpression | None, source: Source) -> str:
    if target is None:
        return GRADIENTS
    code = source.module.code_for_node(target)
    return f"({code})" if isinstance(target, cst.Tuple) and not target.lpar else code


def as_one(names: list[str]) -> str:
    """Returns a name, or several as a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
