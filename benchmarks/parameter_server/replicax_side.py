"""The recommender with replicax: workers and servers are actors of Ray."""

import pickle
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from benchmarks.harness.sides import Side, Work
from benchmarks.parameter_server.recommender import (
    BATCHES,
    LAST,
    RATE,
    START,
    initial_tables,
    initial_weights,
    make_clicks,
)


def _loss(x: Any, weights: Any, clicked: Any) -> Any:
    w1, b1, w2, b2 = weights
    logits = (jnp.maximum(x @ w1 + b1, 0) @ w2 + b2)[:, 0]
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, clicked))


class ReplicaxServers(Side):
    """`ParameterServerStrategy` and `ClusterCoordinator`."""

    version = rx.__version__

    def __init__(self, workers: int, servers: int):
        self._workers = workers
        resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=workers, ps=servers)
        self.strategy = rx.distribute.ParameterServerStrategy(resolver)
        self.coordinator = rx.distribute.coordinator.ClusterCoordinator(self.strategy)

    def prepare(self, rows: int, batch: int) -> Work:
        with self.strategy.scope():
            users, items = (rx.Variable(table) for table in initial_tables(rows))
            weights = [rx.Variable(weight) for weight in initial_weights()]
            optimizer = rx.Optimizer(optax.adagrad(RATE, initial_accumulator_value=START))
        optimizer.build([users, items, *weights])

        @rx.function
        def step(users: Any, items: Any, clicked: Any) -> Any:
            def loss_fn() -> Any:
                x = jnp.concatenate([users.value(), items.value()], axis=1)
                return _loss(x, [weight.value() for weight in weights], clicked)

            variables = [users, items, *weights]
            loss, gradients = rx.value_and_grad(loss_fn, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        def step_on_worker(iterator: Any) -> Any:
            some_users, some_items, clicked = next(iterator)
            rows = rx.nn.embedding_lookup(users, some_users)
            return step(rows, rx.nn.embedding_lookup(items, some_items), clicked)

        def dataset() -> Any:
            return rx.data.Dataset.from_tensor_slices(tuple(make_clicks(rows, batch))).repeat()

        iterator = iter(self.coordinator.create_per_worker_dataset(dataset))
        self._iterator, self._step = iterator, step_on_worker
        self._cold = set(range(self._workers))

        def work(count: int) -> list[float]:
            schedule = self.coordinator.schedule
            values = [schedule(step_on_worker, args=(iterator,)) for _ in range(count)]
            self.coordinator.join()
            loss = float(np.mean(self.coordinator.fetch(values)))
            self._warm_up()
            return [loss]

        return work

    def _warm_up(self) -> None:
        """Lets steps run until each worker has compiled one."""
        step, index = self._step, rx.distribute.coordinator.experimental_get_current_worker_index

        def with_index(iterator: Any) -> int:
            step(iterator)
            time.sleep(0.05)  # so that the others get some, too
            return index()

        while self._cold:
            schedule = self.coordinator.schedule
            values = [
                schedule(with_index, args=(self._iterator,)) for _ in self._cold for _ in "12"
            ]
            self._cold -= set(self.coordinator.fetch(values))

    def bytes_of_step(self, count: int) -> float:
        """Returns how many bytes a step sends and gets, on average."""
        step = self._step

        def counted(iterator: Any) -> int:
            from replicax._src.parameter_servers._servers import Servers

            total = 0
            plain = Servers.ask

            def ask(self: Servers, method: str, arguments: Any) -> Any:
                nonlocal total
                answer = plain(self, method, arguments)
                total += len(pickle.dumps((arguments, answer), protocol=5))
                return answer

            Servers.ask = ask
            try:
                step(iterator)
            finally:
                Servers.ask = plain
            return total

        values = [self.coordinator.schedule(counted, (self._iterator,)) for _ in range(count)]
        return float(np.mean(self.coordinator.fetch(values)))

    def staleness(self) -> float:
        """Returns the mean age of what updates were computed from, in updates."""
        return self.coordinator.staleness.mean

    def trained(self, rows: int, batch: int, updates: int) -> float:
        """Returns the mean loss of the last `LAST` of so many updates, from the start on."""
        work = self.prepare(rows, batch)
        self._cold.clear()  # no other steps
        work(updates - LAST)
        return work(LAST)[0]

    def trained_synchronously(self, rows: int, batch: int, updates: int) -> float:
        """Returns the same of one device, which makes one update after the other."""
        clicks = make_clicks(rows, batch)
        optimizer = optax.adagrad(RATE, initial_accumulator_value=START)

        def loss_fn(arrays: Any, users: Any, items: Any, clicked: Any) -> Any:
            x = jnp.concatenate([arrays[0][users], arrays[1][items]], axis=1)
            return _loss(x, arrays[2:], clicked)

        @jax.jit
        def step(arrays: Any, state: Any, *batch: Any) -> Any:
            loss, gradients = jax.value_and_grad(loss_fn)(arrays, *batch)
            changes, state = optimizer.update(gradients, state, arrays)
            return optax.apply_updates(arrays, changes), state, loss

        arrays: Any = [jnp.asarray(each) for each in initial_tables(rows) + initial_weights()]
        state, losses = optimizer.init(arrays), list[float]()
        for number in range(updates):
            batches = [each[number % BATCHES] for each in clicks]
            arrays, state, loss = step(arrays, state, *batches)
            losses.append(float(loss))
        return float(np.mean(losses[-LAST:]))

    def close(self) -> None:
        """Ends the workers and servers."""
        import ray

        self.coordinator.close()
        ray.shutdown()
