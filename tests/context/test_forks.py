"""A child that was forked from a process in which JAX runs is told so, and does not hang."""

from pathlib import Path

from tests.scripts import run_python

PROGRAM = """
import copy
import functools
import os
import threading
import warnings

import jax.numpy as jnp
import replicax as rx
from replicax._src.variable._variable import UPDATING

warnings.simplefilter("ignore")  # Python and JAX warn of forks
strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
step = rx.function(lambda: strategy.run(lambda: jnp.ones(3).sum()))
step()
plain = rx.Variable(1.0)
with strategy.scope():
    mirrored = rx.Variable([1.0, 2.0], name="mirrored")
    local = rx.Variable(1.0, synchronization="ON_READ", aggregation="SUM")
variables = (plain, mirrored, local)
rx.train.Checkpoint(v=plain).write("before")
manager = rx.train.CheckpointManager(rx.train.Checkpoint(v=plain), "managed")
manager.save()
manager.wait()
metrics = rx.metrics.Sum(), rx.metrics.Mean(), rx.metrics.Accuracy()
held, go_on = threading.Event(), threading.Event()

def hold():  # as another thread that changes a variable while this one forks
    with UPDATING:
        held.set()
        go_on.wait(60)

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    uses = [step, lambda: strategy.run(lambda: 1), strategy.scope().__enter__]
    uses += [lambda: rx.Variable(1.0), lambda: rx.train.Checkpoint(v=mirrored).save("kept")]
    uses += [lambda: rx.train.Checkpoint(v=plain).write("written")]
    uses += [lambda: rx.train.Checkpoint(v=plain).read("before"), manager.restore_or_initialize]
    uses += [functools.partial(metric.update_state, 1.0) for metric in metrics[:2]]
    uses += [functools.partial(metrics[2].update_state, 1.0, 1.0), metrics[0].reset_state]
    for variable in variables:
        uses += [variable.numpy, variable.read_value, functools.partial(variable.assign, 1.0)]
        uses += [functools.partial(variable.assign_add, 1.0), functools.partial(float, variable)]
        uses += [functools.partial(jnp.asarray, variable), functools.partial(copy.copy, variable)]
        repr(variable)
    for use in uses:
        try:
            use()
            print(use, flush=True)
        except RuntimeError as error:
            print(type(error).__name__, "spawn" in str(error), flush=True)
    os._exit(0)
go_on.set()
os.waitpid(child, 0)
print(float(strategy.experimental_local_results(step())[1]))
"""


def test_the_child_of_a_fork_gets_an_error(tmp_path: Path):
    lines = run_python(["-c", PROGRAM], tmp_path).splitlines()
    assert lines == ["WrongContextError True"] * (12 + 3 * 7) + ["3.0"]
