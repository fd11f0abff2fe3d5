"""Random programs with seeds, one file for each law that they must keep.

Each `test_*.py` has `LAW`, a sentence, and `program(seed)`, which makes a random program, runs it
in several ways, raises an AssertionError with the smallest program that differs, and returns how
many comparisons it made. Its first programs are tests; `python -m tests.fuzz` runs more of them.
"""
