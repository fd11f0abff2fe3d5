"""Benchmarks: one folder for each, and the harness that runs them. See README.md."""
