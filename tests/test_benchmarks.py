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


def test_step_benchmark_prints_tables_of_variants_with_equal_losses(tmp_path: Path):
    # The script fails if the losses or moving averages of a variant differ from those by hand.
    output = run_python(
        [str(ROOT / "benchmarks" / "step.py"), "--quick", "--no-tensorflow", "--markdown"]
        + ["--json", "step.json"],
        tmp_path,
    )
    assert "the losses of all variants agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 5
    report = json.loads((tmp_path / "step.json").read_text())
    steps = report["steps"]
    assert [(row["model"], row["devices"]) for row in steps] == [
        (model, devices) for model in ("tiny", "tiny_conv") for devices in (1, 2)
    ]
    assert all(row[name] > 0 for row in steps for name in ("replicax", "by_hand", "sharded"))
    assert all(row["tensorflow"] is None for row in steps)
    assert [(row["variables"], row["devices"]) for row in report["calls"]] == [(10, 1), (10, 2)]
    assert all(row["early"] == row["late"] > 0 for row in report["memory"])
    assert all(row["peak"] > 0 and row["by_hand_peak"] > 0 for row in report["memory"])
    assert [row["devices"] for row in report["many"]] == [1, 2]


def test_step_benchmark_of_a_bfloat16_transformer_runs_on_one_device(tmp_path: Path):
    output = run_python(
        [str(ROOT / "benchmarks" / "step.py"), "--only", "steps", "--no-tensorflow", "--quick"]
        + ["--models", "tiny_large", "--devices", "1"],
        tmp_path,
    )
    assert "tiny transformer, bf16" in output


def test_input_benchmark_measures_every_case_of_data_that_all_read_alike(tmp_path: Path):
    # The script fails if a side reads other rows or other numbers than the data set.
    output = run_python(
        [str(ROOT / "benchmarks" / "input.py"), "--quick", "--no-peers"]
        + ["--markdown", "input.md", "--json", "input.json"],
        tmp_path,
    )
    assert "goals are met" in output
    findings = json.loads((tmp_path / "input.json").read_text())["findings"]
    cases = [finding["case"] for finding in findings]
    for beginning in ("(a)", "(b)", "(c)", "(e)", "(f)", "prefetch", "state", "training"):
        assert any(case.startswith(beginning) for case in cases), beginning
    exact = [each for each in findings if each["what"].startswith("sources restored exactly")]
    assert [each["met"] for each in exact] == [True]
    tables = (tmp_path / "input.md").read_text()
    assert "| (d) batch.map(parse_example) " in tables


def test_input_benchmark_runs_one_case_alone(tmp_path: Path):
    output = run_python(
        [str(ROOT / "benchmarks" / "input.py"), "--quick", "--no-peers", "--only", "e"], tmp_path
    )
    assert "lines of text" in output and "training" not in output


def test_multi_worker_benchmark_measures_steps_saves_and_starts_of_real_processes(tmp_path: Path):
    # The script fails if the losses of replicax differ from those by hand.
    output = run_python(
        [str(ROOT / "benchmarks" / "multi_worker.py"), "--quick", "--no-peers", "--markdown"]
        + ["--json", "multi_worker.json"],
        tmp_path,
    )
    assert "the losses of all agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 4
    report = json.loads((tmp_path / "multi_worker.json").read_text())
    for row in report["steps"] + report["work"]:
        assert row["model"] == "tiny" and row["replicax"] > 0 and row["by_hand"] > 0
        assert row["torch"] is None and row["tensorflow"] is None
    (saves,) = report["saves"]
    assert 0 < saves["stopped"] <= saves["written"]
    # Whoever restarts finds every program that was compiled before, on each worker.
    found = [count.split("/") for count in report["starts"][0]["found"].split(", ")]
    assert len(found) == 2 and all(each[0] == each[1] for each in found)


def test_sharded_benchmark_measures_state_steps_and_split_images(tmp_path: Path):
    # The script fails if the losses of replicax differ from those by hand.
    output = run_python(
        [str(ROOT / "benchmarks" / "sharded.py"), "--quick", "--markdown"]
        + ["--json", "sharded.json"],
        tmp_path,
        timeout=300,
    )
    assert "the losses of all variants agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 3
    report = json.loads((tmp_path / "sharded.json").read_text())
    layouts = ["nothing", "optimizer", "everything"]
    assert [row["layout"] for row in report["state"]] == layouts
    for row in report["state"]:
        assert 0.95 < row["held"] / row["expected"] < 1.05
        assert row["peak"] > row["held"]
    whole, moments_cut, all_cut = (row["held"] / row["parameters"] / 4 for row in report["state"])
    assert round(whole, 1) == 3 and round(moments_cut, 1) == 1.5 and round(all_cut, 1) == 0.8
    assert [row["layout"] for row in report["steps"]] == layouts
    for row in report["steps"]:
        assert all(row[name] > 0 for name in ("replicax", "annotated", "mapped"))
    (split,) = report["logical"]
    assert split["replicas"] == 1 and split["replicax"] > 0 and split["annotated"] > 0


def test_keras_benchmark_trains_alike_with_replicax_and_with_data_parallel(tmp_path: Path):
    # The script fails if the losses differ, or if DataParallel trained on fewer devices.
    output = run_python(
        [str(ROOT / "benchmarks" / "keras_fit.py"), "--quick", "--no-tensorflow", "--markdown"]
        + ["--json", "keras_fit.json"],
        tmp_path,
    )
    assert "the losses of all agree" in output and "TensorFlow is left out" in output
    assert output.count("met: ") + output.count("MISSED: ") == 1
    rows = json.loads((tmp_path / "keras_fit.json").read_text())["rows"]
    assert [(row["clock"], row["case"], row["replicas"]) for row in rows] == [
        (clock, case, 2) for clock in ("wall", "cpu") for case in ("tiny_mlp", "tiny_cnn")
    ]
    assert all(row["replicax"] > 0 and row["data_parallel"] > 0 for row in rows)
    assert all(row["tensorflow"] is None for row in rows)
