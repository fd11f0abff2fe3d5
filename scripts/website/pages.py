"""Pages of the site that are other files: the notebook, examples, results, changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.website.charts import chart_of

ROOT = Path(__file__).parents[2]


def all_pages() -> Iterator[tuple[str, str]]:
    """The path of each page in the documentation, and its Markdown."""
    yield "tutorial.md", tutorial()
    yield "changelog.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield "benchmarks.md", results()
    for program in examples():
        yield page_of(program), source_of(program)


# ------------------------------------------------------------------ the notebook


def tutorial() -> str:
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(_cell(each) for each in cells) + "\n"


def _cell(cell: Mapping[str, object]) -> str:
    source = _text(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    outputs = cell["outputs"]
    assert isinstance(outputs, list)
    return "\n\n".join([f"```py\n{source}\n```", *map(_output, outputs)])


def _output(output: Mapping[str, object]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{_text(output['text'])}```"
    data = output["data"]
    assert isinstance(data, dict)
    if "text/html" in data:
        return f'<div class="output">{_text(data["text/html"])}</div>'.replace("\n", " ")
    return f"```text\n{_text(data['text/plain'])}\n```"


def _text(lines: object) -> str:
    return lines if isinstance(lines, str) else "".join(lines)  # type: ignore[arg-type]


# ------------------------------------------------------------------ examples


def examples() -> list[Path]:
    """The programs that docs/examples.md lists."""
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w/]+\.py)` \|(?: `([\w/]+\.py)` \|)?", text, re.M)
    return [Path(name) for names in named for name in names if name]


def page_of(program: Path) -> str:
    return f"examples/{program.with_suffix('.md')}"


def source_of(program: Path) -> str:
    code = (ROOT / "examples" / program).read_text(encoding="utf-8")
    up = "../" * len(program.parts)
    return (
        f"# {program.name}\n\n`examples/{program}`, of [all examples]({up}examples.md).\n\n"
        f"```py\n{code}```\n"
    )


def link_examples(markdown: str) -> str:
    """The list of examples, with links to the pages of their source."""
    for program in examples():
        markdown = markdown.replace(f"| `{program}` |", f"| [`{program}`]({page_of(program)}) |")
    return markdown


# ------------------------------------------------------------------ results


_RESULTS = """\
# Benchmarks

This page compares replicax with JAX written by hand and with other libraries. `make bench`
measures, and `benchmarks/README.md` describes each benchmark.

"""


def results() -> str:
    """The results, with a beginning for readers of the site and a drawing of the first table."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    text = re.sub(r"\A# Results\n\n`make bench` .*?\n\n", _RESULTS, text, flags=re.S)
    before, table, rest = re.split(r"(^\| what .*?\n)\n", text, maxsplit=1, flags=re.M | re.S)
    return f"{before}{chart_of(table)}\n\n{table}\n{rest}"


def link_results(markdown: str, page: str) -> str:
    """Makes links to the page of benchmarks of what names its file.

    Args:
      markdown: a page of the documentation.
      page: its path in `docs/`.

    Returns:
      The page with the links.
    """
    target = "../" * page.count("/") + "benchmarks.md"
    return markdown.replace("`benchmarks/RESULTS.md`", f"[Benchmarks]({target})")
