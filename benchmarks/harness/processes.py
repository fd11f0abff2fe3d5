"""Sides in processes of their own: another interpreter, a fresh one, or several that cooperate."""

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.harness.sides import Cost, Side

FOLDER = Path(__file__).resolve().parent.parent


class Processes:
    """A side in one process, or in several that do the work together.

    It has the methods of `Side`: a cost is the time of the slowest process, and the processor time
    of one process in the mean.

    Args:
      side: the address of a subclass of `Side`, as in "benchmarks.step.tensorflow:TensorFlow".
      arguments: JSON values that it is constructed with.
      python: the interpreter.
      workers: how many processes. Each is constructed with its rank, and the addresses of all,
        after the other arguments; without it there is one, and it gets neither.
      limit: seconds that an answer may take: processes that wait for each other may wait forever.
      gpu: whether it may use the GPU.
      variables: of the environment.

    Attributes:
      version: of the library.
    """

    def __init__(
        self,
        side: str,
        *arguments: Any,
        python: str = sys.executable,
        workers: int | None = None,
        limit: float = 600,
        gpu: bool = False,
        variables: Mapping[str, str] = MappingProxyType({}),
    ):
        self._limit = limit
        given: list[Sequence[Any]] = [arguments]
        if workers is not None:
            addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
            given = [(*arguments, rank, addresses) for rank in range(workers)]
        hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": "-1"}
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | hidden | dict(variables)
        self._processes = [_Process(python, side, each, environment) for each in given]
        self.version: str = self._answers()[0]

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method of the side in each process, and returns what each answers, as JSON."""
        for process in self._processes:
            process.send(method, arguments)
        return self._answers()

    def start(self, case: Sequence[Any], count: int) -> list[float]:
        return self.ask("start", case, count)[0]

    def turn(self, count: int) -> Cost:
        costs = [Cost(*cost) for cost in self.ask("turn", count)]
        return Cost(max(cost.wall for cost in costs), sum(cost.cpu for cost in costs) / len(costs))

    def stop(self) -> None:
        self.ask("stop")

    def close(self) -> None:
        """Ends the processes together: one that ends may wait for the others."""
        for process in self._processes:
            process.stdin.close()
        with self._killed_in_the_end():
            for process in self._processes:
                process.close()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answers(self) -> list[Any]:
        with self._killed_in_the_end():
            return [process.answer() for process in self._processes]

    @contextlib.contextmanager
    def _killed_in_the_end(self) -> Iterator[None]:
        timer = threading.Timer(self._limit, self._kill)
        timer.start()
        try:
            yield
        except BaseException:
            self._kill()
            raise
        finally:
            timer.cancel()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


class _Process:
    """A process that runs `serve`."""

    def __init__(self, python: str, side: str, arguments: Sequence[Any], env: dict[str, str]):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, str(FOLDER), "serve", side, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=env,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin, self._stdout = self._process.stdin, self._process.stdout
        self.kill = self._process.kill

    def send(self, method: str, arguments: Sequence[Any]) -> None:
        self.stdin.write(json.dumps([method, arguments]) + "\n")
        self.stdin.flush()

    def answer(self) -> Any:
        line = self._stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"{self._process.args} ended:\n{self._log.read()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        self._process.wait()
        self._stdout.close()
        self._log.close()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def serve(address: str, arguments: str) -> None:
    """In a child: makes a side, and calls its methods as the parent asks, in lines of JSON."""
    # Libraries may print; only answers reach the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = address.partition(":")
    side: Side = getattr(importlib.import_module(module), name)(*json.loads(arguments))
    print(json.dumps(side.version), file=answers, flush=True)
    for line in sys.stdin:
        method, given = json.loads(line)
        print(json.dumps(getattr(side, method)(*given)), file=answers, flush=True)
