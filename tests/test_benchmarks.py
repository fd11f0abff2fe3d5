"""The benchmarks run, compare what computes the same numbers, and make a page. Never how fast."""

import dataclasses
import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.catalog import benchmarks, chapters
from benchmarks.harness.command_line import main, parse_options
from benchmarks.harness.page import compose, read_notes
from benchmarks.harness.results import Result, load_all, store
from benchmarks.harness.runs import RunFailed, make_run
from tests.guards import ROOT
from tests.scripts import run_python

BENCHMARKS = ROOT / "benchmarks"


def test_page_of_results_is_what_the_stored_results_and_notes_give():
    page = compose(load_all(), read_notes())
    assert (BENCHMARKS / "RESULTS.md").read_text() == page, "run `make bench-report`"


def test_stored_results_say_where_when_and_with_which_versions():
    results = load_all()
    assert results
    for result in results:
        assert (BENCHMARKS / "results" / result.machine / f"{result.run}.json").exists()
        datetime.date.fromisoformat(result.date)
        # Of the numbers that were copied from older pages, not all had that.
        assert result.transcribed or (result.command and result.versions.keys() >= {"JAX"})
        # Nobody else's interpreters are where those of this machine were.
        assert not re.search(r"\s/", result.command or "")


def test_every_folder_is_a_benchmark_that_says_what_it_measures():
    folders = {path.name for path in BENCHMARKS.iterdir() if list(path.glob("*.py"))}
    found = {type(each).__module__.split(".")[1] for each in benchmarks().values()}
    assert folders - {"harness", "training"} == found
    for chapter in chapters().values():
        assert chapter.title and chapter.description(), chapter.name
    assert read_notes().keys() <= chapters().keys() | {"page", "glance", "slower"}


def test_weights_are_read_and_held_once(tmp_path: Path):
    output = run_python([str(BENCHMARKS), "weights", "--quick", "--no-peers"], tmp_path, warm=True)
    assert "1,000 small tensors" in output and "4 MiB in 16 tensors" in output


def test_benchmark_of_the_readme_is_found_and_runs(tmp_path: Path):
    code = (BENCHMARKS / "README.md").read_text().split("```python\n")[1].split("```")[0]
    folder = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, folder, ignore=shutil.ignore_patterns("results"))
    (folder / "addition").mkdir()
    (folder / "addition" / "benchmark.py").write_text(code)
    output = run_python([str(folder), "addition", "--quick"], tmp_path, warm=True)
    assert re.search(r"size +JAX +NumPy +JAX / NumPy\n10 ", output)


def test_page_lists_every_ratio_above_one_as_slower_than_a_peer():
    rows = [
        {"model": "m", "title": "slow beside TensorFlow", "devices": 2, "speedup": 0.5},
        {"model": "m", "title": "slow by hand", "devices": 4, "over_by_hand": 1.0004},
        {"model": "m", "title": "fast", "devices": 8, "speedup": 4.0, "over_by_hand": 0.25},
    ]
    page = compose([stored("step", {"steps": rows})], {"step": "What it means."})
    glance, slower, chapter = page.split("\n## ")[1:]
    assert re.search(
        r"TensorFlow \(2\.21\) +\| 3 cores +\| .*\| 0\.71 \| +2\.00 \| +0 of 2", glance
    )
    assert "**2.00** slow beside TensorFlow, devices: 2." in slower
    assert "**1.0004** slow by hand, devices: 4." in slower and "fast" not in slower
    assert "What it means." in chapter and "`python benchmarks step`" in chapter
    assert "- MISSED: at least 1.25 times faster than TensorFlow" in chapter
    # Nobody measured this: no column for it.
    assert not re.search(r"\| +sharded|/ sharded", chapter)


def test_page_has_a_table_of_a_benchmark_that_nobody_described():
    page = compose([stored("new", {"rows": [{"what": "a", "some_ratio": 1.23456}]})], {})
    assert re.search(r"## New\n.*\| what +\| some ratio \|.*\| a +\| +1\.23 \|", page, re.DOTALL)


def stored(benchmark: str, measured: dict[str, Any]) -> Result:
    return Result(
        benchmark=benchmark,
        run=benchmark,
        machine="3-cores",
        machine_title="3 cores",
        date="2026-01-02",
        command=f"python benchmarks {benchmark}",
        versions={"JAX": "0.10", "TensorFlow": "2.21"},
        conditions={},
        measured=measured,
    )


