"""`rx.train.checkpoints_iterator`: what an evaluator loops over."""

from pathlib import Path

import replicax as rx


def test_new_checkpoints_come_once(tmp_path: Path):
    step = rx.Variable(0)
    checkpoint = rx.train.Checkpoint(step=step)
    seen = []
    for path in rx.train.checkpoints_iterator(tmp_path, timeout=0):
        seen.append(path)
    assert seen == []  # nothing yet, and no time to wait
    checkpoint.save(tmp_path / "ckpt")
    for path in rx.train.checkpoints_iterator(tmp_path, timeout=0):
        seen.append(Path(path).name)
        if len(seen) < 3:
            checkpoint.save(tmp_path / "ckpt")
    assert seen == ["ckpt-1", "ckpt-2", "ckpt-3"]


def test_the_end_may_be_asked_for(tmp_path: Path):
    asked = []

    def is_over() -> bool:
        asked.append(1)
        return len(asked) == 3

    assert list(rx.train.checkpoints_iterator(tmp_path / "no", timeout=0, timeout_fn=is_over)) == []
    assert len(asked) == 3
