"""The benchmarks run, and what they compare computes the same numbers. Never how fast it does."""

import json
from pathlib import Path

from tests.guards import ROOT
from tests.scripts import run_python


def test_eager_benchmark_prints_a_table_of_variants_with_equal_losses(tmp_path: Path):
    # The script fails if the losses of a variant differ from those of plain JAX.
    output = run_python(
        [str(ROOT / "benchmarks" / "eager.py"), "--quick", "--no-tensorflow", "--markdown"]
        + ["--json", "eager.json"],
        tmp_path,
    )
    assert "the losses of all variants agree" in output
    table = [line.strip("|").split("|") for line in output.splitlines() if line.startswith("|")]
    assert {len(cells) for cells in table} == {9}
    assert [cells[0].strip() for cells in (table[0], table[-1])] == ["model", "geometric mean"]
    rows = json.loads((tmp_path / "eager.json").read_text())["rows"]
    assert [row["replicas"] for row in rows] == [1, 2]
    assert all(row[name] > 0 for row in rows for name in ("limit", "plain", "compiled"))
    assert all(row["tensorflow"] is None for row in rows)