def test_result_without_a_peer_does_not_replace_one_with_it(tmp_path: Path):
    store(stored("step", {}), tmp_path)
    given = ["run", "step", "--no-peers", "--machine", "3-cores", "--results", str(tmp_path)]
    with pytest.raises(RunFailed, match="has TensorFlow 2.21 beside us.*TENSORFLOW_PYTHON"):
        make_run(benchmarks()["step"], parse_options(given))


def test_measured_result_replaces_those_copied_from_an_older_page(tmp_path: Path):
    copied = dataclasses.replace(stored("step", {}), run="step-again", transcribed=True)
    store(copied, tmp_path)
    store(stored("step", {}), tmp_path)
    assert [result.run for result in load_all(tmp_path)] == ["step"]


def test_eager_benchmark_is_run_stored_and_shown_on_the_page(tmp_path: Path):
    # The script fails if the losses of a variant differ from those of plain JAX.
    output = run_python(
        [str(BENCHMARKS), "run", "eager", "--quick", "--no-peers"]
        + ["--results", "results", "--machine", "here"],
        tmp_path,
        warm=True,
    )
    assert "the losses of all variants agree" in output
    result = json.loads((tmp_path / "results" / "here" / "eager.json").read_text())
    assert result["command"] == "python benchmarks eager --quick --no-peers"
    assert result["versions"].keys() == {"Python", "replicax", "JAX", "optax"}
    rows = result["measured"]["rows"]
    assert [row["replicas"] for row in rows] == [2]
    assert all(row[name] > 0 for row in rows for name in ("limit", "plain", "compiled"))
    assert all(row["tensorflow"] is None for row in rows)
    page = (tmp_path / "results" / "RESULTS.md").read_text()
    chapter = page.split("## Eager steps")[1]
    table = [line.strip("|").split("|") for line in chapter.splitlines() if line.startswith("|")]
    assert {len(cells) for cells in table} == {6}
    assert [cells[0].strip() for cells in (table[0], table[-1])] == ["model", rows[0]["title"]]


def test_run_that_fails_is_named_and_keeps_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(["run", "eager", "--quick", "--results", str(tmp_path), "--limit", "0"])
    assert ended.value.code
    assert "NO RESULT of eager: there was no time left for it." in capsys.readouterr().err
    assert (tmp_path / "RESULTS.md").exists()


def test_step_benchmark_prints_tables_of_variants_with_equal_losses(tmp_path: Path):
    # The script fails if the losses or moving averages of a variant differ from those by hand.
    output = run_python(
        [str(BENCHMARKS), "step", "--quick", "--no-tensorflow", "--markdown"]
        + ["--devices", "2", "--json", "step.json"],
        tmp_path,
        warm=True,
    )
    assert "the losses of all variants agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 5
    report = json.loads((tmp_path / "step.json").read_text())
    steps = report["steps"]
    assert [(row["model"], row["devices"]) for row in steps] == [
        (model, 2) for model in ("tiny", "tiny_conv")
    ]
    assert all(row[name] > 0 for row in steps for name in ("replicax", "by_hand", "sharded"))
    assert all(row["tensorflow"] is None for row in steps)
    assert [(row["variables"], row["devices"]) for row in report["calls"]] == [(10, 2)]
    assert all(row["early"] == row["late"] > 0 for row in report["memory"])
    assert all(row["peak"] > 0 and row["by_hand_peak"] > 0 for row in report["memory"])
    assert [row["devices"] for row in report["many"]] == [2]


def test_step_benchmark_of_a_bfloat16_transformer_runs_on_one_device(tmp_path: Path):
    output = run_python(
        [str(BENCHMARKS), "step", "--only", "steps", "--no-tensorflow", "--quick"]
        + ["--models", "tiny_large", "--devices", "1"],
        tmp_path,
        warm=True,
    )
    assert "tiny transformer, bf16" in output


def test_input_benchmark_measures_every_case_of_data_that_all_read_alike(tmp_path: Path):
    # The script fails if a side reads other rows or other numbers than the data set.
    output = run_python(
        [str(BENCHMARKS), "input", "--quick", "--no-peers"]
        + ["--markdown", "--json", "input.json"],
        tmp_path,
        warm=True,
    )
    assert "goals are met" in output
    findings = json.loads((tmp_path / "input.json").read_text())["findings"]
    cases = [finding["case"] for finding in findings]
    for beginning in ("(a)", "(b)", "(c)", "(e)", "(f)", "prefetch", "state", "training"):
        assert any(case.startswith(beginning) for case in cases), beginning
    exact = [each for each in findings if each["what"].startswith("sources restored exactly")]
    assert [each["met"] for each in exact] == [True]
    assert "| (d) batch.map(parse_example) " in output


