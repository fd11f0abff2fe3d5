"""The tutorial notebook runs, and shows what was saved with it.

After a change that is meant: `python scripts/run_notebook.py docs/tutorial.ipynb`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.guards import ROOT
from tests.scripts import run_python

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(e[-+]?\d+)?")


def cells_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def outputs_of(cell: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    """Of each output its kind, its formats and its text.

    Speeds, sizes of programs and last digits differ between machines, so numbers are left out.
    """
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        text = "".join(data.get("text/plain", output.get("text", "")))
        words = "".join(_NUMBER.sub("#", text).split())
        found.append((output["output_type"], sorted(data), words))
    return found


def test_notebook_runs_and_shows_what_was_saved(tmp_path: Path):
    copy = tmp_path / "copy.ipynb"
    run_python([str(ROOT / "scripts" / "run_notebook.py"), str(NOTEBOOK), str(copy)], tmp_path)
    before, after = cells_of(NOTEBOOK), cells_of(copy)
    assert [cell["source"] for cell in before] == [cell["source"] for cell in after]
    assert [outputs_of(cell) for cell in before] == [outputs_of(cell) for cell in after]


@pytest.mark.parametrize(
    "shown",
    [
        *("MirroredStrategy", "PerReplica", "MirroredVariable", "SyncOnReadVariable"),
        *("BatchDataset", "DistributedDataset", "rx.function", "epoch"),
    ],
)
def test_rich_display_was_saved(shown: str):
    data = [
        output.get("data", {}) for cell in cells_of(NOTEBOOK) for output in cell.get("outputs", [])
    ]
    rich = ["".join(each["text/html"]) for each in data if "text/html" in each]
    assert any(shown in html for html in rich)


def test_nothing_of_the_machine_was_saved():
    outputs = [cell.get("outputs", []) for cell in cells_of(NOTEBOOK)]
    assert not re.search(r"/(tmp|home|root|work|usr|Users|opt)/|[A-Z]:\\\\", json.dumps(outputs))
    assert "stderr" not in json.dumps(outputs)
