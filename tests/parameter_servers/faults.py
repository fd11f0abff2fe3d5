"""Kills workers and servers at random while functions run; prints what became of the updates.

Not a test, because it takes minutes: `python tests/parameter_servers/faults.py [workers] [servers]`
with the numbers of kills, by default 50 and 10. `--seconds 0.0005 --together 400` is for short
functions, which go to workers several in a message.
"""

import argparse
import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from typing import Any

import numpy as np
import optax

import replicax as rx


def main(worker_kills: int, server_kills: int, seconds: float, together: int) -> None:
    resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=3, ps=2)
    strategy = rx.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        count = rx.Variable(0)
        w = rx.Variable(np.zeros(8, np.float32))
        optimizer = rx.Optimizer(optax.sgd(0.01))
    optimizer.build([w])
    coordinator = rx.distribute.coordinator.ClusterCoordinator(strategy)

    def step():
        time.sleep(seconds)
        count.assign_add(1)
        optimizer.apply_gradients([(np.ones(8, np.float32), w)])

    kill_workers(strategy, coordinator, step, worker_kills, together)
    print("functions counted", int(count.numpy()), "updates", int(optimizer.iterations.numpy()))
    assert count.numpy() == optimizer.iterations.numpy()
    np.testing.assert_allclose(w.numpy(), -0.01 * float(count.numpy()), rtol=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = rx.train.Checkpoint(count=count, w=w, optimizer=optimizer)
        manager = rx.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        manager.save()
        manager.sync()  # there is one to go back to
        for number in range(server_kills):
            kill_server(strategy, coordinator, step, number % 2, manager, checkpoint)
            assert count.numpy() == optimizer.iterations.numpy()
        manager.sync()
    print("restored", server_kills, "times; updates", int(optimizer.iterations.numpy()))
    coordinator.close()


def kill_workers(strategy: Any, coordinator: Any, step: Any, kills: int, together: int) -> None:
    import ray
    from ray.exceptions import RayActorError

    killed = threading.Event()

    def killer() -> None:
        left = kills
        while left:
            time.sleep(random.uniform(0.1, 0.6))
            actor = random.choice(strategy.extended.workers)
            try:
                os.kill(ray.get(actor.ready.remote(), timeout=60), signal.SIGKILL)
                left -= 1
            except (RayActorError, ProcessLookupError):
                pass  # it is being started
        killed.set()

    thread = threading.Thread(target=killer)
    thread.start()
    scheduled = 0
    while not killed.is_set():
        for _ in range(together):
            coordinator.schedule(step)
            scheduled += 1
        coordinator.join()
    thread.join()
    print("scheduled", scheduled, "kills", kills, "losses seen", coordinator.lost_workers)
    print(
        "(a worker that is killed while it has nothing to do, or again while it is being started,"
    )
    print("loses nothing, and is not seen)")


def kill_server(
    strategy: Any, coordinator: Any, step: Any, server: int, manager: Any, checkpoint: Any
) -> None:
    (pid,) = strategy.extended.view.servers.ask("ready", {server: ()}).values()
    for _ in range(50):
        coordinator.schedule(step)
    time.sleep(random.uniform(0, 0.5))
    os.kill(pid, signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            coordinator.join()
            coordinator.schedule(step)
    except rx.errors.UnavailableError:
        print(f"server {server} lost, known after {time.monotonic() - start:.1f} s")
    with contextlib.suppress(rx.errors.UnavailableError):
        manager.sync()  # a checkpoint that the server was writing
    checkpoint.restore(manager.latest_checkpoint)
    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    manager.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int, nargs="?", default=50, help="kills of workers")
    parser.add_argument("servers", type=int, nargs="?", default=10, help="kills of servers")
    parser.add_argument("--seconds", type=float, default=0.02, help="that a function takes")
    parser.add_argument("--together", type=int, default=20, help="functions scheduled at a time")
    given = parser.parse_args()
    main(given.workers, given.servers, given.seconds, given.together)
