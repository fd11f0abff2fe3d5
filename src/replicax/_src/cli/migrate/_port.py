"""Ports a file: decides what becomes of each use of TensorFlow, and notes it.

The mechanical part is collected as edits of the text; the rest is marked with comments. Running it
over its own result changes nothing more.
"""

import bisect
import dataclasses
import functools
import itertools
import re
from collections import defaultdict
from typing import final

import libcst as cst
import libcst.matchers as m

from replicax._src.cli.migrate import _calls, _rewrites
from replicax._src.cli.migrate._calls_table import (
    ACTIVATIONS,
    DECORATORS,
    GIVE_TUPLES,
    OWN_OPTIMIZERS,
)
from replicax._src.cli.migrate._edits import Edits
from replicax._src.cli.migrate._imports import (
    ImportStatement,
    Modules,
    after_the_head,
    can_be_imported,
    is_of_tensorflow,
    remove_decorator,
    remove_statement,
)
from replicax._src.cli.migrate._lookup import (
    WithReplicax,
    exists,
    for_numpy,
    function_of,
    is_module,
    lookup,
    lookup_method,
    other_names,
    remark,
)
from replicax._src.cli.migrate._names import Binding, Names, imported, table_name
from replicax._src.cli.migrate._notes import Notes
from replicax._src.cli.migrate._objects_table import CLASSES, TELLING
from replicax._src.cli.migrate._reader import MethodUse, Reader, Use
from replicax._src.cli.migrate._rewrites import Library, Refused, Rewrite, name_in
from replicax._src.cli.migrate._source import Source, dotted
from replicax._src.cli.migrate._tapes import Tapes
from replicax._src.cli.migrate._train_ops import TrainOps
from replicax._src.cli.migrate._turned import Turned
from replicax._src.cli.migrate._verdict import MARK, Finding, Verdict


@final
@dataclasses.dataclass(frozen=True)
class Ported:
    """A file, read and ported."""

    old: str
    new: str
    """The whole text after the mechanical part, with marks."""
    encoding: str
    findings: tuple[Finding, ...]
    """In the order of the lines."""
    new_lines: dict[int, str]
    """What becomes of lines that change, by their number; empty if a line goes."""

    @property
    def left(self) -> int:
        """How many lines have something that is to be done by hand."""
        return len({each.line for each in self.findings if each.verdict.by_hand})


# A chain of names in a string.
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.\w+)*")

# Of most files of a project it can be told at a glance that there is nothing in them.
_SIGNS = re.compile(
    "|".join(["tensorflow", "keras", re.escape(MARK.strip("# :")), *TELLING]).encode()
)


def may_use_tensorflow(content: bytes) -> bool:
    """Returns whether it is worth while to read a file."""
    return _SIGNS.search(content) is not None


def port(content: bytes) -> Ported:
    """Reads a file and ports it.

    Raises:
      Unreadable: It is not Python 3.
    """
    return _Port(Source(content)).result()


