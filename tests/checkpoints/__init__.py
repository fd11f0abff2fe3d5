"""Tests of `rx.train.Checkpoint` and `rx.train.CheckpointManager`."""
