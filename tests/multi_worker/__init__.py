"""`MultiWorkerMirroredStrategy` in real processes, against TensorFlow in real processes.

Each scenario in `scenarios/` is a function that every worker of a job calls, written once against
the `Library` of `tests/parity`. `python -m tests.multi_worker.record` plays them all in TensorFlow,
in one job for each layout (workers x devices), and keeps what each worker observed under
`recorded/`. `test_conformance.py` plays them in replicax, again one job a layout, and compares.
"""
