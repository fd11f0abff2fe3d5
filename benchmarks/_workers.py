"""Some processes that train together, kept up and asked in turn; and their end of the pipe."""

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from _child import Child, answers_only
from _multi_worker_models import MODELS
from _step_models import Model

# Trains for some steps, and returns their losses over all workers when all are done.
Train = Callable[[int], Sequence[Any]]
Prepare = Callable[[Model], Train]
# What a worker may be asked: by name, what answers.
Requests = dict[str, Callable[[Any], dict[str, Any]]]


class Cost(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float  # of all threads of a worker


class Workers:
    """The workers of one library.

    Args:
        script: of this folder; it gets its rank and then an address for each worker.
        python: the interpreter that runs it.
        count: of workers.
        limit: seconds that an answer may take. Workers that wait for each other wait for ever.
        variables: of the environment.
    """

    def __init__(self, script: str, python: str, count: int, limit: float, **variables: str):
        self.limit = limit
        addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self.children = [
            Child(script, str(rank), *addresses, python=python, **variables)
            for rank in range(count)
        ]
        self.version: str = self._answers()[0]["version"]

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """Asks all for the same, and returns what each answers."""
        for child in self.children:
            assert child.process.stdin is not None
            child.process.stdin.write(json.dumps(request) + "\n")
            child.process.stdin.flush()
        return self._answers()

    def losses(self, steps: int) -> list[float]:
        return self.ask(steps=steps)[0]["losses"]

    def train(self, steps: int) -> Cost:
        """What that many steps cost: the time of the slowest worker, and the work of each."""
        answers = self.ask(steps=steps)
        cpu = sum(answer["cpu"] for answer in answers) / len(answers)
        return Cost(max(answer["wall"] for answer in answers), cpu)

    def close(self) -> None:
        """Ends them together: one that ends waits for the others."""
        for child in self.children:
            assert child.process.stdin is not None
            child.process.stdin.close()
        with self._killed_in_the_end():
            for child in self.children:
                child.close()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _answers(self) -> list[dict[str, Any]]:
        with self._killed_in_the_end():
            return [child.answer() for child in self.children]

    @contextlib.contextmanager
    def _killed_in_the_end(self) -> Iterator[None]:
        timer = threading.Timer(self.limit, self._kill)
        timer.start()
        try:
            yield
        except BaseException:
            self._kill()
            raise
        finally:
            timer.cancel()

    def _kill(self) -> None:
        for child in self.children:
            child.process.kill()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


# In a worker


def arguments() -> tuple[int, list[str]]:
    """The rank of this worker, and the addresses of all."""
    return int(sys.argv[1]), sys.argv[2:]


def training(prepare: Prepare) -> Requests:
    """{"model": name} prepares it; {"steps": k} trains it, and gives the losses and the seconds."""
    ready: list[Train] = []

    def model(name: str) -> dict[str, Any]:
        ready.clear()  # frees the last model
        ready.append(prepare(MODELS[name]))
        return {}

    def steps(count: int) -> dict[str, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        losses = ready[0](count)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"losses": [float(loss) for loss in losses], "wall": wall, "cpu": cpu}

    return {"model": model, "steps": steps}


def serve(start: Callable[[], tuple[str, Requests]]) -> None:
    """Answers with the version of the library, and then whatever is asked."""
    answer = answers_only()
    version, requests = start()
    answer(version=version)
    for line in sys.stdin:
        ((name, value),) = json.loads(line).items()
        answer(**requests[name](value))
