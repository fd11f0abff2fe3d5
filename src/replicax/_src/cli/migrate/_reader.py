"""Finds every use of TensorFlow in a file: names, methods of its objects, imports."""

import dataclasses
from typing import final

import libcst as cst
import libcst.matchers as m

from replicax._src._typing import override
from replicax._src.cli.migrate import _table
from replicax._src.cli.migrate._lookup import Entry, Match, is_remark_on_all, lookup, lookup_method
from replicax._src.cli.migrate._names import Binding, Names, Resolved
from replicax._src.cli.migrate._objects import Definitions, Objects
from replicax._src.cli.migrate._source import Source, dotted
from replicax._src.cli.migrate._verdict import MARK, Verdict

_TAKES_FUNCTION = ("map", "filter", "flat_map", "interleave", "reduce")

# What other libraries have as well: a guess is made only in files that import TensorFlow.
_BESIDE_TENSORFLOW = ("Dataset", "Model", "Shape", "Tensor")


@final
@dataclasses.dataclass(eq=False)
class Use:
    """A name of TensorFlow that is used: of `tf.distribute.ReduceOp.SUM`, all but the `SUM`."""

    node: cst.Name | cst.Attribute
    match: Match
    rest: str
    """The attributes that follow: `SUM`."""
    bindings: list[Binding]
    call: cst.Call | None
    """The call of the whole chain, if it is called."""
    defines: Binding | None
    """The alias that this use is the right side of."""

    @property
    def names_keras(self) -> bool:
        """Whether it is that of `keras = tf.keras`."""
        binding = self.defines
        return binding is not None and (binding.local, binding.target) == ("keras", "tf.keras")


@final
@dataclasses.dataclass(eq=False)
class MethodUse:
    """A method or attribute of an object: `strategy.run`."""

    node: cst.Attribute
    owner: str
    entry: Entry
    call: cst.Call | None
    is_guess: bool
    """Whether only a name like `model` says so: it means something where TensorFlow is imported."""

    @property
    def name(self) -> str:
        """As the table has it: `Strategy.run`."""
        return f"{self.owner}.{self.node.attr.value}"


