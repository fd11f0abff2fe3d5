"""The harness that benchmarks plug into.

A benchmark is a subclass of `Benchmark`, and what it compares are subclasses of `Side`. The harness
has the rest: the command line, the turns that sides take, the processes and interpreters of peers,
the tables, the stored results, and the page that is made of them. Sides of peers are imported where
there is no JAX: they take what they need from `benchmarks.harness.sides`.
"""
