"""What an object is: a strategy, a data set, a tape. Guessed from how it was made and is called.

Good enough to tell `strategy.run` from `subprocess.run`: looks through assignments, attributes of
`self`, annotations, functions of the file that return something, and names like `my_strategy`.
"""

from typing import final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import Assignment

from replicax._src._typing import override
from replicax._src.cli.migrate import _objects_table
from replicax._src.cli.migrate._lookup import lookup, other_names
from replicax._src.cli.migrate._names import Names, assigned_in
from replicax._src.cli.migrate._source import Source, dotted

# What is called so is probably one.
_BY_NAME = {
    "strategy": "Strategy",
    "replica_context": "ReplicaContext",
    "input_context": "InputContext",
    "tape": "GradientTape",
    "dataset": "Dataset",
    "ds": "Dataset",
    "model": "Model",
}
# Through how many assignments a name is followed.
_DEEPEST = 60
# What iter() makes of it.
_ITERATORS = {"Dataset": "Iterator", "DistributedDataset": "InputIterator"}


@final
class Objects:
    """Tells what the expressions of a file are."""

    def __init__(
        self, source: Source, names: Names, definitions: "Definitions", by_name: bool
    ) -> None:
        """Prepares for a file.

        Args:
          source: the file.
          names: what its names stand for.
          definitions: what is defined in it.
          by_name: take what is called `strategy` for one, where nothing else is known.
        """
        self._source = source
        self._by_name = _BY_NAME if by_name else {}
        self._names = names
        self._busy: set[cst.CSTNode] = set()
        self._known: dict[cst.CSTNode, str | None] = {}
        self._attribute_values = definitions.attributes

    def what_is(self, node: cst.BaseExpression) -> str | None:
        """Returns what an expression is, as the table calls it; None if that is not clear."""
        if node in self._busy or len(self._busy) > _DEEPEST:  # x = x.batch(2), again and again
            return None
        if node not in self._known:
            self._busy.add(node)
            self._known[node] = self._guess(node)
            self._busy.discard(node)
        return self._known[node]

    def _guess(self, node: cst.BaseExpression) -> str | None:
        if isinstance(node, cst.Call):
            return self._of_call(node)
        if isinstance(node, cst.Attribute):
            owner = self.what_is(node.value)
            given = (
                _objects_table.METHOD_RETURNS.get(f"{owner}.{node.attr.value}") if owner else None
            )
            if given or owner:
                return given
            values = self._attribute_values.get(node.attr.value, [])
            if self._by_name and node.attr.value == "shape":
                return self._all_of(values) or "Shape"
            return self._all_of(values) or self._called(node.attr.value)
        if isinstance(node, cst.Subscript):
            return _objects_table.ITEMS.get(self.what_is(node.value) or "")
        if isinstance(node, cst.List | cst.Tuple):
            kinds = {self.what_is(each.value) for each in node.elements}
            return "Variables" if kinds == {"Variable"} else None
        if isinstance(node, cst.BooleanOperation):  # strategy or tf.distribute.get_strategy()
            return self._all_of([node.left, node.right])
        if isinstance(node, cst.Name):
            return self._of_name(node)
        if isinstance(node, cst.IfExp):
            return self._all_of([node.body, node.orelse])
        if isinstance(node, cst.NamedExpr | cst.Await):
            return self.what_is(node.value if isinstance(node, cst.NamedExpr) else node.expression)
        return None

    def _of_call(self, node: cst.Call) -> str | None:
        if resolved := self._names.resolve(node.func):
            return _returned_by(resolved.name)
        if m.matches(node.func, m.Name("iter")) and node.args:
            return _ITERATORS.get(self.what_is(node.args[0].value) or "")
        if isinstance(node.func, cst.Attribute):
            owner = self.what_is(node.func.value)
            method = node.func.attr.value
            owner = owner or _objects_table.TELLING.get(method)
            specific = _objects_table.METHOD_RETURNS.get(f"{owner}.{method}")
            return specific or _objects_table.METHOD_RETURNS.get(f"{owner}.*")
        if isinstance(node.func, cst.Name):
            for assignment in self._names.assignments(node.func):
                function = getattr(assignment, "node", None)
                if isinstance(function, cst.FunctionDef):
                    return self._all_of(_returned(function))
                if isinstance(function, cst.ClassDef):
                    return self._all_of([base.value for base in function.bases], called=True)
        return None

    def _of_name(self, node: cst.Name) -> str | None:
        kinds: list[str | None] = []
        for assignment in self._names.assignments(node):
            if isinstance(assignment, Assignment):
                kinds.append(self._of_binding(assignment.node))
        known = {kind for kind in kinds if kind}
        if len(known) == 1:
            return known.pop()
        return None if known else self._called(node.value)

    def _of_binding(self, node: cst.CSTNode) -> str | None:
        if isinstance(node, cst.Param):
            return self._of_annotation(node.annotation) if node.annotation else None
        if (statement := assigned_in(self._source, node)) is not None:
            if isinstance(statement, cst.AnnAssign) and (
                kind := self._of_annotation(statement.annotation)
            ):
                return kind
            return self.what_is(statement.value) if statement.value is not None else None
        parent = self._source.parent(node)
        if isinstance(parent, cst.Element) and (value := self._unpacked(parent)):
            return self.what_is(value)
        if isinstance(parent, cst.AsName):
            item = self._source.parent(parent)
            if isinstance(item, cst.WithItem):
                return self.what_is(item.item)
        if isinstance(parent, cst.NamedExpr):
            return self.what_is(parent.value)
        return None

    def _unpacked(self, element: cst.Element) -> cst.BaseExpression | None:
        """Returns what a name on the left side of `a, b = x, y` is given: x."""
        left = self._source.parent(element)
        statement = assigned_in(self._source, left) if isinstance(left, cst.Tuple) else None
        right = statement.value if statement is not None else None
        if not isinstance(left, cst.Tuple) or not isinstance(right, cst.Tuple):
            # tfds.load gives data sets in tuples and dicts, and what is known of them at the end.
            is_info = isinstance(left, cst.Tuple) and element is left.elements[-1]
            if right is None or self.what_is(right) != "Dataset" or (is_info and _has_info(right)):
                return None
            return right
        place = left.elements.index(element)
        return right.elements[place].value if place < len(right.elements) else None

    def _of_annotation(self, annotation: cst.Annotation) -> str | None:
        """Returns what is annotated with a class, or with Optional[class] or class | None."""
        node = annotation.annotation
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            if (dotted(node.value) or "").endswith("Optional"):
                inner = node.slice[0].slice
                node = inner.value if isinstance(inner, cst.Index) else node
        kinds = [node.left, node.right] if isinstance(node, cst.BinaryOperation) else [node]
        return self._all_of(kinds, called=True)

    def _called(self, name: str) -> str | None:
        name = name.lower().strip("_")
        ends = self._by_name.items()
        return next((is_a for end, is_a in ends if name == end or name.endswith(f"_{end}")), None)

    def _all_of(self, nodes: list[cst.BaseExpression], called: bool = False) -> str | None:
        """Returns what all of these are, as far as it is known."""
        found = set()
        for node in nodes:
            if called:
                resolved = self._names.resolve(node)
                found.add(_returned_by(resolved.name) if resolved else None)
            else:
                found.add(self.what_is(node))
        found.discard(None)
        if "KerasVariable" in found:  # in one class of the file, and ours in another
            found.discard("Variable")
        return found.pop() if len(found) == 1 else None