@final
class Reader(cst.CSTVisitor):
    """Walks over a file; afterwards `uses`, `methods` and the like have what was found."""

    def __init__(self, source: Source, names: Names) -> None:
        self._source = source
        self._names = names
        self._definitions = Definitions(source)
        self._certain = Objects(source, names, self._definitions, by_name=False)
        self._likely = Objects(source, names, self._definitions, by_name=True)
        self.uses: list[Use] = []
        self.methods: list[MethodUse] = []
        self.called: list[tuple[cst.Call, str, Entry]] = []
        """Objects that are called, where something is said of that: a Keras model."""
        self.conversions: list[cst.Call] = []
        """Calls of `.numpy()`, of what may be an array."""
        self.loops: list[tuple[cst.CSTNode, str]] = []
        """Loops over data sets, and iterators of them."""
        self.imports: list[cst.Import | cst.ImportFrom] = []
        self.map_functions: set[cst.CSTNode] = set()
        """Functions of `dataset.map` and the like, which work on NumPy arrays."""
        self.marks: list[cst.Comment] = []
        """What an earlier `--write` has left."""
        self.annotations: list[cst.SimpleString] = []
        """Strings in annotations."""
        self.unclear: list[tuple[cst.Name, list[Binding]]] = []
        """Names that stand for something of TensorFlow and, elsewhere, for something else."""
        self.cluster_variables: list[cst.SimpleString] = []
        """The words "TF_CONFIG"."""
        self.old_keras: list[tuple[cst.Name | cst.Attribute, str, Entry]] = []
        """What is used of Keras itself and has to be thought about."""
        self.sets_backend = False
        """Whether the file tells Keras on what to run."""
        self.trains_own_variables = False
        """Whether an optimizer is given variables that are not Keras's."""

    @override
    def visit_Import(self, node: cst.Import) -> bool:
        self.imports.append(node)
        return False

    @override
    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self.imports.append(node)
        return False

    @override
    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if node.value.strip("'\"") == "TF_CONFIG":
            self.cluster_variables.append(node)
        self.sets_backend |= node.value.strip("'\"") == "KERAS_BACKEND"

    @override
    def visit_Comment(self, node: cst.Comment) -> None:
        if node.value.startswith(MARK):
            self.marks.append(node)

    @override
    def visit_For(self, node: cst.For) -> None:
        self._loop(node.iter, "for")

    @override
    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._loop(node.iter, "for")

    def _loop(self, over: cst.BaseExpression, name: str) -> None:
        if self._certain.what_is(over) in ("Dataset", "DistributedDataset"):
            self.loops.append((over, name))

    @override
    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Name) and node.func.value == "iter" and node.args:
            self._loop(node.args[0].value, "iter")
        owner = self._certain.what_is(node.func)
        if owner is None and any(
            m.matches(each.keyword, m.Name("training")) for each in node.args if each.keyword
        ):
            owner = self._likely.what_is(node.func)
        if owner and (entry := lookup_method(owner, "()")):
            self.called.append((node, owner, entry))

    @override
    def visit_Annotation(self, node: cst.Annotation) -> None:
        literals = m.findall(
            node, m.Subscript(m.Name("Literal") | m.Attribute(attr=m.Name("Literal")))
        )
        no_names = {each for literal in literals for each in m.findall(literal, m.SimpleString())}
        strings = (each for each in m.findall(node, m.SimpleString()) if each not in no_names)
        self.annotations += (each for each in strings if isinstance(each, cst.SimpleString))

    @override
    def visit_Name(self, node: cst.Name) -> None:
        if self._source.is_read(node):
            self._chain(node)

    @override
    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)  # and not its keyword, which is no name of the file
        return False

    @override
    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if not self._chain(node):
            self._method(node)
            node.value.visit(self)
        return False

    def _chain(self, node: cst.Name | cst.Attribute) -> bool:
        """Takes a whole chain of names, if it is TensorFlow's."""
        resolved = self._names.resolve(node)
        if resolved is None:
            if isinstance(node, cst.Name) and (bindings := self._names.unclear(node)):
                self.unclear.append((node, bindings))
            return False
        root = resolved.name.split(".")[0]
        if root in ("tf", "tfds"):
            self.uses.append(self._use(node, resolved))
        elif root == "keras":
            name, entry = lookup(f"tf.{resolved.name}")
            if entry.verdict.by_hand:
                self.old_keras.append((node, name, entry))
        return True

    def _use(self, node: cst.Name | cst.Attribute, resolved: Resolved) -> Use:
        match = lookup(resolved.name)
        rest = resolved.name[len(match.name) :].strip(".").split(".")
        part: cst.BaseExpression = node
        following: list[str] = []
        while rest[0] and len(following) < len(rest) and isinstance(part, cst.Attribute):
            part = part.value
            following.insert(0, rest[len(rest) - 1 - len(following)])
        # What is left of the rest is inside of an alias: total = tf.distribute.ReduceOp.SUM
        inside = rest[: len(rest) - len(following)] if rest[0] else []
        if inside and match.entry.new:
            match = Match(
                ".".join([match.name, *inside]),
                match.entry._replace(new=".".join([match.entry.new, *inside])),
            )
        assert isinstance(part, cst.Name | cst.Attribute)
        parent = self._source.parent(node)
        defines = None
        if isinstance(parent, cst.Assign | cst.AnnAssign) and parent.value is node:
            if isinstance(target := _only_target(parent), cst.Name):
                defines = self._names.bound_by(target)
        call = self._call_of(node)
        return Use(part, match, ".".join(following), resolved.bindings, call, defines)

    def _method(self, node: cst.Attribute) -> None:
        method = node.attr.value
        call = self._call_of(node)
        owner = self._certain.what_is(node.value)
        has_numpy = owner in ("Variable", "KerasVariable")
        if method == "numpy" and not has_numpy and call is not None and not call.args:
            self.conversions.append(call)
            return
        if method in ("apply_gradients", "build") and call is not None:
            self.trains_own_variables |= any(map(self._is_own_variable, call.args))
        likely = owner or _table.TELLING.get(method) or self._likely.what_is(node.value)
        is_guess = likely in _BESIDE_TENSORFLOW and (owner is None or likely in ("Shape", "Tensor"))
        entry = lookup_method(likely, method) if likely else None
        if likely is None or entry is None:
            return
        # A guess by name may be wrong: what a strategy does not have is then no mistake.
        if owner is None and is_remark_on_all(likely, method):
            return
        is_written = not self._source.is_read(node)
        if entry.verdict is Verdict.SAME or not is_written or (owner and entry.verdict.by_hand):
            self.methods.append(MethodUse(node, likely, entry, call, is_guess))
        if likely == "Dataset" and method in _TAKES_FUNCTION and call is not None and call.args:
            self._take_function(call.args[0].value)

    def _is_own_variable(self, argument: cst.Arg) -> bool:
        """Whether an argument is a `tf.Variable`, or has some in it: zip(gradients, [w])."""
        names = m.findall(argument.value, m.Name() | m.Attribute())
        kinds = {
            self._certain.what_is(each)
            for each in names
            if isinstance(each, cst.Name | cst.Attribute)
        }
        return not kinds.isdisjoint(("Variable", "Variables"))

    def _take_function(self, node: cst.BaseExpression) -> None:
        """Notes the functions of the file that a data set is given: f, self.f, partial(f, 1)."""
        if isinstance(node, cst.Name):
            for assignment in self._names.assignments(node):
                self.map_functions.add(getattr(assignment, "node", node))
        elif isinstance(node, cst.Attribute):
            self.map_functions.update(self._definitions.functions.get(node.attr.value, ()))
        elif isinstance(node, cst.Lambda):
            self.map_functions.add(node)
            if isinstance(node.body, cst.Call):  # lambda x: f(x, 1)
                self._take_function(node.body.func)
        elif isinstance(node, cst.Call) and (dotted(node.func) or "").endswith("partial"):
            for argument in node.args[:1]:
                self._take_function(argument.value)

    def _call_of(self, node: cst.CSTNode) -> cst.Call | None:
        parent = self._source.parent(node)
        return parent if isinstance(parent, cst.Call) and parent.func is node else None


def _only_target(statement: cst.Assign | cst.AnnAssign) -> cst.BaseExpression | None:
    if isinstance(statement, cst.AnnAssign):
        return statement.target
    return statement.targets[0].target if len(statement.targets) == 1 else None
