"""Keeps the drawing of the rooms true: who may import whom, and what an import may load.

The source is read, not run. A failure prints the offending edge: file, line, and the two rooms.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.guards import ROOT

SOURCE = ROOT / "src" / "replicax"
PACKAGE = "replicax"

# Low to high. A room may import the rooms below it; none above it, and none on its own line.
# "_leaves" are the modules whose name starts with an underscore, at the top of the package.
FLOORS: tuple[frozenset[str], ...] = tuple(
    frozenset(floor)
    for floor in (
        {"_leaves"},
        {"devices", "cluster", "records"},
        {"context"},
        {"values"},
        {"collectives"},
        {"variable"},
        {"functions"},
        {"training", "data", "executors"},
        {"input"},
        {"strategies"},
        {"checkpoints", "coordinator", "watching"},
        # The public namespaces: lists of names from the rooms below.
        {
            *{"config", "debug", "distribute", "errors", "experimental", "io", "metrics", "nn"},
            *{"random", "summary", "tpu", "train", "types"},
        },
        # Users of the public API that live in the package.
        {"cli", "compat", "integrations", "testing"},
        {"__init__"},
    )
)
# These may use the package as its users do, through its public names.
MAY_IMPORT_THE_PACKAGE = frozenset({"cli", "compat", "integrations", "testing"})

# Imports of our own package inside a function, each with the reason why it cannot be at the top.
LOCAL_IMPORTS_WITH_A_REASON: dict[str, str] = {
    "replicax.watching._surfaces": "the part that it imports needs rich, which is an extra",
    "replicax.integrations.keras": "what it imports needs Keras to run on JAX",
    "replicax.cli._migrate": "the part that it imports needs libcst, which is an extra",
}

# What `import replicax` may not load: it takes time, or is an extra.
HEAVY = (
    "grain keras libcst matplotlib optax orbax rich sklearn tensorboardX tensorflow torch".split()
)


class Edge(NamedTuple):
    """One import statement: `importer` uses `imported`, both dotted module names."""

    importer: str
    imported: str
    path: Path
    line: int
    inside_function: bool
    for_types_only: bool = False

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.importer} -> {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Returns the room of a dotted name: `replicax.values._mirrored` is in `values`."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "__init__"
    return "_leaves" if parts[1].startswith("_") else parts[1]


def floor_of(room: str) -> int | None:
    return next((level for level, floor in enumerate(FLOORS) if room in floor), None)


MODULES: dict[str, Path] = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported_names(node: ast.AST, importer: str, is_package: bool) -> Iterator[str]:
    """Yields the modules of our package that an import statement names."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == PACKAGE:
                yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = importer.split(".")
            keep = len(parts) - node.level + (1 if is_package else 0)
            base = ".".join([*parts[:keep], *([node.module] if node.module else [])])
        if base.split(".")[0] == PACKAGE:
            for alias in node.names:
                # `from replicax.context import _stack` names a module, not the package's content.
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in MODULES else base


def edges_of(module: str, path: Path) -> Iterator[Edge]:
    def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Edge]:
        for child in ast.iter_child_nodes(node):
            for name in imported_names(child, module, path.name == "__init__.py"):
                line = getattr(child, "lineno", 0)
                yield Edge(module, name, path, line, in_function, for_types)
            yield from walk(
                child,
                in_function or isinstance(child, ast.FunctionDef),
                for_types
                or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)),
            )

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False, False)


EDGES: list[Edge] = [edge for name, path in MODULES.items() for edge in edges_of(name, path)]


def breaks_the_order(edge: Edge) -> str | None:
    """Returns why an edge is not allowed, or None."""
    importer, imported = room_of(edge.importer), room_of(edge.imported)
    if importer == "__init__":
        return None
    if imported == "__init__":
        if importer in MAY_IMPORT_THE_PACKAGE:
            return None
        return "imports the whole package; name the room that has what you need"
    here, there = floor_of(importer), floor_of(imported)
    if here is None or there is None:
        unknown = importer if here is None else imported
        return f"the room {unknown!r} has no floor; give it one in tests/test_architecture.py"
    if importer == imported or there < here:
        return None
    where = "beside" if there == here else "above"
    return f"{importer} may not import {imported}, which is {where} it"


def listing(lines: list[str]) -> str:
    return "\n  ".join(["", *lines])


def test_source_was_found():
    assert len(MODULES) > 20 and EDGES


def test_every_room_has_a_floor():
    lost = sorted({room_of(name) for name in MODULES if floor_of(room_of(name)) is None})
    assert not lost, f"no floor in the drawing for: {lost}"


def test_rooms_import_only_what_is_below_them():
    broken = [f"{edge} ({reason})" for edge in EDGES if (reason := breaks_the_order(edge))]
    assert not broken, listing(broken)


def test_no_import_inside_a_function():
    hidden = [
        str(edge)
        for edge in EDGES
        if edge.inside_function and edge.importer not in LOCAL_IMPORTS_WITH_A_REASON
    ]
    assert not hidden, listing(hidden)


def test_allowed_local_imports_still_exist():
    local = {edge.importer for edge in EDGES if edge.inside_function}
    assert not LOCAL_IMPORTS_WITH_A_REASON.keys() - local


def test_modules_have_no_import_cycle():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for edge in EDGES:
        runs = not edge.inside_function and not edge.for_types_only
        if runs and edge.imported in graph:
            graph[edge.importer].add(edge.imported)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            pytest.fail(" -> ".join([*trail[trail.index(name) :], name]), pytrace=False)
        if name not in done:
            for following in sorted(graph[name]):
                visit(following, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_module_says_what_lives_in_it():
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, listing(silent)


@pytest.mark.parametrize(
    ("importer", "imported", "words"),
    [
        ("replicax.values._mirrored", "replicax.variable", "above"),
        ("replicax.training._optimizer", "replicax.executors", "beside"),
        ("replicax.context._stack", "replicax", "whole package"),
        ("replicax.attic._x", "replicax.values", "no floor"),
        ("replicax.variable._variable", "replicax.values._mirrored", None),
        ("replicax.testing._runner", "replicax", None),
    ],
)
def test_the_rule_itself(importer: str, imported: str, words: str | None):
    reason = breaks_the_order(Edge(importer, imported, SOURCE, 1, False))
    assert reason is None if words is None else reason is not None and words in reason


def test_import_is_light():
    program = (
        "import sys; import replicax; "
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; print(*heavy)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.split() == [], "loaded by `import replicax`"


def test_import_starts_no_device():
    """Virtual devices can be asked for after `import replicax`, so that may not start a backend."""
    program = (
        "import replicax; from jax._src import xla_bridge; "
        "assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        timeout=60,
        check=True,
    )
