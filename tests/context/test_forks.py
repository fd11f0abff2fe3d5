"""A child that was forked from a process in which JAX runs is told so, and does not hang."""

from pathlib import Path

from tests.scripts import run_python

PROGRAM = """
import os
import warnings

import jax.numpy as jnp
import replicax as rx

warnings.simplefilter("ignore")  # Python and JAX warn of forks
strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
step = rx.function(lambda: strategy.run(lambda: jnp.ones(3).sum()))
step()
child = os.fork()
if not child:
    for use in (step, lambda: strategy.run(lambda: 1), strategy.scope().__enter__):
        try:
            use()
        except RuntimeError as error:
            print(type(error).__name__, "spawn" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(float(strategy.experimental_local_results(step())[1]))
"""


def test_the_child_of_a_fork_gets_an_error(tmp_path: Path):
    lines = run_python(["-c", PROGRAM], tmp_path, timeout=60).splitlines()
    assert lines == ["WrongContextError True"] * 3 + ["3.0"]