def _has_info(node: cst.BaseExpression) -> bool:
    """Returns whether it is `tfds.load(..., with_info=True)`."""
    return bool(m.findall(node, m.Arg(keyword=m.Name("with_info"))))


def _returned_by(name: str) -> str | None:
    """Returns what a call of a name of TensorFlow, or of replicax, gives."""
    match = lookup(name)
    new = match.entry.new if name.startswith("tf.") else ""
    rest = name[len(match.name) :] if new else ""
    for each in [*([f"{new}{rest}"] if new else []), *other_names(name)]:
        if each in _objects_table.RETURNS:
            return _objects_table.RETURNS[each]
        while "." in each:
            each = each.rpartition(".")[0]
            if f"{each}.*" in _objects_table.RETURNS:
                return _objects_table.RETURNS[f"{each}.*"]
    return None


def _returned(function: cst.FunctionDef) -> list[cst.BaseExpression]:
    found = _Returns()
    function.body.visit(found)
    return found.values


@final
class _Returns(cst.CSTVisitor):
    """The values that a function returns, without those of functions in it."""

    def __init__(self) -> None:
        self.values: list[cst.BaseExpression] = []

    @override
    def visit_Return(self, node: cst.Return) -> None:
        if node.value is not None:
            self.values.append(node.value)

    @override
    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    @override
    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


@final
class Definitions(cst.CSTVisitor):
    """Functions of the file, and what is assigned to attributes anywhere in it, by name."""

    def __init__(self, source: Source) -> None:
        """Reads the file."""
        self.attributes: dict[str, list[cst.BaseExpression]] = {}
        self.functions: dict[str, list[cst.FunctionDef]] = {}
        source.module.visit(self)

    @override
    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            if isinstance(target.target, cst.Attribute):
                self.attributes.setdefault(target.target.attr.value, []).append(node.value)

    @override
    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.setdefault(node.name.value, []).append(node)
