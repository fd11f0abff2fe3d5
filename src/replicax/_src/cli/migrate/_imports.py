"""What becomes of the imports of TensorFlow, and where those of replicax and JAX go."""

from collections import defaultdict
from collections.abc import Iterator
from typing import final

import libcst as cst
from libcst.metadata import GlobalScope

from replicax._src.cli.migrate._edits import Edits
from replicax._src.cli.migrate._lookup import MODULES, is_module
from replicax._src.cli.migrate._names import Names, dotted, imported, table_name
from replicax._src.cli.migrate._source import Source

# By what name a module is imported where the file has no name for it yet; the first that is free.
_LOCAL_NAMES = {module: (local,) for local, module in MODULES.items()} | {
    "absl.app": ("app", "absl_app"),
    "absl.flags": ("flags", "absl_flags"),
    "jax.numpy": ("jnp", "jax_numpy"),
    "numpy": ("np", "numpy"),
    "replicax": ("rx", "replicax"),
}

# Before Keras is imported, which looks for it then.
_BACKEND = 'os.environ.setdefault("KERAS_BACKEND", "jax")'


@final
class Modules:
    """The modules that the changed lines need, and what they are called in this file."""

    def __init__(self, names: Names, first_use: int) -> None:
        """Begins with no module.

        Args:
          names: of the file.
          first_use: the line that is the first to run; an import below it comes too late.
        """
        self._names = names
        self._first_use = first_use
        self._new: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def know(self, module: str, local: str) -> None:
        """Notes that a statement that changes will import a module."""
        self._known.setdefault(module, local)

    def need(self, module: str) -> None:
        """Asks for a module by its own name, which the file has for it already."""
        self._new.setdefault(module, module)

    def spelled(self, name: str) -> str:
        """Returns a name as this file writes it: `rx.data`, or `replicax.data`."""
        first, _, rest = name.partition(".")
        if first not in MODULES:
            return name
        module = MODULES[first]
        local = self._new.get(module) or self._known.get(module)
        if local is None and (known := self._names.import_name(module)):
            local, line = known
            if line > self._first_use:
                self._new[module] = local
        if local is None:
            free = [each for each in _LOCAL_NAMES[module] if not self._names.is_taken(each)]
            local = self._new[module] = (free or [f"_{_LOCAL_NAMES[module][-1]}"])[0]
        return f"{local}.{rest}" if rest else local

    def missing(self) -> list[str]:
        """Returns the modules to import: `replicax as rx`."""
        return [
            module if module == local else f"{module} as {local}"
            for module, local in sorted(self._new.items())
        ]


def can_be_imported(new: str) -> bool:
    """Returns whether `from parent import name` can be written: not for builtins and members."""
    parent, _, _ = new.rpartition(".")
    return new in MODULES or (parent.split(".")[0] in MODULES and is_module(parent))


def is_of_tensorflow(node: cst.Import | cst.ImportFrom) -> bool:
    """Returns whether something of an import is in the table."""
    if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
        found = table_name(dotted(node.module) or "") if not node.relative else None
        return found is not None and found.startswith("tf")
    return any((table_name(target) or "rx")[:2] == "tf" for _, target, _ in imported(node))


def full_module(name: str) -> str:
    """Returns `replicax.data` for `rx.data`."""
    first, dot, rest = name.partition(".")
    return MODULES[first] + dot + rest


