"""A child process that answers in lines of JSON: another interpreter, or a fresh one."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


class Child:
    """Runs a script of this folder; see the script for what it may be asked."""

    def __init__(
        self, script: str, *arguments: str, python: str = sys.executable, **variables: str
    ):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name(script)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ | variables,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"{self.process.args} ended:\n{self.log.read()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def tensorflow_child(script: str, python: str, replicas: int, clock: str) -> Child:
    """A child that runs TensorFlow on the CPU; its first answer is the version."""
    return Child(
        script,
        str(replicas),
        clock,
        python=python,
        TF_CPP_MIN_LOG_LEVEL="2",
        CUDA_VISIBLE_DEVICES="-1",
    )


def answers_only() -> Any:
    """In a child: a function that answers. Libraries may print; only answers reach the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    return answer


def tensorflow_on(replicas: int) -> tuple[Any, Any]:
    """TensorFlow, in the child that has it, and its `MirroredStrategy` over virtual CPU devices."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    return tf, strategy
