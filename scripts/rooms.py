"""The rooms of the package and who imports whom: reads the source, and draws what it finds.

`python -m scripts.rooms` in the root of the project draws both into docs/design/rooms.md and
src/replicax/README.md. `tests/test_architecture.py` keeps the order, and the drawings up to date.
The source is read, not run.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "replicax"
PACKAGE = "replicax"
PAGES = (ROOT / "docs" / "design" / "rooms.md", SOURCE / "README.md")


class Floor(NamedTuple):
    """Rooms beside each other. A room may import the rooms of the floors below, and no others."""

    rooms: tuple[str, ...]
    what: str


# The public modules, `replicax` itself among them: lists of names from the rooms below.
PUBLIC = "public"
# Modules in `_src` that are in no room.
LEAVES = "leaves"

# Low to high.
FLOORS: tuple[Floor, ...] = (
    Floor((LEAVES,), "they import nothing of ours but each other"),
    Floor(
        ("cluster", "devices", "files", "images", "records"),
        "workers | names, meshes | gfile | images | record files",
    ),
    Floor(("context",), "which strategy, which replica: a stack for each thread"),
    Floor(("values",), "PerReplica, Mirrored, regrouping"),
    Floor(("collectives",), "reductions, gathers, cross-device ops"),
    Floor(("variable",), "mutable arrays, by synchronization and aggregation"),
    Floor(("planning",), "what a program needs on devices that are not here"),
    Floor(("functions",), "rx.function: trace, program, call"),
    Floor(
        ("data", "executors", "training"), "pipelines | how replicas run | gradients, optimizers"
    ),
    Floor(("strategies",), "Strategy (users), StrategyExtended (authors)"),
    Floor(
        ("checkpoints", "parameter_servers", "watching"),
        "state on disk | variables on servers | progress, profiles",
    ),
    Floor(("divergence",), "are the copies of variables equal?"),
    Floor(("recording",), "what is needed to run steps again, and running them"),
    Floor(("cli", "compat", "integrations"), "commands | names of older programs | Keras, Flax"),
    Floor((PUBLIC,), "the modules that users import: lists of names"),
)
# These may use the package as its users do, through its public names.
MAY_IMPORT_THE_PACKAGE = frozenset({"cli", "integrations"})


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


# --- reading --------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room of a dotted name: `replicax._src.values._mirrored` is in `values`."""
    parts = module.split(".")
    if parts[1:2] != ["_src"]:
        return PUBLIC
    return LEAVES if len(parts) == 2 or parts[2].startswith("_") else parts[2]


def floor_of(room: str) -> int | None:
    """How high a room lies; None if nobody has said so."""
    return next((level for level, floor in enumerate(FLOORS) if room in floor.rooms), None)


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
                # `from replicax._src.context import _stack` names a module, not what is in it.
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in MODULES else base


@functools.cache
def tree(path: Path) -> ast.Module:
    """What a file consists of."""
    return ast.parse(path.read_text(encoding="utf-8"))


def edges_of(module: str, path: Path) -> Iterator[Edge]:
    """Yields the imports of our own package in a file."""

    def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Edge]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # has no statements in it
                continue
            for name in imported_names(child, module, path.name == "__init__.py"):
                line = getattr(child, "lineno", 0)
                yield Edge(module, name, path, line, in_function, for_types)
            yield from walk(
                child,
                in_function or isinstance(child, ast.FunctionDef),
                for_types
                or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)),
            )

    yield from walk(tree(path), False, False)


@functools.cache
def edges() -> list[Edge]:
    """All imports of our own package in it."""
    return [edge for name, path in MODULES.items() for edge in edges_of(name, path)]


# --- drawing --------------------------------------------------------------------------------------

_WIDTH = 43  # of the rooms, beside which it is said what is in them


def floors() -> str:
    """The house: one line for each floor, the highest first."""
    lines: list[str] = []
    for floor in reversed(FLOORS):
        written = textwrap.wrap("   ".join(_shown(floor)), _WIDTH - 2) or [""]
        lines.append(f"{written[0]:^{_WIDTH}}  {floor.what}".rstrip())
        lines += [f"{more:^{_WIDTH}}".rstrip() for more in written[1:]]
    return "\n".join(lines)


def _shown(floor: Floor) -> list[str]:
    if floor.rooms not in ((PUBLIC,), (LEAVES,)):
        return list(floor.rooms)
    place = 1 if floor.rooms == (PUBLIC,) else 2
    inside = [name.split(".") for name in MODULES if room_of(name) == floor.rooms[0]]
    names = {parts[place] for parts in inside if len(parts) > place}
    return sorted(names - {"_src", "__main__"})


def imports() -> str:
    """Who imports whom: a mark where the room of a row imports that of a column."""
    rooms = [(room, level) for level, floor in enumerate(FLOORS) for room in floor.rooms]
    found = {
        (room_of(edge.importer), room_of(edge.imported))
        for edge in edges()
        if not edge.for_types_only
    }

    def mark(room: str, level: int, other: str, other_level: int) -> str:
        if room == other:
            return "o"
        return "x" if (room, other) in found else "." if other_level < level else ""

    width = max(len(room) for room, _ in rooms) + 4
    rows = [" " * width + "".join(f"{number:>3}" for number in range(1, len(rooms) + 1))]
    for number, row in enumerate(rooms, 1):
        marks = "".join(f"{mark(*row, *column):>3}" for column in rooms)
        rows.append(f"{number:>2}  {row[0]:<{width - 4}}{marks}".rstrip())
    return "\n".join(rows)


DRAWINGS = {"floors": floors, "imports": imports}


def redrawn(text: str) -> str:
    """A page with its drawings drawn again."""
    for name, draw in DRAWINGS.items():
        begin, end = (
            f"<!-- drawn by scripts/rooms.py: {name} -->\n",
            "<!-- end of the drawing -->\n",
        )
        if begin in text:
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n```text\n{draw()}\n```\n\n{end}{after}"
    return text


def main() -> None:
    """Draws again in all pages."""
    for page in PAGES:
        page.write_text(redrawn(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
