"""Counts what should become less: lines, questions about the mode, reaching into rooms, `Any`.

`python -m scripts.counts` prints the table; `tests/test_architecture.py` keeps the limits. The
source is read, not run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

from scripts.rooms import LEAVES, MODULES, PUBLIC, edges, room_of, tree

# What code asks instead of calling a method of the object that knows.
TRACED = re.compile(
    r"\bis_compiling\(\)|\bthread_state\.world\b|\bare_together\b"
    r"|\bis(?: not)? (?:_stack\.)?EACH\b|isinstance\([^()]*, TracedBuffers\)"
)
WORKERS = re.compile(r"\bspans_workers\b|\bcurrent_membership\(\) is\b|\bnum_workers [=>]")
PARTS = re.compile(r"\bis_plain\b|\bis_cut\w*\b|\breplica_dim is\b")
REPLICAS = re.compile(r"\bnum_replicas_in_sync (?:==|>|!=) 1\b")


def _inside() -> Iterator[tuple[str, Path]]:
    """The modules behind the public names, with their rooms."""
    for name, path in MODULES.items():
        if room_of(name) != PUBLIC:
            yield room_of(name), path


def lines() -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values())


_NO_CODE = (COMMENT, NL, NEWLINE, INDENT, DEDENT, ENDMARKER)


def _of_code(path: Path) -> set[int]:
    """The numbers of the lines of a file that are no blanks, comments or docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts: set[int] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            texts.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    with path.open(encoding="utf-8") as file:
        tokens = [each for each in generate_tokens(file.readline) if each.type not in _NO_CODE]
    return {line for each in tokens for line in range(each.start[0], each.end[0] + 1)} - texts


def code_by_room() -> dict[str, int]:
    """Returns the lines of code of each room, the largest first."""
    rooms: Counter[str] = Counter()
    for name, path in MODULES.items():
        rooms[room_of(name)] += len(_of_code(path))
    return dict(rooms.most_common())


# Those who know the answer: the worlds, where a replica's number can be `EACH`, and the layouts.
THEMSELVES = {
    TRACED: """context/_stack context/_world values/_traced collectives/_replicas functions/_trace
functions/_traced_world""".split(),
    PARTS: ["devices/_layout"],
}


def _lines_with(pattern: re.Pattern[str]) -> Callable[[], int]:
    def count() -> int:
        found = 0
        for _, path in _inside():
            if "/".join(path.with_suffix("").parts[-2:]) in THEMSELVES.get(pattern, ()):
                continue
            for line in path.read_text(encoding="utf-8").splitlines():
                asks = pattern.search(line.split("#")[0])
                if asks and not re.match(r"\s*(def|from|import|class|\"\"\")", line):
                    found += 1
        return found

    return count


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def _private_names(room: str) -> frozenset[str]:
    """The private attributes of the classes that the files of a room define."""
    names: set[str] = set()
    classes = (
        node
        for other, path in _inside()
        if other == room
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    )
    for defined in classes:
        for node in defined.body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(name)
                case ast.Assign(targets=targets):
                    names.update(each.id for each in targets if isinstance(each, ast.Name))
        for node in ast.walk(defined):
            match node:
                case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                    names.add(name)
                case ast.Constant(value=str(name)) if name.isidentifier():  # __slots__, setattr
                    names.add(name)
    return frozenset(filter(_is_private, names))


# Private by their spelling, and of nobody in the house.
_OF_PYTHON = frozenset({"_replace", "_make", "_exit"})  # of named tuples, of `os`
_OF_LIBRARIES = {
    "leaves": frozenset({"_arrays", "_trace"}),  # of JAX
    "integrations": frozenset({"_dtype", "_iterations", "_metrics", "_variables"}),  # of Keras
}


def reaches() -> list[str]:
    """Where a private attribute of an object of another room is used."""
    rooms = {room for room, _ in _inside()}
    found: list[str] = []
    for room, path in _inside():
        elsewhere = frozenset().union(*(_private_names(r) for r in rooms - {room}))
        own = _private_names(room) | _OF_PYTHON | _OF_LIBRARIES.get(room, frozenset())
        foreign = elsewhere - own
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and node.attr in foreign:
                found.append(f"{path}:{node.lineno}: .{node.attr}")
    return found


def private_imports() -> list[str]:
    """Where a private file of another room is imported."""
    return [
        str(edge)
        for edge in edges()
        if room_of(edge.imported) not in (room_of(edge.importer), LEAVES, PUBLIC)
        and edge.imported.rpartition(".")[2].startswith("_")
    ]


def _parameters() -> Iterator[ast.expr]:
    """The annotations of all parameters."""
    for path in MODULES.values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                everyone += [each for each in (arguments.vararg, arguments.kwarg) if each]
                yield from (each.annotation for each in everyone if each.annotation is not None)


def any_percent() -> float:
    """The share of annotated parameters that are `Any`, in percent."""
    annotations = list(_parameters())
    anything = sum(isinstance(each, ast.Name) and each.id == "Any" for each in annotations)
    return round(100 * anything / len(annotations), 1)


def _decorated(name: str) -> Callable[[], int]:
    return lambda: sum(
        len(re.findall(rf"^\s*@{name}$", path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in MODULES.values()
    )


COUNTS: dict[str, Callable[[], float]] = {
    "lines": lines,
    "lines of code, without blanks, comments and docstrings": lambda: sum(code_by_room().values()),
    "lines that ask: am I being traced?": _lines_with(TRACED),
    "lines that ask: are there other workers?": _lines_with(WORKERS),
    "lines that ask: is it in parts?": _lines_with(PARTS),
    "lines that ask: is there one replica?": _lines_with(REPLICAS),
    "private attributes of other rooms": lambda: len(reaches()),
    "private files of other rooms imported": lambda: len(private_imports()),
    "parameters that are Any, in percent": any_percent,
    "methods marked @override": _decorated("override"),
    "classes and methods marked @final": _decorated("final"),
}


def main() -> None:
    """Prints all counts, and the lines of code of each room."""
    for what, count in COUNTS.items():
        print(f"{count():>8}  {what}")
    print("\nLines of code by room:")
    for room, number in code_by_room().items():
        print(f"{number:>8}  {room}")


if __name__ == "__main__":
    main()