@final
class ImportStatement:
    """One import, and what is to become of its parts."""

    def __init__(self, node: cst.Import | cst.ImportFrom, source: Source, edits: Edits) -> None:
        self.node = node
        self._source = source
        self._edits = edits
        self._new: dict[cst.ImportAlias, str] = {}
        self._gone: set[cst.ImportAlias] = set()
        # Parts may import the same more than once: `import a, b, a`.
        self._alike: dict[str, list[cst.ImportAlias]] = defaultdict(list)
        for alias in self.aliases:
            self._alike[self._code(alias)].append(alias)
        self._new_module = ""

    @property
    def line(self) -> int:
        """Where it begins."""
        return self._source.start(self.node)[0]

    @property
    def is_global(self) -> bool:
        """Whether the whole file sees what it imports, when it runs."""
        for at in self._source.outwards(self.node):
            if isinstance(at, cst.If) and (dotted(at.test) or "").endswith("TYPE_CHECKING"):
                return False
        return isinstance(self._source.scope(self.node), GlobalScope)

    @property
    def aliases(self) -> list[cst.ImportAlias]:
        """Its parts."""
        return [] if isinstance(self.node.names, cst.ImportStar) else list(self.node.names)

    @property
    def is_kept(self) -> bool:
        """Whether nothing of it changes."""
        return not self._new and not self._gone and not self._new_module

    def rebind_all(self, new: str) -> None:
        """Imports all names of another module: `from keras.layers import *`."""
        self._new_module = new

    def rebind(self, alias: cst.ImportAlias, new: str) -> None:
        """Imports something else under the same name: `from replicax import data`."""
        self._new.update(dict.fromkeys(self._alike[self._code(alias)], new))

    def drop(self, alias: cst.ImportAlias) -> None:
        """Leaves out a part that nobody needs."""
        self._gone.update(self._alike[self._code(alias)])

    def imports_keras(self, modules: list[str]) -> bool:
        """Returns whether it does so once it is written, with imports of `modules`."""
        found = {each.split()[0] for each in modules} | {*self._new.values(), self._new_module}
        return any(f"{name}.".startswith("keras.") for name in found)

    @property
    def is_first_of_all(self) -> bool:
        """Whether nothing of the file runs without it: it stands in no block."""
        line = self._source.parent(self.node)
        return line is not None and isinstance(self._source.parent(line), cst.Module)

    @property
    def is_in_branch(self) -> bool:
        """Whether another import may run in its place: it stands under an `if`."""
        return self._source.around(self.node, cst.If) is not None

    def set_backend(self, has_os: bool) -> None:
        """Puts before it what tells Keras to run on JAX; `os` may be imported above."""
        statements = [_BACKEND] if has_os else ["import os", _BACKEND]
        if self._is_in_one_line_suite:
            start = self._source.start(self.node)
            self._edits.wrap(start, start, f"{'; '.join(statements)}; ", "")
        else:
            for statement in statements:
                self._edits.add_line_before(self.line, f"{self._indentation}{statement}")

    def write(self, modules: list[str]) -> None:
        """Makes the changes, and puts imports of `modules` into or after the statement."""
        if self._moves_as_a_whole():
            self._edit_in_place()
            statements = []
        else:
            statements = list(self._statements())
        statements += [f"import {module}" for module in modules]
        if self.is_kept or self._moves_as_a_whole():
            self._add_below(statements)
        elif statements:
            separator = "; " if self._is_in_one_line_suite else f"\n{self._indentation}"
            text = separator.join(statements).replace("\n", self._edits.newline)
            self._edits.replace(self._source.start(self.node), self._source.end(self.node), text)
        else:
            remove_statement(self.node, self._source, self._edits)

    def _moves_as_a_whole(self) -> bool:
        """Returns whether it becomes one import of the same names from another module."""
        parents = {new.rpartition(".")[0] for new in self._new.values()}
        return bool(self._new_module) or (
            isinstance(self.node, cst.ImportFrom)
            and len(self._new) == len(self.aliases) > 0
            and len(parents) == 1
            and "" not in parents
        )

    def _edit_in_place(self) -> None:
        """Changes only what must be, so that parentheses and comments in the statement stay."""
        assert isinstance(self.node, cst.ImportFrom) and self.node.module is not None
        for alias, new in self._new.items():
            name = new.rpartition(".")[2]
            if name != alias.name.value:
                suffix = "" if alias.asname else f" as {alias.name.value}"
                start, end = self._source.start(alias.name), self._source.end(alias.name)
                self._edits.replace(start, end, f"{name}{suffix}")
        module = self.node.module
        start, end = self._source.start(module), self._source.end(module)
        new_modules = [self._new_module, *(each.rpartition(".")[0] for each in self._new.values())]
        self._edits.replace(start, end, full_module(next(filter(None, new_modules))))

    def _statements(self) -> Iterator[str]:
        """Yields the statement without what is gone, and with what is imported from elsewhere."""
        kept = [each for each in self.aliases if each not in self._new and each not in self._gone]
        if isinstance(self.node, cst.Import):
            names = [self._code(each) for each in kept]
            for alias, new in self._new.items():
                local = self._code(alias).partition(" as ")[2] or self._code(alias)
                names.append(_named(full_module(new), local))
            if names and not self.is_kept:
                yield f"import {', '.join(names)}"
            return
        if kept and not self.is_kept:
            yield f"from {dotted(self.node.module)} import {', '.join(map(self._code, kept))}"
        groups: dict[str, list[str]] = {}
        for alias, new in self._new.items():
            parent, _, name = new.rpartition(".")
            local = self._code(alias).partition(" as ")[2] or self._code(alias)
            if parent:
                groups.setdefault(full_module(parent), []).append(_named(name, local))
            else:
                yield f"import {_named(full_module(name), local)}"
        for module, names in groups.items():
            yield f"from {module} import {', '.join(names)}"

    def _code(self, alias: cst.ImportAlias) -> str:
        name = dotted(alias.name)
        local = dotted(alias.asname.name) if alias.asname else None  # type: ignore
        return f"{name} as {local}" if local else f"{name}"

    def _add_below(self, statements: list[str]) -> None:
        """Adds statements after this one."""
        line = self._source.end(self.node)[0]
        if statements and self._is_in_one_line_suite:
            end = self._source.end(self.node)
            self._edits.wrap(end, end, "", f"; {'; '.join(statements)}")
            return
        for statement in statements:
            self._edits.add_line_below(line, f"{self._indentation}{statement}")

    @property
    def _is_in_one_line_suite(self) -> bool:
        return isinstance(self._source.parent(self.node), cst.SimpleStatementSuite)

    @property
    def _indentation(self) -> str:
        line = self._edits.line(self.line)
        return line[: len(line) - len(line.lstrip())]


