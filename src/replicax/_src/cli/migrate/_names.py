"""Which name of TensorFlow a chain of names stands for, through imports and aliases.

`tf.distribute.X`, `dist.X` after `from tensorflow import distribute as dist`, `X` after
`from tensorflow.distribute import X`, and `tfd.X` after `tfd = tf.distribute` are all found; a
parameter that happens to be called `tf` is not.
"""

import dataclasses
from typing import NamedTuple, final

import libcst as cst
from libcst.metadata import Assignment, BaseAssignment, GlobalScope, ImportAssignment

from replicax._src.cli.migrate._source import Source, dotted

# How packages are called in the table.
_ROOTS = {
    "keras": "keras",
    "replicax": "rx",
    "tensorflow": "tf",
    "tensorflow_core": "tf",
    "tensorflow_datasets": "tfds",
    "tf_keras": "tf.keras",
}


@final
@dataclasses.dataclass(eq=False)
class Binding:
    """A line that gives something of TensorFlow a name in the file."""

    statement: cst.CSTNode
    """The `Import`, `ImportFrom`, `Assign` or `AnnAssign`."""
    alias: cst.ImportAlias | None
    """Which part of an import it is."""
    local: str
    target: str
    """What it is a name of: `tf`, `tf.distribute`."""

    @property
    def is_import(self) -> bool:
        """Whether it is an import, and not an assignment."""
        return self.alias is not None


@final
class Resolved(NamedTuple):
    """A chain of names that leads to TensorFlow."""

    name: str
    """As in the table: `tf.distribute.MirroredStrategy`."""
    bindings: list[Binding]
    """The lines that it may come from; they agree on what it is."""


@final
class Names:
    """Looks names up in a file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._bindings: dict[tuple[cst.CSTNode, str], Binding | None] = {}
        self._busy: set[cst.CSTNode] = set()

    def resolve(self, node: cst.BaseExpression) -> Resolved | None:
        """Returns what a name or a chain of names stands for; None if it is not TensorFlow's."""
        if isinstance(node, cst.Attribute):
            if (base := self.resolve(node.value)) is None:
                return None
            name = f"{base.name}.{node.attr.value}"
            # `tf = tf.compat.v1`, in two branches: v1 has itself in it.
            return Resolved(name.replace(".compat.v1.compat.v1", ".compat.v1"), base.bindings)
        if not isinstance(node, cst.Name):
            return None
        # Several assignments, as in `try: import a.b as c` and `except ...: from a import b as c`,
        # count if they agree. `c = None` is what is left where there is no a.
        given, found = self._candidates(node)
        if not found or not _agree(given, found):
            return None
        # The last, as in `tf = tf.compat.v1` after the import; Keras may also be TensorFlow's.
        of_tensorflow = [each for each in found if each.target.startswith("tf")]
        return Resolved((of_tensorflow or found)[-1].target, found)

    def unclear(self, node: cst.Name) -> list[Binding]:
        """Returns what a name may stand for of TensorFlow, where it may be something else too."""
        given, found = self._candidates(node)
        return [] if _agree(given, found) else found

    def _candidates(self, node: cst.Name) -> tuple[list[BaseAssignment], list[Binding]]:
        given = [each for each in self.assignments(node) if not self._is_neutral(each)]
        return given, [each for item in given if (each := self._binding(item))]

    def bound_by(self, target: cst.Name) -> Binding | None:
        """Returns the alias that an assignment makes of this name, if it is of something here."""
        for assignment in self.assignments(target):
            if isinstance(assignment, Assignment) and assignment.node is target:
                return self._binding(assignment)
        return None

    def imported_by(self, statement: cst.Import | cst.ImportFrom, local: str) -> list[Binding]:
        """Returns the bindings that an import makes of a name."""
        scope = self._source.scope(statement)
        found = [] if scope is None else list(scope.assignments[local])
        here = [each for each in found if getattr(each, "node", None) is statement]
        return [binding for each in here if (binding := self._binding(each))]

    def assignments(self, node: cst.Name) -> list[BaseAssignment]:
        """Returns what a name may have been bound by where it is read; in the order of the file."""
        scope = self._source.scope(node)
        if scope is None:
            return []
        found = [each for each in scope[node.value] if hasattr(each, "node")]
        return sorted(found, key=lambda each: self._source.start(each.node))  # type: ignore

    def import_name(self, module: str) -> tuple[str, int] | None:
        """Returns the name by which the whole file has imported a module, and the line."""
        scope = self._source.scope(self._source.module)
        if not isinstance(scope, GlobalScope):
            return None
        for assignment in scope.assignments:
            if isinstance(assignment, ImportAssignment):
                for local, target, _ in imported(assignment.node):
                    if target == module and local == assignment.name:
                        return local, self._source.start(assignment.node)[0]
        return None

    def imports_before(self, line: int, module: str) -> bool:
        """Returns whether the whole file has a module by its name, from a line above this one."""
        scope = self._source.scope(self._source.module)
        found = scope.assignments[module] if scope is not None else ()
        return any(
            isinstance(each, ImportAssignment) and self._source.start(each.node)[0] < line
            for each in found
        )

    def is_taken(self, name: str) -> bool:
        """Returns whether the file uses a name for something anywhere."""
        return any(
            name in scope.assignments or name in scope.accesses for scope in self._source.scopes
        )

    def _is_neutral(self, assignment: BaseAssignment) -> bool:
        node = getattr(assignment, "node", None)
        if node in self._busy:  # what is on the right side of this assignment
            return True
        statement = assigned_in(self._source, node) if isinstance(node, cst.Name) else None
        return statement is not None and dotted(statement.value) == "None"

    def _binding(self, assignment: BaseAssignment) -> Binding | None:
        node = getattr(assignment, "node", None)
        if node is None:
            return None
        key = (node, assignment.name)
        if key not in self._bindings:
            self._busy.add(node)
            self._bindings[key] = self._new_binding(assignment)
            self._busy.discard(node)
        return self._bindings[key]

    def _new_binding(self, assignment: BaseAssignment) -> Binding | None:
        if isinstance(assignment, ImportAssignment):
            node = assignment.node
            for local, target, alias in imported(node):
                if local == assignment.name and (name := table_name(target)):
                    return Binding(node, alias, local, name)
            return None
        if isinstance(assignment, Assignment) and isinstance(assignment.node, cst.Name):
            statement = assigned_in(self._source, assignment.node)
            if statement is not None and dotted(statement.value):
                assert statement.value is not None
                if resolved := self.resolve(statement.value):
                    return Binding(statement, None, assignment.name, resolved.name)
        return None