def test_input_benchmark_runs_one_case_alone(tmp_path: Path):
    output = run_python(
        [str(BENCHMARKS), "input", "--quick", "--no-peers", "--only", "e"], tmp_path, warm=True
    )
    assert "lines of text" in output and "training" not in output


def test_multi_worker_benchmark_measures_what_real_processes_do(tmp_path: Path):
    # The script fails if the losses of replicax differ from those by hand.
    output = run_python(
        [str(BENCHMARKS), "multi_worker", "--quick", "--no-peers", "--markdown"]
        + ["--json", "multi_worker.json"],
        tmp_path,
        warm=True,
    )
    assert "the losses of all agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 6
    report = json.loads((tmp_path / "multi_worker.json").read_text())
    assert [row["count"] for row in report["variables"]] == [20, 20]
    for row in report["steps"] + report["work"]:
        assert row["model"] == "tiny" and row["replicax"] > 0 and row["by_hand"] > 0
        assert row["torch"] is None and row["tensorflow"] is None
    (saves,) = report["saves"]
    assert 0 < saves["stopped"] <= saves["written"]
    # Whoever restarts finds every program that was compiled before, on each worker.
    found = [count.split("/") for count in report["starts"][0]["found"].split(", ")]
    assert len(found) == 2 and all(each[0] == each[1] for each in found)
    assert 0 < report["starts"][0]["made"] < report["starts"][0]["warm"]


def test_sharded_benchmark_measures_state_steps_and_split_images(tmp_path: Path):
    # The script fails if the losses of replicax differ from those by hand.
    output = run_python(
        [str(BENCHMARKS), "sharded", "--quick", "--markdown"]
        + ["--layouts", "everything", "--json", "sharded.json"],
        tmp_path,
        timeout=300,
        warm=True,
    )
    assert "the losses of all variants agree" in output
    assert output.count("met: ") + output.count("MISSED: ") == 3
    report = json.loads((tmp_path / "sharded.json").read_text())
    (state,), (step,) = report["state"], report["steps"]
    assert state["layout"] == step["layout"] == "everything"
    assert 0.95 < state["held"] / state["expected"] < 1.05
    assert state["peak"] > state["held"]
    assert round(state["held"] / state["parameters"] / 4, 1) == 0.8
    assert all(step[name] > 0 for name in ("replicax", "annotated", "mapped"))
    (split,) = report["logical"]
    assert split["replicas"] == 1 and split["replicax"] > 0 and split["annotated"] > 0


def test_keras_benchmark_trains_alike_with_replicax_and_with_data_parallel(tmp_path: Path):
    # The script fails if the losses differ, or if DataParallel trained on fewer devices.
    output = run_python(
        [str(BENCHMARKS), "keras_fit", "--quick", "--no-tensorflow", "--markdown"]
        + ["--json", "keras_fit.json"],
        tmp_path,
        warm=True,
        keras=True,
    )
    assert "the losses of all agree" in output and "TensorFlow is left out" in output
    assert output.count("met: ") + output.count("MISSED: ") == 1
    rows = json.loads((tmp_path / "keras_fit.json").read_text())["rows"]
    assert [(row["clock"], row["case"], row["replicas"]) for row in rows] == [
        (clock, case, 2) for clock in ("wall", "cpu") for case in ("tiny_mlp", "tiny_cnn")
    ]
    assert all(row["replicax"] > 0 and row["data_parallel"] > 0 for row in rows)
    assert all(row["tensorflow"] is None for row in rows)


def test_all_reduce_benchmark_measures_sums_over_devices_and_workers(tmp_path: Path):
    # The script fails if a sum is wrong.
    run_python(
        [str(BENCHMARKS), "all_reduce", "--quick", "--only", "devices", "workers"]
        + ["--json", "all_reduce.json"],
        tmp_path,
        warm=True,
    )
    rows = json.loads((tmp_path / "all_reduce.json").read_text())["rows"]
    assert [row["what"] for row in rows] == ["2 virtual devices", "2 workers, loopback"]
    assert all(seconds > 0 for row in rows for seconds in row["seconds"].values())


def test_first_call(tmp_path: Path):
    output = run_python(
        [str(BENCHMARKS), "first_call", "--quick", "--no-tensorflow", "--markdown"],
        tmp_path,
        warm=True,
    )
    assert re.search(r"\| devices \| replicax \| by hand \| replicax / by hand \|", output)
    assert re.search(r"\| jax +\| replicax +\| +more \|", output)
