"""Scenarios played in TensorFlow and in replicax, and compared.

Each scenario in `scenarios/` is written once, against the neutral `Library` of `_library.py`.
`python -m tests.parity.record` plays them in TensorFlow and keeps what was observed under
`recorded/`; `test_parity.py` plays them in replicax and compares, so tests need no TensorFlow.
"""
