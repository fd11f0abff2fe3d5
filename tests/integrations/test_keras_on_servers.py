"""Keras on parameter servers, beside Keras on one device: one program for all facts."""

import json
import os
from pathlib import Path

import pytest

from tests.scripts import run_python

pytest.importorskip("ray")
pytest.importorskip("keras")
everything = bool(os.environ.get("REPLICAX_TEST_EVERYTHING"))  # takes a minute
HERE = Path(__file__).parent
WITH_KERNEL = [f"/job:ps/replica:0/task:{server}/device:CPU:0" for server in (1, 0)]
ALWAYS = {
    "in_a_function": True,
    "fit_one_epoch": True,
    "different_numbers": 4,
    "seeds_counted": [0, 20],
}
FACTS = {
    **{
        f"{how}_{what}": True
        for how in ("compiled", "eager")
        for what in ("losses", "metric", "weights", "slots")
    },
    "slots_live_with_variables": [WITH_KERNEL, WITH_KERNEL],
    "iterations": 1,
    "restored": True,
    "loaded": True,
    "wrong_optimizers": [],
    "history_names": True,
    "history": True,
    "evaluated": True,
    "predicted": True,
    "on_batch": True,
    "of_workers": [True, 20],
    "of_a_dataset": 6,
    "rows_changed": [5, 60_000, 99_999],
    "bytes_are_of_rows": True,
    "own_step": [[7.0, 7.0], ["loss", "mine"]],
    "after_bad_data": 0,
    "counted": [60, 60.0],
    "though_killed": [24, True],
}
ERRORS = {
    "no_steps": ("ValueError", "pass `steps_per_epoch`"),
    "predict_of_workers": ("TypeError", "pass arrays or a data set"),
    "state_step": ("TypeError", "write train_step(self, data)"),
    "bad_data": ("TypeError", "'int' object is not iterable"),
    "adafactor": ("ValueError", "rx.Optimizer(optax.adafactor(0.01))"),
    "scaled": ("TypeError", "Use mixed_bfloat16, or float32"),
    "outside": ("TypeError", "Make it inside `with strategy.scope():`"),
    "made_on_worker": ("WrongContextError", "make it there, inside `with strategy.scope():`"),
}


def test_keras_on_two_workers_and_two_servers(tmp_path: Path):
    output = tmp_path / "facts.json"
    program = [str(HERE / "keras_on_servers.py"), str(output)]
    run_python([*program, *["everything"] * everything], tmp_path, 500)
    facts = json.loads(output.read_text(encoding="utf-8"))
    expected = ALWAYS | (FACTS if everything else {})
    wrong = {name: (facts[name], value) for name, value in expected.items() if facts[name] != value}
    for name, (kind, text) in (ERRORS if everything else {}).items():
        found = facts[name] or ["nothing", ""]
        if found[0] != kind or text not in found[1]:
            wrong[name] = (found, (kind, text))
    assert not wrong
