"""The command `replicax convert`: what it prints, and its exit status."""

from pathlib import Path

import pytest

import replicax as rx
from replicax.__main__ import main


def test_a_report_of_what_went_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = rx.train.Checkpoint(w=rx.Variable([1.0, 2.0]), step=3).write(tmp_path / "ckpt")
    rules = tmp_path / "rules.txt"
    rules.write_text("step ->\n")
    out = tmp_path / "out"
    assert main(["convert", path, str(out), "--map", str(rules)]) == 0
    printed = capsys.readouterr().out
    assert "w -> w  float32[2]" in printed and "step  (a rule leaves it out)" in printed
    assert rx.train.load_variable(out, "w").tolist() == [1.0, 2.0]


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["convert", str(tmp_path / "none"), str(tmp_path / "out")]) == 2
    assert "There is no checkpoint at" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
