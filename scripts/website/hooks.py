"""What mkdocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parents[2]))  # mkdocs loads this file by its path
from scripts.website.drawings import MARKED, as_svg
from scripts.website.names import breakable
from scripts.website.pages import all_pages, link_examples, link_results


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages that are other files of the project."""
    for path, markdown in all_pages():
        files.append(File.generated(config, path, content=markdown))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turns drawings into SVG, and links examples with their source, and results with theirs."""
    if page.file.src_uri == "examples.md":
        markdown = link_examples(markdown)
    markdown = link_results(markdown, page.file.src_uri)
    return MARKED.sub(lambda match: as_svg(match["text"], f"A drawing: {page.title}"), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Lets names in tables and headings break where a reader expects it."""
    return breakable(html)
