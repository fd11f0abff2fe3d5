"""Threads that run strategies at once, Ctrl-C, and the end: in processes of their own."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.processes import Job
from tests.scripts import run_python

START = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(500, exit=True)
import jax, jax.numpy as jnp, optax, replicax as rx

def mirrored(*ids):
    return rx.distribute.MirroredStrategy([f"CPU:{i}" for i in ids])

def context():
    return rx.distribute.get_replica_context()
"""


def run(program: str, folder: Path) -> str:
    (folder / "program.py").write_text(START + program)
    return run_python(["program.py"], folder, warm=True)


@pytest.mark.parametrize(
    "strategies",
    [
        "mirrored(0, 1), mirrored(2, 3)",
        "mirrored(0, 1), mirrored(0, 1)",
        "mirrored(0, 1, 2), mirrored(2, 1, 0)",
        "(mirrored(0, 1, 2, 3),) * 3",
    ],
    ids=["other devices", "same devices", "other order", "same strategy"],
)
def test_python_threads_that_run_at_the_same_time(strategies: str, tmp_path: Path):
    program = f"""
def work(strategy, number, results):
    with strategy.scope():
        v = rx.Variable(jnp.zeros(3), aggregation=rx.VariableAggregation.SUM)
        w = rx.Variable(jnp.zeros(2))
        optimizer = rx.Optimizer(optax.sgd(0.5))
    def step(x):
        assert rx.distribute.get_strategy() is strategy
        total = context().all_reduce("SUM", x)
        v.assign_add(jnp.ones(3) * total)
        _, grads = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
        optimizer.apply_gradients(zip(grads, [w]))
        return total
    for i in range(25):
        result = strategy.run(step, (jnp.float32(number),))
        strategy.reduce("MEAN", result, axis=None)
    results[number] = (float(v.numpy()[0]), float(w.numpy()[0]))

chosen = {strategies}
results = {{}}
threads = [
    threading.Thread(target=work, args=(s, n + 1, results)) for n, s in enumerate(chosen)
]
[t.start() for t in threads]
[t.join() for t in threads]
for n, s in enumerate(chosen):
    number, count = n + 1, s.num_replicas_in_sync
    assert results[number] == (25 * count * count * number, -0.5 * 25 * count * number), results
print("done")
"""
    assert run(program, tmp_path).strip() == "done"


def interrupt(program: str, folder: Path) -> str:
    """Sends Ctrl-C to the program once it prints "ready"; returns what it prints.

    Its step would go on for longer than the test may take.
    """
    path = folder / "interrupted.py"
    path.write_text(START + program)
    job = Job([[sys.executable, str(path)]], [{"JAX_NUM_CPU_DEVICES": "8"}], forked=True)
    with job:
        job.wait_for(0, re.compile("^ready$"))
        time.sleep(0.3)  # somewhere in the step
        job.signal(0, signal.SIGINT)
        # Once more where Python could not raise it, as in a finalizer.
        while not job.prints(0, "interrupted", within=30):
            job.signal(0, signal.SIGINT)
        job.expect_exit()
    output = job[0].output
    assert "interrupted\n" in output and "afterwards 2.0" in output, output
    return output


AFTERWARDS = """
except KeyboardInterrupt:
    print("interrupted")
result = strategy.run(lambda: context().all_reduce("SUM", 1.0))
print("afterwards", float(strategy.experimental_local_results(result)[0]))
"""


@pytest.mark.parametrize("where", [0, 1])
def test_ctrl_c_in_a_replica_that_works_in_python(where: int, tmp_path: Path):
    program = f"""
strategy = mirrored(0, 1)
def step():
    try:
        if context().replica_id_in_sync_group == {where}:
            print("ready")
            while True:
                time.sleep(0.01)
        context().merge_call(lambda s: None)
    finally:
        print("finally of", context().replica_id_in_sync_group)
try:
    strategy.run(step)
{AFTERWARDS}
"""
    output = interrupt(program, tmp_path)
    assert f"finally of {where}" in output


def test_ctrl_c_in_a_merge_function(tmp_path: Path):
    program = f"""
strategy = mirrored(0, 1)
def merge(strategy):
    print("ready")
    time.sleep(1000)
def step():
    try:
        context().merge_call(merge)
    finally:
        print("finally of", context().replica_id_in_sync_group)
try:
    strategy.run(step)
{AFTERWARDS}
"""
    output = interrupt(program, tmp_path)
    assert "finally of 0" in output and "finally of 1" in output


def test_ctrl_c_in_a_replica_that_waits_outside_of_python(tmp_path: Path):
    program = f"""
strategy = mirrored(0, 1)
def step():
    print("ready")
    time.sleep(1000)
try:
    strategy.run(step)
{AFTERWARDS}
"""
    interrupt(program, tmp_path)


def test_ctrl_c_in_a_training_loop(tmp_path: Path):
    program = f"""
strategy = mirrored(0, 1)
with strategy.scope():
    w = rx.Variable(jnp.ones(4))
    optimizer = rx.Optimizer(optax.adam(0.1))
def step(x):
    loss, grads = rx.value_and_grad(lambda: jnp.sum((w * x) ** 2), [w])
    optimizer.apply_gradients(zip(grads, [w]))
    return loss
strategy.run(step, (jnp.ones(4),))
try:
    print("ready")
    while True:
        strategy.run(step, (jnp.ones(4),))
{AFTERWARDS}
strategy.run(step, (jnp.ones(4),))
"""
    interrupt(program, tmp_path)


def test_the_program_ends_while_threads_are_kept(tmp_path: Path):
    program = "mirrored(0, 1, 2).run(lambda: None)\nprint(threading.active_count() > 3)"
    assert run(program, tmp_path).strip() == "True"