def _agree(given: list[BaseAssignment], found: list[Binding]) -> bool:
    targets = {
        each.target.replace("tf.compat.v1", "tf").replace("tf.keras", "keras") for each in found
    }
    return len(found) == len(given) and len(targets) <= 1


def assigned_in(source: Source, target: cst.CSTNode) -> cst.Assign | cst.AnnAssign | None:
    """Returns the statement `target = value`, where a target is the whole left side of one."""
    parent = source.parent(target)
    if isinstance(parent, cst.AssignTarget):
        parent = source.parent(parent)
    if isinstance(parent, cst.Assign | cst.AnnAssign) and target is not parent.value:
        return parent
    return None


def table_name(module: str) -> str | None:
    """Returns a full name as the table has it: `tensorflow.nn.relu` is `tf.nn.relu`."""
    first, _, rest = module.partition(".")
    if first not in _ROOTS:
        return None
    name = f"{_ROOTS[first]}.{rest}".rstrip(".")
    for place, other in (("tf.compat.v2", "tf"), ("tf.python.keras", "tf.keras")):
        if name == place or name.startswith(f"{place}."):
            return other + name[len(place) :]
    return name


def imported(node: cst.CSTNode) -> list[tuple[str, str, cst.ImportAlias]]:
    """Returns (name in the file, full name, part of the statement) for each name of an import."""
    found = []
    if isinstance(node, cst.Import):
        for alias in node.names:
            module = dotted(alias.name) or ""
            if alias.asname is not None:
                found.append((dotted(alias.asname.name) or "", module, alias))  # type: ignore
            else:
                first = module.partition(".")[0]
                found.append((first, first, alias))
    elif isinstance(node, cst.ImportFrom) and not node.relative:
        module = dotted(node.module) or ""
        if not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                name = dotted(alias.name) or ""
                local = dotted(alias.asname.name) if alias.asname else name  # type: ignore
                found.append((local or "", f"{module}.{name}", alias))
    return found
