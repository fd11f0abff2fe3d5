"""Scenarios played in TensorFlow and in replicax, and compared.

Each scenario in `scenarios/` is written once, against the neutral `Library` of `_library.py`, and
says where it is played: with strategies of one process, in layouts of workers ("2x1" is two workers
with a device each), or in both. `python -m tests.parity.record` plays them in TensorFlow and keeps
what was observed under `recorded/`. `test_parity.py` plays those of one process in replicax and
compares, `test_workers.py` those of workers, in one job of real processes for each layout.
"""
