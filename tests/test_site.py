"""What the site is made of besides Markdown pages."""

from __future__ import annotations

import html
import re

import pytest

from scripts.website.charts import chart_of
from scripts.website.drawings import MARKED, as_svg
from scripts.website.names import breakable
from scripts.website.pages import all_pages, examples, link_examples, link_results
from tests.guards import ROOT

DRAWINGS = [
    match["text"]
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for match in MARKED.finditer(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("text", DRAWINGS, ids=lambda text: text.split()[0])
def test_a_drawing_keeps_its_words_and_has_lines(text: str):
    drawn = as_svg(text, "label")
    written = html.unescape(" ".join(re.findall(r">([^<>]+)</text>", drawn)))
    words = re.findall(r"[A-Za-z]{2,}", text)
    assert words == re.findall(r"[A-Za-z]{2,}", written)
    assert drawn.count("<path") > 3 and "\n" not in drawn


def test_a_box_is_four_lines():
    drawn = as_svg("+--+\n|a |\n+--+\n", "box")
    assert drawn.count("<path") == 2 + 6  # two across; each side in three pieces
    assert ">a</text>" in drawn


def test_pages_made_of_other_files():
    pages = dict(all_pages())
    assert "rx.distribute.MirroredStrategy()" in pages["tutorial.md"]
    assert pages["benchmarks.md"].startswith("# Benchmarks\n\nThis page compares")
    assert "<svg" in pages["benchmarks.md"] and "## [Unreleased]" in pages["changelog.md"]
    listed = link_examples((ROOT / "docs" / "examples.md").read_text(encoding="utf-8"))
    for program in examples():
        assert (ROOT / "examples" / program).read_text() in pages[f"examples/{program}"[:-2] + "md"]
        assert f"(examples/{program}"[:-2] + "md)" in listed


def test_the_file_of_results_is_a_link_to_its_page():
    assert link_results("`benchmarks/RESULTS.md`", "a.md") == "[Benchmarks](benchmarks.md)"
    assert "(../benchmarks.md)" in link_results("`benchmarks/RESULTS.md`", "strategies/a.md")


def test_names_break_between_words_only():
    cell = "<td><code>rx.SyncOnRead_b</code> a.b</td><code>c.d</code>"
    expected = "<td><code>rx.<wbr>Sync<wbr>On<wbr>Read_<wbr>b</code> a.b</td><code>c.d</code>"
    assert breakable(cell) == expected
    with_tags = '<td><code class="a.b"><a href="x.y">x.y</a> &lt;1</code></td>'
    assert breakable(with_tags) == with_tags.replace(">x.y", ">x.<wbr>y")
    option = breakable("<td><code>x --node-rank 1</code></td>")
    assert option == '<td><code>x <span class="option">--node-rank</span> 1</code></td>'
    heading = '<h3><span class="doc doc-object-name doc-f">assign_add</span> a_b</h3>'
    assert breakable(heading) == heading.replace("assign_", "assign_<wbr>")


def test_a_wide_drawing_scrolls_on_a_phone():
    assert 'class="drawing"' in as_svg("-" * 80, "")
    assert 'class="drawing wide"' in as_svg("-" * 81, "")


def test_bars_are_left_of_one_where_we_are_faster():
    table = (
        "| what |\n| --- |\n| a | b | c | d | 0.50 | 0.80 | |\n| a | b | c | d | 2.00 | 3.00 | |\n"
    )
    drawn = chart_of(table)
    faster = re.findall(r"class='faster' x='([\d.]+)'", drawn)
    slower = re.findall(r"class='slower' x='([\d.]+)'", drawn)
    assert len(faster) == len(slower) == 2, "beside labels, and below them for phones"
    assert all(float(one) < float(other) for one, other in zip(faster, slower, strict=True))
