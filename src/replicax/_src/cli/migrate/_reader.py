"""Finds every use of TensorFlow in a file: names, methods of its objects, imports."""

import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Callable
from typing import final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import GlobalScope

from replicax._src._typing import override
from replicax._src.cli.migrate import _calls_table, _objects_table
from replicax._src.cli.migrate._lookup import Entry, Match, is_remark_on_all, lookup, lookup_method
from replicax._src.cli.migrate._names import Binding, Names, Resolved, assigned_in, table_name
from replicax._src.cli.migrate._objects import Definitions, Objects
from replicax._src.cli.migrate._source import Source, dotted, found_in
from replicax._src.cli.migrate._verdict import MARK, Verdict

# What has variables of Keras.
_MODELS = re.compile(r"(tf\.)?keras\.(Input|Layer|Model|Sequential|applications|layers|models)\b")

_TAKES_FUNCTION = ("map", "filter", "flat_map", "interleave", "reduce")

# What other libraries have as well: a guess is made only in files that import TensorFlow.
_BESIDE_TENSORFLOW = ("Dataset", "GradientTape", "Model", "Shape", "Tensor")


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
        self.backends: list[cst.SimpleString] = []
        """The words "tensorflow", where Keras is told to run on it."""
        self.backend_line = sys.maxsize
        """The first line that tells Keras on what to run."""
        self.trains_own_variables = False
        """Whether an optimizer is given variables that are not Keras's."""
        self._has_models = self._has_optimizers = self._makes_models = False
        self.first_use = sys.maxsize
        """The first line in which TensorFlow is used when the file is run."""

    @property
    def has_models(self) -> bool:
        """Whether it has models, layers or optimizers of Keras, and so variables of Keras."""
        return self._has_models or (self._has_optimizers and not self.trains_own_variables)

    @property
    def is_program_without_strategy(self) -> bool:
        """Whether it makes models when it is run, and nothing in it is called a strategy."""
        names = m.findall(self._source.module, m.Name(m.MatchRegex("(?i).*strategy.*|distribute")))
        return not names and (self._makes_models or "__main__" in self._source.text)

    @override
    def visit_Import(self, node: cst.Import) -> bool:
        self.imports.append(node)
        return False

    @override
    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self.imports.append(node)
        if isinstance(node.names, cst.ImportStar) and not node.relative:
            module = table_name(dotted(node.module) or "") or ""
            self._has_models |= _MODELS.match(module) is not None
        return False

    @override
    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if node.value.strip("'\"") == "TF_CONFIG":
            self.cluster_variables.append(node)
        if node.value.strip("'\"") == "KERAS_BACKEND":
            self.backend_line = min(self.backend_line, self._source.start(node)[0])
            statement = self._source.around(node, cst.BaseSmallStatement)
            if isinstance(statement, cst.Assign | cst.Expr):
                words = found_in(statement.value, cst.SimpleString)
                self.backends += (e for e in words if e.value.strip("'\"") == "tensorflow")

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
        self._makes_models |= self.runs_once(node) and self._certain.what_is(node) == "Model"
        if owner and (entry := lookup_method(owner, "()")):
            self.called.append((node, owner, entry))

    @override
    def visit_Annotation(self, node: cst.Annotation) -> None:
        literals = m.findall(
            node, m.Subscript(m.Name("Literal") | m.Attribute(attr=m.Name("Literal")))
        )
        no_names = {each for literal in literals for each in m.findall(literal, m.SimpleString())}
        strings = found_in(node, cst.SimpleString)
        self.annotations += (each for each in strings if each not in no_names)

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
        if self.runs_once(node):
            self.first_use = min(self.first_use, self._source.start(node)[0])
        self._has_models |= _MODELS.match(resolved.name) is not None
        self._has_optimizers |= ".optimizers." in resolved.name
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
        likely = owner or _objects_table.TELLING.get(method) or self._likely.what_is(node.value)
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
        """Returns whether an argument is a `tf.Variable`, or has some: zip(gradients, [w])."""
        names = (found_in(argument.value, each) for each in (cst.Name, cst.Attribute))
        kinds = {self._certain.what_is(each) for each in itertools.chain(*names)}
        return not kinds.isdisjoint(("Variable", "Variables"))

    def _take_function(self, node: cst.BaseExpression) -> None:
        """Notes the functions of the file that a data set is given: f, self.f, partial(f, 1)."""
        if isinstance(node, cst.Name | cst.Attribute | cst.Lambda):
            self.map_functions.update((node, *self._functions_behind(node)))
        elif isinstance(node, cst.Call) and (dotted(node.func) or "").endswith("partial"):
            for argument in node.args[:1]:
                self._take_function(argument.value)

    def _functions_behind(self, node: cst.BaseExpression) -> list[cst.FunctionDef]:
        """Returns the functions of the file that a name may stand for."""
        if isinstance(node, cst.Attribute):
            return self._definitions.functions.get(node.attr.value, [])
        if not isinstance(node, cst.Name):
            return []
        found = [getattr(each, "node", None) for each in self._names.assignments(node)]
        return [each for each in found if isinstance(each, cst.FunctionDef)]

    @override
    def leave_Module(self, original_node: cst.Module) -> None:
        """Finds what only the whole file tells: whose variables are trained, helpers of `map`."""
        makes_variables = any(use.call and use.match.name == "tf.Variable" for use in self.uses)
        of_models = m.Attribute(attr=m.Name("trainable_variables") | m.Name("trainable_weights"))
        if makes_variables and not self._has_models and not m.findall(original_node, of_models):
            self.trains_own_variables |= self._has_optimizers
        self._find_helpers(original_node)

    def _find_helpers(self, original_node: cst.Module) -> None:
        """Finds helpers of functions of data sets: what only such functions call."""
        calls: dict[cst.FunctionDef, list[cst.Call]] = {}
        for call in found_in(original_node, cst.Call):
            for function in self._functions_behind(call.func):
                calls.setdefault(function, []).append(call)
        count = -1
        while count != len(self.map_functions):
            count = len(self.map_functions)
            self.map_functions.update(
                function
                for function, callers in calls.items()
                if all(map(self.is_in_map_function, callers))
            )

    def is_in_map_function(self, node: cst.CSTNode) -> bool:
        """Returns whether a node is in a function that a data set calls."""
        return not self.map_functions.isdisjoint(self._source.outwards(node))

    def is_of_keras_class(self, node: cst.CSTNode) -> bool:
        """Returns whether a node gives something to `self`, in a class that is one of Keras."""
        statement = self._source.parent(self._source.parent(node) or node)
        target = _only_target(statement) if isinstance(statement, cst.Assign) else None
        owner = self._source.around(node, cst.ClassDef)
        return (
            owner is not None
            and m.matches(target or node, m.Attribute(m.Name("self")))
            and any(
                (resolved := self._names.resolve(base.value)) is not None
                and _MODELS.match(resolved.name) is not None
                for base in owner.bases
            )
        )

    # --- what an expression is, by what is around it ----------------------------------------------

    def runs_once(self, node: cst.CSTNode) -> bool:
        """Returns whether a node is in no function: it runs when the file does."""
        return isinstance(self._source.scope(node), GlobalScope)

    def is_shown(self, node: cst.CSTNode) -> bool:
        """Returns whether a value is only printed, or shown below the cell of a notebook."""
        at = self._source.parent(node)
        if isinstance(at, cst.Expr):
            return True
        while isinstance(at, cst.Arg | cst.FormattedString | cst.FormattedStringExpression):
            at = self._source.parent(at)
        return isinstance(at, cst.Call) and (dotted(at.func) or "") in ("print", "logging.info")

    def is_activation(self, node: cst.CSTNode) -> bool:
        """Returns whether a function is given to a layer of Keras, which knows it by its name."""
        argument = self._source.parent(node)
        if not isinstance(argument, cst.Arg):
            return False
        if argument.keyword is not None:
            return argument.keyword.value.endswith("activation")
        call = self._source.parent(argument)
        return isinstance(call, cst.Call) and self._certain.what_is(call) == "Layer"

    def is_taken_as_bytes(self, node: cst.CSTNode) -> bool:
        """Returns whether a value is bytes: `example.ParseFromString(x)`, `x.decode("utf-8")`."""
        parent = self._source.parent(node)
        if isinstance(parent, cst.Attribute) and parent.attr.value == "decode":
            return True
        call = self._source.parent(parent) if isinstance(parent, cst.Arg) else None
        parsing = m.Name("FromString") | m.Name("ParseFromString") | m.Name("MergeFromString")
        return m.matches(call or node, m.Call(m.Attribute(attr=parsing)))

    def is_loop(self, call: cst.Call) -> bool:
        """Returns whether a loop runs over what is called."""
        loop = self._source.parent(call)
        return isinstance(loop, cst.For) and loop.iter is call

    def is_number(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is a number that Python knows, as far as can be seen."""
        if isinstance(node, cst.Integer | cst.Attribute):
            return True
        if isinstance(node, cst.BinaryOperation):
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, cst.Call):
            return dotted(node.func) in ("int", "len")
        return isinstance(node, cst.Name) and (
            node.value.isupper() or self._is_always(node, self.is_number)
        )

    def is_of_own_class(self, node: cst.BaseExpression) -> bool:
        """Returns whether an object is of a class of the file."""
        return bool(self._classes_of(node))

    def has_own(self, method: str, node: cst.BaseExpression) -> bool:
        """Returns whether an object is of a class of the file that defines a method."""
        own = m.FunctionDef(name=m.Name(method))
        return any(m.findall(each, own) for each in self._classes_of(node))

    def may_have_own(self, method: str, node: cst.BaseExpression) -> bool:
        """Returns whether an object is, or may be, of a class of the file that defines a method."""
        is_known = self._certain.what_is(node) is not None
        return self.has_own(method, node) or (not is_known and method in self._own_methods)

    @functools.cached_property
    def _own_methods(self) -> set[str]:
        """The methods of all classes of the file."""
        classes = found_in(self._source.module, cst.ClassDef)
        return {own.name.value for each in classes for own in found_in(each, cst.FunctionDef)}

    def _classes_of(self, node: cst.BaseExpression) -> list[cst.ClassDef]:
        """Returns the classes of the file that an object may be of."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
            found = [getattr(each, "node", None) for each in self._names.assignments(node.func)]
            return [each for each in found if isinstance(each, cst.ClassDef)]
        if not isinstance(node, cst.Name):
            return []
        statements = [
            assigned_in(self._source, getattr(each, "node", node))
            for each in self._names.assignments(node)
        ]
        values = [each.value for each in statements if each is not None]
        return [
            cls
            for value in values
            if value is not None and value is not node
            for cls in (self._classes_of(value) if isinstance(value, cst.Call) else [])
        ]

    def stands_alone(self, call: cst.Call) -> bool:
        """Returns whether a call is no part of another expression: `x = f()`, `g(f())`."""
        parent = self._source.parent(call)
        kinds = cst.Arg | cst.Assign | cst.AnnAssign | cst.AugAssign | cst.Element | cst.Return
        return bool(call.lpar) or isinstance(parent, kinds | cst.ListComp | cst.GeneratorExp)

    def is_list(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is a list of arrays, as far as can be seen."""
        if isinstance(node, cst.List | cst.ListComp | cst.Tuple | cst.GeneratorExp):
            return True
        if isinstance(node, cst.Attribute):
            return node.attr.value in ("losses", "trainable_variables", "variables", "weights")
        return isinstance(node, cst.Name) and self._is_always(node, self.is_list)

    def _is_always(self, node: cst.Name, is_one: Callable[[cst.BaseExpression], bool]) -> bool:
        """Returns whether everything that is assigned to a name is of a kind."""
        found = [
            assigned_in(self._source, getattr(each, "node", node))
            for each in self._names.assignments(node)
        ]
        values = [each.value for each in found if each is not None and each.value is not None]
        return len(found) == len(values) > 0 and all(map(is_one, values))

    def is_taken_apart(self, node: cst.CSTNode) -> bool:
        """Returns whether a tuple does as well as an array: indexed, unpacked, or as a shape."""
        parent = self._source.parent(node)
        if isinstance(parent, cst.Subscript) and parent.value is node and len(parent.slice) == 1:
            is_one = isinstance(parent.slice[0].slice, cst.Index)
            return is_one or self.is_taken_apart(parent)
        if isinstance(parent, cst.Arg):
            call = self._source.parent(parent)
            resolved = self._names.resolve(call.func) if isinstance(call, cst.Call) else None
            return resolved is not None and resolved.name in _calls_table.TAKE_SHAPES.split()
        target = _only_target(parent) if isinstance(parent, cst.Assign) else None
        if isinstance(target, cst.Name) and (scope := self._source.scope(target)) is not None:
            reads = {access.node for each in scope[target.value] for access in each.references}
            return bool(reads) and all(map(self.is_taken_apart, reads))
        return isinstance(target, cst.Tuple)

    def is_first_of_two(self, call: cst.Call) -> bool:
        """Returns whether it is unpacked in two, of which nobody reads the second: `x, _ = f()`."""
        statement = self._source.parent(call)
        target = _only_target(statement) if isinstance(statement, cst.Assign) else None
        return m.matches(
            target or cst.Name("x"),
            m.Tuple([m.Element(m.Name()), m.Element(m.Name("_"))]),
        )

    def _call_of(self, node: cst.CSTNode) -> cst.Call | None:
        parent = self._source.parent(node)
        return parent if isinstance(parent, cst.Call) and parent.func is node else None


def _only_target(statement: cst.Assign | cst.AnnAssign) -> cst.BaseExpression | None:
    if isinstance(statement, cst.AnnAssign):
        return statement.target
    return statement.targets[0].target if len(statement.targets) == 1 else None