@final
class _Port:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.edits = Edits(source.text)
        self._names = Names(source)
        self._reader = Reader(source, self._names)
        source.module.visit(self._reader)
        self._modules = Modules(self._names, self._reader.first_use)
        self._notes = Notes(source, self.edits, self._reader.is_in_map_function)
        self._tapes = Tapes(source)
        self._train_ops = TrainOps(source)
        self._rewrites: dict[Use, Rewrite | Refused | None] = {}
        self._rebound: dict[Binding, bool] = {}
        self._going: set[Use] = set()
        self._written: set[cst.With] = set()
        self._needed_by_methods: set[str] = set()
        self._trains_models = False
        self._strategy_line: tuple[int, str] | None = None
        self._uses: dict[Binding, list[Use]] = defaultdict(list)
        for use in self._reader.uses:
            for binding in use.bindings:
                self._uses[binding].append(use)
        self._statements = [
            ImportStatement(node, source, self.edits)
            for node in self._reader.imports
            if is_of_tensorflow(node)
        ]
        # Lines that give a name which is not understood everywhere: they stay.
        self._fixed = {each for _, bindings in self._reader.unclear for each in bindings}
        self._with_replicax = WithReplicax(
            "estimator.Estimator" in source.text, self._reader.trains_own_variables
        )
        self._take_names_of_keras()

    def _take_names_of_keras(self) -> None:
        """Finds what Keras will be called in the file: as `tf.keras` was, where it had a name."""
        for statement in self._statements:
            for binding in self._bindings_of(statement):
                if binding.target == "tf.keras" and statement.is_global and self._rebinds(binding):
                    self._modules.know("keras", binding.local)
        for use in self._reader.uses:
            if use.names_keras and self._new_name(use):
                self._modules.need("keras")

    def spelled(self, name: str) -> str:
        """Returns a name as this file writes it, and sees to it that it is imported."""
        return self._modules.spelled(name)

    def result(self) -> Ported:
        for use in self._reader.uses:
            self._use(use)
        before = set(self._modules.missing())
        for method in self._reader.methods:
            if self._statements or not method.is_guess:
                self._method(method)
        if self._statements:  # in a file that never saw TensorFlow, it is somebody else's .numpy()
            for call in self._reader.conversions:
                self._conversion(call)
            for call, owner, entry in self._reader.called:
                self._notes.add(call, entry.verdict, owner, entry.new, entry.advice)
        self._needed_by_methods = set(self._modules.missing()) - before
        for name, _ in self._reader.unclear:
            advice = "it is something else as well in this file: use two names"
            self._notes.add(name, Verdict.THOUGHT, name.value, advice=advice)
        for node, name in self._reader.loops:
            self._notes.add(node, Verdict.SAME, name)
        for string in self._reader.annotations:
            self._annotation(string)
        for node, name, entry in self._reader.old_keras:
            self._notes.add(node, entry.verdict, name[3:], entry.new, entry.advice)
        for word in self._reader.cluster_variables:
            self._notes.add(word, Verdict.SAME, "TF_CONFIG")
        for word in self._reader.backends:  # "tensorflow", for Keras
            self.edits.replace(self.source.start(word), self.source.end(word), '"jax"')
            self._notes.add(word, Verdict.CHANGES, "KERAS_BACKEND")
        self._imports()
        self._notes.add_old_marks(self._reader.marks)
        self._notes.keep_comments()
        self._notes.settle()
        findings = self._notes.findings()
        if not self._statements and all(each.verdict is Verdict.SAME for each in findings):
            findings = []
        lines = {each.line for each in findings if each.verdict is not Verdict.SAME}
        new_lines = {
            line: text for line in lines if (text := self.edits.new_line(line)) is not None
        }
        new = self.edits.result()
        if new != self.source.text:
            cst.parse_module(new)  # whatever was changed: it is never written if it is not Python
        return Ported(self.source.text, new, self.source.encoding, tuple(findings), new_lines)

    # --- names ------------------------------------------------------------------------------------

    def _new_name(self, use: Use) -> str | None:
        """Returns what takes the place of a used name by itself; None if somebody has to think."""
        entry = use.match.entry
        if self._dropped_decorator(use) is not None:
            return None
        if entry.verdict is not Verdict.CHANGES or not entry.new:
            return None
        if use.defines is not None and not self._rebinds(use.defines):
            return None
        if use.rest and self._attribute_problem(use):
            return None
        if self._reader.is_in_map_function(use.node):
            return None if entry.new.startswith("rx.random.") else for_numpy(entry.new)
        if entry.new == "rx.Variable" and use.call and self._reader.is_of_keras_class(use.node):
            return "keras.Variable"  # a layer trains no others
        return self._with_replicax.new_name(entry.new)

    def _attribute_problem(self, use: Use) -> str | None:
        """Says what is wrong with the attributes of a name: `tf.data.Dataset.load`."""
        attribute = use.rest.partition(".")[0]
        owner = next((kind for kind, name in CLASSES.items() if name == use.match.entry.new), None)
        if owner is not None:
            entry = lookup_method(owner, attribute)
            return entry.advice if entry is not None and entry.verdict.by_hand else None
        if attribute in ("min", "max") and use.match.entry.new.startswith("jnp."):
            kind = "iinfo" if "int" in use.match.entry.new else "finfo"
            return f"jnp.{kind}({use.match.entry.new}).{attribute}"
        if use.match.entry.new == "absl_flags.FLAGS":  # which has what the program defines
            return None
        if not exists(f"{use.match.entry.new}.{attribute}"):
            return f"{use.match.entry.new} has no {attribute}"
        return None

    def _rebinds(self, binding: Binding) -> bool:
        """Returns whether a line that names something can name ours, for all of its uses."""
        if binding not in self._rebound:
            self._rebound[binding] = self._can_be_rebound(binding)
        return self._rebound[binding]

    def _can_be_rebound(self, binding: Binding) -> bool:
        match = lookup(binding.target)
        new = _whole_new_name(binding.target)
        if new is None or match.entry.verdict is not Verdict.CHANGES or binding in self._fixed:
            return False
        if binding.is_import and not can_be_imported(new):
            return False
        if new.startswith("keras") and is_module(new):  # what is not there is marked
            return True
        return all(self._new_name(use) is not None for use in self._uses[binding])

    def _use(self, use: Use) -> None:
        name = ".".join(filter(None, [use.match.name, use.rest]))
        new = self._new_name(use)
        if new is None:
            if self._train_ops.is_left_out(use.node):
                self._notes.add(use.node, Verdict.CHANGES, name)
            elif isinstance(rewrite := self._rewrite(use), Rewrite):
                self._apply(rewrite, use, name)
            elif tape := self._turned(use):
                if tape.block not in self._written:
                    self._written.add(tape.block)
                    self._write_tape(tape, use)
                self._notes.add(use.node, Verdict.CHANGES, name, tape.function)
            elif self._goes(use):
                self._remove(use)
            elif use.defines is not None and self._uses[use.defines]:
                self._notes.add(use.node, Verdict.SAME, name, advice="stays: other lines need it")
            elif problem := use.rest and use.match.entry.new and self._attribute_problem(use):
                self._notes.add(use.node, Verdict.THOUGHT, name, advice=problem)
            else:
                self._by_hand(use, name)
            return
        if use.names_keras:
            self._remove(use)  # its import has this name
            return
        whole = ".".join(filter(None, [new, use.rest]))
        changed = not self._is_rebound(use, new)
        if changed:
            self._respell(use.node, self.spelled(new))
        if use.call is not None:
            changed |= self._called(use.call, use.match.name, whole)
        verdict = Verdict.CHANGES if changed else Verdict.SAME
        advice = remark(use.match.name, self.source.text)
        self._notes.add(use.node, verdict, name, whole if changed else "", advice)

    def _write_tape(self, tape: Turned, use: Use) -> None:
        tape.write(self._loss_name, self.spelled, self.source, self.edits)
        for late in tape.late:
            if late.call is None:
                advice = f"none before {late.model} is called: call it once above, on a batch"
                name = f"{late.model}.trainable_variables"
                self._notes.add(use.node, Verdict.THOUGHT, name, advice=advice)
        self._trains_models |= bool(tape.asked) and not tape.by_array and self._reader.has_models

    def _set_strategy(self, anchors: list[ImportStatement]) -> None:
        """Sets a strategy below the imports of a program that trains models and has none."""
        body = list(self.source.module.body)
        lines = [self.source.start(each)[0] for each in body]
        position = bisect.bisect_right(lines, anchors[0].line) - 1
        while position + 1 < len(body) and m.matches(
            body[position + 1], m.SimpleStatementLine([m.Import() | m.ImportFrom()])
        ):
            position += 1
        device = f"{self.spelled('jax.devices')}()[0]"
        strategy = f"{self.spelled('rx.distribute.OneDeviceStrategy')}({device})"
        text = f"{self.spelled('rx.distribute.experimental_set_strategy')}({strategy})"
        self._strategy_line = (self.source.end(body[position])[0], text)

    def _by_hand(self, use: Use, name: str) -> None:
        entry = use.match.entry
        verdict = entry.verdict if entry.verdict.by_hand else Verdict.THOUGHT
        new, advice = entry.new, entry.advice
        if entry.verdict is Verdict.CHANGES and not entry.new:
            advice = advice or "leave it out"
        if entry.new.startswith("rx.random."):
            new, advice = "np.random", "a generator of NumPy, in functions of data sets"
        if entry.verdict is Verdict.CHANGES and self._with_replicax.new_name(entry.new) is None:
            new, advice = self._with_replicax.advice(entry.new)
        of_keras = re.fullmatch(r"tf\.(?:compat\.v[12]\.)?(keras\b.*)", name)
        if of_keras and all(map(self._rebinds, use.bindings)):
            name = of_keras[1]  # so it is called the next time
        elif name in ("tf", "tf.compat.v1"):
            advice = "the module itself is used here"
        elif name == "tf.GradientTape":
            advice = self._tapes.block(use.node) or advice
        elif isinstance(problem := self._rewrite(use), Refused):
            new, advice = problem.new or new, str(problem) if new else advice
        self._notes.add(use.node, verdict, name, new, advice)

    def _respell(self, node: cst.Name | cst.Attribute, new: str) -> None:
        """Writes a name in the place of a chain of names; no more of it than is different."""
        rest = new.split(".")
        part: cst.BaseExpression = node
        while isinstance(part, cst.Attribute) and len(rest) > 1 and rest[-1] == part.attr.value:
            part = part.value
            rest.pop()
        start, end = self.source.start(part), self.source.end(part)
        self.edits.replace(start, end, ".".join(rest))

    # --- calls that are rewritten -----------------------------------------------------------------

    def _rewrite(self, use: Use) -> Rewrite | Refused | None:
        """Returns what takes the place of a use with its arguments; None without a form of it."""
        if use not in self._rewrites:
            try:
                self._rewrites[use] = self._found_rewrite(use)
            except Refused as refused:
                self._rewrites[use] = refused
        return self._rewrites[use]

    def _found_rewrite(self, use: Use) -> Rewrite | None:
        names = other_names(".".join(filter(None, [use.match.name, use.rest])))
        name = names[-1]
        library = self._library(use.node)
        if name in ("tf.VERSION", "tf.__version__", "tf.version.VERSION"):
            return Rewrite("rx.__version__", []) if self._reader.is_shown(use.node) else None
        if use.call is None and name.rpartition(".")[2] in ACTIVATIONS.split():
            if self._reader.is_activation(use.node):
                return Rewrite(f'"{name.rpartition(".")[2]}"', [])
        if use.call is not None and name == "tf.print":
            is_enough = library is Library.NUMPY or self._reader.runs_once(use.node)
            parts = _rewrites.print_parts(use.call)
            return Rewrite("print", []) if is_enough else Rewrite("jax.debug.print", parts)
        table = _rewrites.forms()
        if self._reader.trains_own_variables:
            table = {**table, **_rewrites.forms(OWN_OPTIMIZERS)}
        forms = next((found for each in names if (found := table.get(each))), None)
        if forms is None:
            return None
        if use.call is None:
            is_enough = forms[0].keeps_arguments and use.defines is None
            return Rewrite(name_in(library, function_of(forms[0].new)), []) if is_enough else None
        if self._reader.is_loop(use.call):
            numbers = [each.value for each in use.call.args if not each.keyword and not each.star]
            if len(numbers) == len(use.call.args) and all(map(self._reader.is_number, numbers)):
                return Rewrite("range", [])
            raise Refused("of a number that Python knows; the loop is compiled as often", "range")
        if name == "tf.cond" and library is Library.NUMPY:
            return Rewrite("if", _rewrites.choice_parts(use.call))
        if name == "tf.where" and len(use.call.args) == 1:
            if library is Library.NUMPY or self._reader.runs_once(use.node):
                return Rewrite("np.argwhere" if library is Library.NUMPY else "jnp.argwhere", [])
            raise Refused("of one argument it is jnp.argwhere, outside compiled functions")
        if name in GIVE_TUPLES.split() and not self._reader.is_taken_apart(use.call):
            raise Refused("a tuple")
        if name == "tf.boolean_mask" and not (
            library is Library.NUMPY or self._reader.runs_once(use.node)
        ):
            return None
        if name == "tf.clip_by_global_norm" and not self._reader.is_first_of_two(use.call):
            return None
        return _rewrites.rewrite(forms, use.call, library, self._reader)

    def _turned(self, use: Use) -> Turned | None:
        """Returns what takes the place of a tape by itself."""
        is_tape = other_names(use.match.name)[-1] == "tf.GradientTape" and not use.rest
        return self._tapes.turned(use.node) if is_tape else None

    @functools.cached_property
    def _loss_name(self) -> str:
        """A name for functions of the loss, which the file has not used."""
        names = itertools.chain(["loss_fn"], (f"loss_fn_{n}" for n in itertools.count(2)))
        return next(each for each in names if not self._names.is_taken(each))

    def _library(self, node: cst.CSTNode) -> Library:
        """Whose functions a line is to call."""
        if self._reader.is_in_map_function(node):
            return Library.NUMPY
        return Library.KERAS if self._reader.has_models else Library.JAX

    def _apply(self, rewrite: Rewrite, use: Use, name: str) -> None:
        if not rewrite.parts:
            self._respell(use.node, self.spelled(rewrite.function))
        else:
            assert use.call is not None
            parts = [
                _rewrites.spelled(part, self.spelled)
                if isinstance(part, str)
                else _calls.outside(part, self.source)
                for part in rewrite.parts
            ]
            self.edits.replace(self.source.start(use.call), self.source.end(use.call), *parts)
        self._notes.add(use.node, Verdict.CHANGES, name, rewrite.function)

    def _is_rebound(self, use: Use, new: str) -> bool:
        """Returns whether a use stays as it is, because the line that gives it its name changes."""
        written = dotted(use.node) or ""
        for binding in use.bindings:
            base = _whole_new_name(binding.target)
            if base is None or not self._rebinds(binding):
                return False
            if base + written[len(binding.local) :] != new:
                return False
        return True

    def _called(self, call: cst.Call, old: str, new: str) -> bool:
        """Changes and checks the arguments of a call; returns whether any changed."""
        rule = _calls.rule_for(old)
        if rule is not None:
            if problem := rule(call, self):
                self._notes.add(call, Verdict.THOUGHT, new, advice=problem)
            return True
        changed = _calls.rename_keywords(call, new, self)
        if problem := _calls.refused_arguments(call, new, self.source):
            self._notes.add(call, Verdict.THOUGHT, f"{new}()", advice=problem)
        return changed

    def _goes(self, use: Use) -> bool:
        """Returns whether nothing of a use is left that needs its import."""
        if self._train_ops.is_left_out(use.node):
            return True
        if self._dropped_decorator(use) is not None:
            return True
        if self._new_name(use) is not None or isinstance(self._rewrite(use), Rewrite):
            return True
        if self._turned(use):
            return True
        if use.defines is not None:  # tf = tf.compat.v1
            self._going.add(use)  # two such lines are uses of each other
            others = [each for each in self._uses[use.defines] if each not in self._going]
            goes = bool(others) and all(self._goes(each) for each in others)
            self._going.discard(use)
            return goes
        if self._version_check(use) is not None:
            return True
        is_needless = use.match.entry.verdict is Verdict.CHANGES and not use.match.entry.new
        return is_needless and isinstance(self._statement_of(use), cst.Expr)

    def _remove(self, use: Use) -> None:
        """Takes out the statement that a use is all of."""
        if (decorator := self._dropped_decorator(use)) is not None:
            remove_decorator(decorator, self.source, self.edits)
            advice = "functions of data sets work on NumPy arrays, and are not compiled"
            self._notes.add(use.node, Verdict.CHANGES, use.match.name, advice=advice)
            return
        statement = self._statement_of(use)
        assert isinstance(statement, cst.BaseSmallStatement)
        remove_statement(statement, self.source, self.edits)
        self._notes.add(use.node, Verdict.CHANGES, use.match.name, advice=use.match.entry.advice)

    def _dropped_decorator(self, use: Use) -> cst.Decorator | None:
        """Returns the line `@tf.function` of a function of NumPy, which cannot be compiled."""
        if use.rest or other_names(use.match.name)[-1] not in DECORATORS.split():
            return None
        decorator = self.source.parent(use.call or use.node)
        if not isinstance(decorator, cst.Decorator):
            return None
        return decorator if self._reader.is_in_map_function(decorator) else None

    def _version_check(self, use: Use) -> cst.Assert | None:
        """Returns the line `assert tf.__version__.startswith("2")`, if this is one."""
        name = ".".join([use.match.name, use.rest])
        at: cst.CSTNode | None = use.node if "__version__" in name else None
        while isinstance(at, cst.BaseExpression | cst.ComparisonTarget | cst.Arg):
            at = self.source.parent(at)
        return at if isinstance(at, cst.Assert) else None

    def _statement_of(self, use: Use) -> cst.CSTNode | None:
        if (check := self._version_check(use)) is not None:
            return check
        return use.defines.statement if use.defines else self.source.parent(use.call or use.node)

    # --- methods ----------------------------------------------------------------------------------

    def _method(self, use: MethodUse) -> None:
        entry = use.entry
        if entry.verdict.by_hand:
            advice = entry.advice
            if use.owner == "GradientTape" and use.call is not None:
                if self._tapes.is_turned(use.call):
                    self._notes.add(use.node.attr, Verdict.CHANGES, use.name)
                    return
                if use.name == "GradientTape.gradient":
                    advice = self._tapes.gradient(use.call)
            if use.name == "Optimizer.minimize" and "EstimatorSpec" in self.source.text:
                if use.call is not None and (optimizer := self._train_ops.optimizer(use.call)):
                    start, end = self.source.start(use.call), self.source.end(use.call)
                    self.edits.replace(start, end, _calls.outside(optimizer, self.source))
                    self._notes.add(use.node.attr, Verdict.CHANGES, use.name)
                    return
                advice = "train_op=optimizer: it gets the gradients of the EstimatorSpec's loss"
            self._notes.add(use.node.attr, entry.verdict, use.name, entry.new, advice)
            return
        if (
            use.name == "Model.build"
            and self._reader.is_of_own_class(use.node.value)
            and not self._reader.has_own("build", use.node.value)
        ):
            advice = "makes no variables in Keras 3: call the model once, in the scope, on zeros"
            self._notes.add(use.node.attr, Verdict.THOUGHT, use.name, advice=advice)
            return
        rule = _calls.rule_for(use.name)
        before = self.edits.changes
        if use.call is not None and rule is not None:
            if problem := rule(use.call, self):
                self._notes.add(use.node.attr, Verdict.THOUGHT, use.name, entry.new, problem)
                if self.edits.changes == before:  # a new name alone would be a lie
                    return
        changed = entry.verdict is Verdict.CHANGES
        start, end = self.source.start(use.node.attr), self.source.end(use.node.attr)
        if use.call is None and entry.new == "len":  # of a shape, which is a tuple
            _calls.around_receiver(use.node, self, "len")
        elif entry.new.startswith("rx."):  # no method any more
            if dotted(use.node.value) is None:
                self._notes.add(use.node.attr, Verdict.THOUGHT, use.name, entry.new)
                return
            start = self.source.start(use.node)
            self.edits.replace(start, end, self.spelled(entry.new))
        elif "." in entry.new and use.name not in _calls.WHOLE:
            self.edits.replace(start, end, entry.new.rpartition(".")[2])
        if use.call is not None:
            owner, _, method = (entry.new or use.name).rpartition(".")
            owner = CLASSES.get(owner, owner)
            is_own = self._reader.may_have_own(method, use.node.value)
            if rule is None and exists(f"{owner}.{method}") and not (use.is_guess or is_own):
                self._called(use.call, use.name, f"{owner}.{method}")
        verdict = Verdict.CHANGES if changed or self.edits.changes > before else Verdict.SAME
        self._notes.add(use.node.attr, verdict, use.name, entry.new)

    def _conversion(self, call: cst.Call) -> None:
        if self._reader.is_taken_as_bytes(call):  # which are bytes here, and no arrays
            _calls.around_receiver(call, self, "")
            self._notes.add(call, Verdict.CHANGES, "Tensor.numpy", advice="leave it out")
            return
        _calls.around_receiver(call, self, self.spelled("np.asarray"))
        self._notes.add(call, Verdict.CHANGES, "Tensor.numpy", "np.asarray")

    def _annotation(self, string: cst.SimpleString) -> None:
        """Changes names in an annotation that is a string."""
        known = {
            binding.local: binding
            for statement in self._statements
            for binding in self._bindings_of(statement)
        }
        row, column = self.source.start(string)
        for found in _NAME.finditer(string.value):
            local, dot, rest = found[0].partition(".")
            if (binding := known.get(local)) is None or not dot:
                continue
            full = f"{binding.target}.{rest}"
            new = _whole_new_name(full)
            if new is None or "\n" in string.value or binding in self._fixed:
                self._notes.add(string, Verdict.THOUGHT, full, new or "", "it is in a string")
            elif not self._rebinds(binding):
                start, end = column + found.start(), column + found.end()
                self.edits.replace((row, start), (row, end), self.spelled(new))
                self._notes.add(string, Verdict.CHANGES, full, new)

    # --- imports ----------------------------------------------------------------------------------

    def _imports(self) -> None:
        for statement in self._statements:
            self._import(statement)
        anchors = [each for each in self._statements if each.is_global]
        if not any(each.is_in_branch for each in anchors[:1]):  # the first one runs in any case
            anchors = anchors[:1]
        if anchors and self._trains_models and self._reader.is_program_without_strategy:
            self._set_strategy(anchors)
        missing = self._modules.missing()
        everywhere: list[str] = []
        if not anchors:  # imports in functions: there goes what takes the place of what they import
            everywhere = [each for each in missing if each in self._needed_by_methods]
            missing = [each for each in missing if each not in everywhere]
            changing = [each for each in self._statements if self._has_changed_uses(each)]
            anchors = changing or self._statements
        needs_backend = True
        for statement in self._statements:
            is_anchor = statement in anchors
            new = missing if is_anchor else []
            is_told = self._reader.backend_line < statement.line
            if needs_backend and not is_told and statement.imports_keras(new):
                statement.set_backend(has_os=self._names.imports_before(statement.line, "os"))
                new = [each for each in new if each != "os"]  # it has imported it
                needs_backend = not statement.is_first_of_all
            statement.write(new)
            if not statement.is_kept or (is_anchor and missing):
                self._notes.add(statement.node, Verdict.CHANGES, "import")
        if self._strategy_line is not None:
            self.edits.add_line_below(*self._strategy_line)
        line = after_the_head(self.source.module, self.source)
        while self.edits.line(line + 1).startswith("#"):
            line += 1
        for module in everywhere if anchors else [*everywhere, *missing]:
            self.edits.add_line_below(line, f"import {module}")

    def _import(self, statement: ImportStatement) -> None:
        """Decides what becomes of the parts of an import."""
        if not statement.aliases:
            if new := self._star_of_keras(statement):
                statement.rebind_all(new)
                return
            advice = "name what is used: what comes from here is not looked at"
            self._notes.add(statement.node, Verdict.THOUGHT, "import *", advice=advice)
            return
        for binding in self._bindings_of(statement):
            assert binding.alias is not None
            name = f"import of {binding.local}"
            uses = self._uses[binding]
            if self._rebinds(binding):
                statement.rebind(binding.alias, _whole_new_name(binding.target) or "")
            elif uses and binding not in self._fixed and all(self._goes(use) for use in uses):
                statement.drop(binding.alias)
            elif uses or binding in self._fixed:
                advice = "stays: lines below need it"
                self._notes.add(statement.node, Verdict.SAME, name, advice=advice)
            elif (
                self._is_ported
                and statement.is_first_of_all
                and not self._notes.is_marked(statement.node, name)
            ):
                statement.drop(binding.alias)  # what needed it has been ported
            else:
                advice = "nothing in this file uses it: leave it out if nobody else does"
                self._notes.add(statement.node, Verdict.THOUGHT, name, advice=advice)

    def _star_of_keras(self, statement: ImportStatement) -> str:
        """Returns the module of Keras that has what `from module import *` wants; "" if none."""
        assert isinstance(statement.node, cst.ImportFrom)
        new = _whole_new_name(table_name(dotted(statement.node.module) or "") or "") or ""
        return new if new.startswith("keras") and is_module(new) else ""

    @property
    def _is_ported(self) -> bool:
        """Whether the file has what takes the place of TensorFlow, from an earlier `--write`."""
        modules = ("replicax", "jax", "jax.numpy", "optax")
        return "KERAS_BACKEND" in self.source.text or any(map(self._names.import_name, modules))

    def _bindings_of(self, statement: ImportStatement) -> list[Binding]:
        return [
            binding
            for local, _, alias in imported(statement.node)
            for binding in self._names.imported_by(statement.node, local)
            if binding.alias is alias and not binding.target.startswith("rx")
        ]

    def _has_changed_uses(self, statement: ImportStatement) -> bool:
        uses = [use for binding in self._bindings_of(statement) for use in self._uses[binding]]
        return any(
            (new and not self._is_rebound(use, new)) or isinstance(self._rewrite(use), Rewrite)
            for use in uses
            for new in [self._new_name(use)]
        )


def _whole_new_name(target: str) -> str | None:
    """Returns what a name of TensorFlow, with its attributes, is in replicax; or None."""
    match = lookup(target)
    if not match.entry.new or match.entry.verdict is not Verdict.CHANGES:
        return None
    return match.entry.new + target[len(match.name) :]
