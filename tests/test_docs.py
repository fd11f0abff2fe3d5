"""The papers of the house are true: every public name has an entry, every code block runs.

In a Markdown page, the `python` blocks run one after the other, as one program. A block titled
`wrong: SomeError` must raise that error; what it raises is part of the page's promise.
"""

import ast
import importlib
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from tests.guards import ROOT
from tests.scripts import run_python

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES_WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]

BLOCK = re.compile(r"^```python(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^```$", re.M | re.S)


# --- public names ---------------------------------------------------------------------------------


def public_names(namespace: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yields the names that a namespace lists: those in `__all__`, or written `x as x`."""
    listed = getattr(namespace, "__all__", None)
    if listed is None:
        assert namespace.__file__
        tree = ast.parse(Path(namespace.__file__).read_text(encoding="utf-8"))
        listed = [
            alias.asname
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if alias.asname and alias.asname == alias.name.split(".")[-1]
        ]
    for name in listed:
        if not name.startswith("_"):
            yield name, getattr(namespace, name)


def all_public_names(namespace: types.ModuleType, prefix: str) -> Iterator[str]:
    for name, value in public_names(namespace):
        path = f"{prefix}.{name}"
        if isinstance(value, types.ModuleType):
            yield from all_public_names(value, path)
        else:
            yield path


def names_with_an_entry() -> set[str]:
    """Returns what the API pages render (`::: replicax.x`) or list as an alias (`rx.x`)."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    rendered = re.findall(r"^::: replicax\.([\w.]+)$", text, re.M)
    aliases = re.findall(r"`rx\.([\w.]+)`", text)
    return {f"rx.{name}" for name in (*rendered, *aliases)}


def test_every_public_name_has_an_entry():
    missing = sorted(set(all_public_names(rx, "rx")) - names_with_an_entry())
    assert not missing, f"add to docs/api: {missing}"


def test_every_entry_is_a_name():
    def exists(path: str) -> bool:
        value: Any = rx
        for part in path.split(".")[1:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True

    unknown = sorted(name for name in names_with_an_entry() if not exists(name))
    assert not unknown, f"in docs/api, but not in the library: {unknown}"


def test_every_public_name_has_a_docstring():
    silent = []
    for path in all_public_names(rx, "rx"):
        namespace, _, name = path.removeprefix("rx").rpartition(".")
        value = getattr(importlib.import_module(f"replicax{namespace}"), name)
        if callable(value) and not (value.__doc__ or "").strip():
            silent.append(path)
    assert not silent, f"no docstring: {silent}"


def test_every_error_class_has_a_section():
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    missing = [name for name, _ in public_names(rx.errors) if f"## `rx.errors.{name}`" not in text]
    assert not missing, f"add to docs/errors.md: {missing}"


# --- code blocks ----------------------------------------------------------------------------------

RUNNER = """
import json, sys, traceback
namespace = {"__name__": "__main__"}
for line, title, code in json.load(open(sys.argv[1])):
    program = compile("\\n" * line + code, sys.argv[2], "exec")
    wrong = title.removeprefix("wrong: ") if title.startswith("wrong: ") else None
    try:
        exec(program, namespace)
    except Exception as error:
        names = [each.__name__ for each in type(error).__mro__]
        if wrong is None or wrong.rpartition(".")[2] not in names:
            traceback.print_exc()
            sys.exit(f"{sys.argv[2]}, the block at line {line}: {type(error).__name__}: {error}")
    else:
        if wrong is not None:
            sys.exit(f"{sys.argv[2]}, the block at line {line} did not raise {wrong}")
"""


def blocks_of(page: Path) -> list[tuple[int, str, str]]:
    """Returns (line, title, code) of each Python block."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")), match["title"] or "", match["code"])
        for match in BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_in_page_runs(page: Path, tmp_path: Path):
    blocks = blocks_of(page)
    assert len(blocks) == page.read_text(encoding="utf-8").count("```python")
    (tmp_path / "blocks.json").write_text(json.dumps(blocks), encoding="utf-8")
    (tmp_path / "runner.py").write_text(RUNNER, encoding="utf-8")
    run_python(["runner.py", "blocks.json", str(page.relative_to(ROOT))], tmp_path)


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if not re.match(r"[a-z]+:", link)]
    broken = [link for link in files if not (page.parent / link).exists()]
    assert not broken
