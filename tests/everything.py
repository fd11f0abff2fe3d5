"""Whether a run of tests leaves nothing out: what stands for more is then run in full."""

import os

VARIABLE = "REPLICAX_TEST_EVERYTHING"
"""Set it to 1: all strategies times all executors, all scenarios in all layouts of workers."""

EVERYTHING = VARIABLE in os.environ
