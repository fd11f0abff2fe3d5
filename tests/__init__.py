"""Tests of replicax. The folders mirror `src/replicax`; `under_test.py` says what they run over."""
