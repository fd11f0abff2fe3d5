"""docs/old-names.md is what the table of older names makes of it."""

import importlib.util
from typing import Any

from tests.guards import ROOT

SCRIPT = ROOT / "scripts" / "old_names_page.py"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("old_names_page", SCRIPT)
    assert spec is not None and spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = (ROOT / "docs" / "old-names.md").read_text(encoding="utf-8")
    assert written == script.page(), "run `python scripts/old_names_page.py`"