def _named(name: str, local: str) -> str:
    return name if name == local else f"{name} as {local}"


def remove_statement(node: cst.BaseSmallStatement, source: Source, edits: Edits) -> None:
    """Takes a statement out, with its line if nothing else is on it."""
    line = source.parent(node)
    block = source.parent(line) if line is not None else None
    is_last = isinstance(block, cst.IndentedBlock) and all(
        each is line or edits.is_removed(source.start(each)[0]) for each in block.body
    )
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1 or is_last:
        edits.replace(source.start(node), source.end(node), "pass")
    elif (comment := line.trailing_whitespace.comment) is not None:
        edits.replace(source.start(node), source.start(comment), "")
    else:
        edits.remove_lines(source.start(node)[0], source.end(node)[0])


def remove_decorator(node: cst.Decorator, source: Source, edits: Edits) -> None:
    """Takes a decorator out, with its line if no comment is on it."""
    if (comment := node.trailing_whitespace.comment) is not None:
        edits.replace(source.start(node), source.start(comment), "")
    else:
        edits.remove_lines(source.start(node)[0], source.end(node)[0])


def after_the_head(module: cst.Module, source: Source) -> int:
    """Returns the line after which an import can stand: the last import, or the docstring."""
    last = 0
    for position, statement in enumerate(module.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        first = statement.body[0]
        is_docstring = (
            position == 0
            and isinstance(first, cst.Expr)
            and isinstance(first.value, cst.SimpleString | cst.ConcatenatedString)
        )
        if not is_docstring and not isinstance(first, cst.Import | cst.ImportFrom):
            break
        last = source.end(statement)[0]
    return last
