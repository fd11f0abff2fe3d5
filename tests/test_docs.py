"""The documentation is true: every public name has an entry, every code block runs.

In a Markdown page, the `python` blocks run one after the other, as one program. A block titled
`wrong: SomeError` must raise that error; what it raises is part of the page's promise.
"""

import importlib
import inspect
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from scripts.api_review.public_names import all_public_names, public_names
from tests.guards import ROOT
from tests.scripts import run_python

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES_WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]

BLOCK = re.compile(r"^```python(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^```$", re.M | re.S)


# --- public names ---------------------------------------------------------------------------------


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


def value_of(path: str) -> Any:
    namespace, _, name = path.removeprefix("rx").rpartition(".")
    return getattr(importlib.import_module(f"replicax{namespace}"), name)


def test_every_public_name_has_a_docstring():
    silent = []
    for path in all_public_names(rx, "rx"):
        value = value_of(path)
        if callable(value) and not (value.__doc__ or "").strip():
            silent.append(path)
    assert not silent, f"no docstring: {silent}"


def functions_of(path: str) -> Iterator[tuple[str, Any]]:
    """Yields the function with a public name, or the public methods of the class with it."""
    value = value_of(path)
    if inspect.isfunction(value):
        yield path, value
    for name, method in vars(value).items() if inspect.isclass(value) else ():
        method = getattr(method, "__func__", method)
        if inspect.isfunction(method) and not name.startswith(("_", "tree_")):
            yield f"{path}.{name}", method


def test_public_functions_say_what_they_return():
    """A context manager says that it is one. Properties are what they say; they return nothing."""
    silent = [
        name
        for path in all_public_names(rx, "rx")
        for name, function in functions_of(path)
        if function.__module__.startswith("replicax.")
        and inspect.signature(function).return_annotation not in (None, "None", "NoReturn")
        and not re.search(
            r"Returns|Yields|Raises a|Context manager|Whether", inspect.getdoc(function) or ""
        )
    ]
    assert not silent, f"no word about what comes back: {silent}"


def code_that_is_shown() -> str:
    """The code of all pages and examples, with the titles of blocks, which name errors."""
    block = re.compile(
        r"^```py(?:thon)?\b(.*?)^```$", re.M | re.S
    )  # `py`: needs what tests have not
    pages = [each for page in PAGES for each in block.findall(page.read_text(encoding="utf-8"))]
    examples = sorted((ROOT / "examples").rglob("*.py"))
    return "\n".join([*pages, *(path.read_text(encoding="utf-8") for path in examples)])


def test_every_public_name_has_an_example():
    """In code that is shown, or in its docstring; under this name, or another one that it has."""
    code = code_that_is_shown()

    def is_shown(path: str) -> bool:
        with_namespace = ".".join(path.split(".")[-2:])
        doc = value_of(path).__doc__ or "" if callable(value_of(path)) else ""
        return ">>>" in doc or re.search(rf"\b{re.escape(with_namespace)}\b", code) is not None

    # Those of other workers cannot be shown; their sections in docs/errors.md are checked below.
    names = [path for path in all_public_names(rx, "rx") if not path.startswith("rx.errors.")]
    shown = {id(value_of(path)) for path in names if is_shown(path)}
    missing = [path for path in names if id(value_of(path)) not in shown]
    assert not missing, f"show in docs/api: {missing}"


# --- errors ---------------------------------------------------------------------------------------

ERRORS = [name for name, _ in public_names(rx.errors)]


def section_on(error: str) -> str:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    _, _, section = text.partition(f"## `rx.errors.{error}`\n")
    return section.partition("\n## ")[0]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_class_has_a_section_with_wrong_and_right_code(error: str):
    titled = re.findall(
        r"^```\w+(?: title=\"(wrong|right)|\n# (wrong|right))", section_on(error), re.M
    )
    assert {a or b for a, b in titled} == {"wrong", "right"}, f"complete docs/errors.md: {error}"


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_names_its_section(error: str):
    cls = getattr(rx.errors, error)
    raised = cls("what was wrong")
    (note,) = raised.__notes__
    page, _, anchor = note.removeprefix("More: ").partition(",")[0].partition("#")
    assert (ROOT / page).samefile(DOCS / "errors.md")
    # As mkdocs and GitHub make an anchor of the heading.
    assert anchor == re.sub(r"[^\w -]", "", f"`rx.errors.{error}`").lower()
    assert f"help(rx.errors.{error})" in note
    assert str(raised) == "what was wrong"
    assert f"{cls.__module__}.{error}" == f"replicax.errors.{error}"


def test_a_kind_of_an_error_names_the_section_of_the_error():
    with pytest.raises(rx.errors.CheckpointError) as caught:
        rx.train.load_checkpoint("there is none")
    assert type(caught.value) is not rx.errors.CheckpointError
    assert "#rxerrorscheckpointerror" in caught.value.__notes__[0]


def test_an_error_keeps_its_note_through_a_pickle():
    for error in (rx.errors.DeviceError("no"), rx.errors.DataLossError("cut off", "file", 3)):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.__notes__) == (str(error), error.__notes__)


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
    keras = any("import keras" in code for _, _, code in blocks)
    arguments = ["runner.py", "blocks.json", str(page.relative_to(ROOT))]
    run_python(arguments, tmp_path, warm=True, keras=keras)


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if not re.match(r"[a-z]+:", link)]
    broken = [link for link in files if not (page.parent / link).exists()]
    assert not broken
