"""`MultiWorkerMirroredStrategy` in real processes: training, faults, restarts, hosts.

What each call does in several workers is compared with TensorFlow in `tests/parity`.
"""
