"""The process of `replicax replay` that runs a script up to the recorded function, and replays."""

import bdb
import contextlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._errors import DataLossError
from replicax._src._typing import Device
from replicax._src.checkpoints import CheckpointManager
from replicax._src.cli._debugger import debug
from replicax._src.cli._planned_script import silence
from replicax._src.cli._without_effects import without_effects
from replicax._src.cli._write_lock import change_files_only_in
from replicax._src.devices import replaced_by
from replicax._src.functions import Examined, Proceed
from replicax._src.recording import (
    Origin,
    Recorded,
    Replay,
    Replayed,
    ScriptTakenOver,
    Stopped,
    Takeover,
    Values,
    Watch,
    changes_of,
    examine,
    gradients_in,
    heading,
    in_words,
    table_of,
    values_of,
)
from replicax._src.values import is_leaf


def main(request_path: str) -> int:
    """Replays what a file of JSON describes; returns the exit status."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    temporary = os.path.dirname(request_path)
    try:
        recorded = Recorded(request["capsule"])
    except (DataLossError, OSError) as error:
        print(f"replicax replay: {error}", file=sys.stderr)
        return 2
    if request["workers"]:
        return _as_worker(request, recorded, temporary)
    devices = jax.local_devices()
    change_files_only_in([temporary, "/dev"])
    return _ScriptReplay(request, recorded).run(devices, temporary)


def _as_worker(request: dict[str, Any], recorded: Recorded, temporary: str) -> int:
    """Replays as one of the workers of a job, which the script itself joins."""
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    change_files_only_in([temporary, "/dev"])
    status = _ScriptReplay(request, recorded.only(worker), worker).run(None, temporary)
    with open(os.path.join(temporary, f"status-{worker}"), "w", encoding="utf-8") as file:
        file.write(str(status))
    return 0 if status < 2 else status


@contextlib.contextmanager
def quick_compiles() -> Iterator[None]:
    """Inside the block, programs are compiled quickly: each has one operation, and runs once."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


class _Enough(BaseException):
    """Ends a step that runs as Python where all is said."""


def _any_nan(steps: Sequence[Replayed]) -> bool:
    return any(not np.isfinite(each).all() for parts in steps[-1].results for each in parts)


class _ScriptReplay:
    """One replay of a script."""

    def __init__(self, request: dict[str, Any], recorded: Recorded, worker: int | None = None):
        self._request = request
        self._worker = worker
        self._recorded = recorded
        self._step: int = request["step"] or recorded.step
        self._status = 2
        self._is_taken_over = False
        self._output = sys.stdout

    def run(self, devices: Sequence[Device] | None, temporary: str) -> int:
        script = os.path.abspath(self._request["script"])
        sys.argv = [script, *self._request["arguments"]]
        sys.path[0] = os.path.dirname(script)
        takeover = self._takeover = Takeover(
            self._recorded, self._taken_over, self._is_same_layout()
        )
        with contextlib.ExitStack() as stack:
            if not self._request["show"]:
                stack.enter_context(silence())
            if devices is not None:
                stack.enter_context(replaced_by(devices))
            stack.enter_context(without_effects(temporary))
            stack.enter_context(takeover.waiting())
            # Its state is that of the capsule.
            begins = mock.patch.object(CheckpointManager, "restore_or_initialize", lambda _: None)
            stack.enter_context(begins)
            try:
                runpy.run_path(script, run_name="__main__")
            except ScriptTakenOver:
                return self._status
            except SystemExit:
                pass
            except KeyboardInterrupt:
                raise
            except DataLossError as error:
                return self._failed(str(error))
            except BaseException as error:
                where = "while it was replayed" if self._is_taken_over else "before that"
                text = "".join(traceback.format_exception(error))
                return self._failed(f"the script failed {where}:\n{text}")
        return self._failed(
            "the script came to its end, and has not called the function that was recorded. It "
            "must make its rx.debug.Recorder, and call the function."
        )

    def _is_same_layout(self) -> bool | None:
        wanted = self._request["devices"]
        if wanted and wanted != self._recorded.layout["devices"]:
            return False
        return None if self._worker is None else True

    def _failed(self, why: str) -> int:
        print(f"replicax replay: {why}", file=sys.__stderr__)
        return 2

    def _taken_over(self, replay: Replay, proceed: Proceed, body: Callable[..., Any]) -> None:
        self._is_taken_over = True
        if not self._worker:
            self._say(heading(self._recorded, self._step, self._request["recording"]))
        replay.measures_changes = self._worker is None
        steps = replay.go_to(self._step)
        if self._request["eager"]:
            replay.keep()
        inputs = replay.inputs_of(self._step)
        replay.prepare(self._step)
        examined: Any = None
        if self._request["eager"] or self._request["dump"]:
            examined = proceed.examined(body, *inputs)
        if self._request["dump"]:
            self._dump(replay, examined)
            return
        found = None if examined is None else self._examined(replay, examined)
        steps.append(replay.run_next())
        is_same = all(each.agrees and not each.other_bits for each in steps)
        if not self._worker or not is_same:
            self._say(table_of(steps))
        for index, what in () if is_same else replay.assumed.items():
            self._say(
                f"  argument {index} is no array or number ({what}), and not in the capsule: that "
                "of the script's first call was passed"
            )
        trap = self._recorded.trap or {}
        changes = changes_of(steps, trap.get("kind") == "value" and not _any_nan(steps))
        if changes:
            self._say(changes)
        for line in self._of_replica(replay):
            self._say(line)
        if found is not None:
            self._say(found[0])
            self._as_python(replay, proceed, body, found[1])
        self._status = 0 if is_same else 1

    def _examined(self, replay: Replay, examined: Examined | str) -> tuple[str, Origin | None]:
        """Returns what is said of a step that was interpreted, and the cause."""
        if isinstance(examined, str):
            return f"  the step is no single program: {examined}", None
        try:
            with quick_compiles():
                found = examine(examined, replica=self._request["replica"])
        except NotImplementedError as error:
            return f"  the step cannot be taken apart: {error}", None
        if found.bad is None:
            on = "" if self._request["replica"] is None else " come from this replica and"
            return f"  all values that{on} reach a result or a variable are finite", None
        lines = [f"  not finite: {found.bad}. First of all:"]
        lines += [f"  {each}" for each in found.origins[:3]]
        cause = found.origins[0]
        if cause.operation == "input" and cause.index and cause.line.startswith("argument "):
            index = int(cause.line.removeprefix("argument "))
            place = replay.place_of_row(self._step, index, cause.replica, cause.index[0])
            lines += [f"  it is {place}"] if place else []
        return "\n".join(lines), cause

    def _of_replica(self, replay: Replay) -> Iterator[str]:
        """Yields what one replica had, if it is asked for."""
        replica = self._request["replica"]
        if replica is None:
            return
        args = _tree.leaves_of(replay.inputs_of(self._step), is_leaf)
        for index, each in enumerate(args):
            shares = getattr(each, "values", None)
            share = shares[replica] if shares and len(shares) > replica else each
            if in_words(share):
                yield f"  replica {replica}, argument {index}: {in_words(share)}"
        for name, gradients in gradients_in(replay.figures).items():
            if replica < len(gradients):
                yield f"  replica {replica}, gradient of {name}: {in_words(gradients[replica])}"

    def _as_python(
        self, replay: Replay, proceed: Proceed, body: Callable[..., Any], cause: Origin | None
    ) -> None:
        """Runs the step once more, as plain Python, up to the first value that is not finite."""
        wants_pdb, replica = self._request["pdb"], self._request["replica"]
        at_once = cause is None and wants_pdb and replica is not None

        def stop(stopped: Stopped) -> None:
            self._say("  " + str(stopped).replace("\n", "\n  "))
            if not wants_pdb or debug(stopped.frame, "  pdb is there; q ends the replay"):
                raise _Enough

        if cause is None and not at_once and not wants_pdb:
            return
        replay.measures_changes = False
        for origin in (cause, None) if cause is not None else (None,):
            watch = Watch(stop, origin, replica, at_once)
            replay.go_to(self._step)
            args, kwargs = replay.inputs_of(self._step)
            replay.prepare(self._step)
            try:
                with watch.watching(), quick_compiles():
                    body(*args, **kwargs)
            except (_Enough, bdb.BdbQuit):
                return
            except Exception as error:
                sys.settrace(None)
                if not watch.is_done:
                    self._say(f"  as Python it failed: {type(error).__name__}: {error}")
                return
            if watch.is_done:  # and pdb has let it go on
                return
        self._say("  as Python, each operation by itself, no value was found that is not finite")

    def _dump(self, replay: Replay, examined: Examined | str) -> None:
        """Writes down all values of the step."""
        values = Values(self._request["dump"])
        for name, parts in values_of(self._takeover.checkpoint).items():
            values.add("variable before", name, parts)
        try:
            if isinstance(examined, str):
                raise NotImplementedError(examined)
            for name, parts in zip(examined.input_names, examined.inputs, strict=True):
                if name.startswith("argument "):
                    values.add("the", name, parts)
            with quick_compiles():
                examine(
                    examined, lambda name, line, array: values.add("activation", name, array, line)
                )
        except NotImplementedError as error:
            self._say(f"  the step cannot be taken apart, and its activations not be seen: {error}")
        step = replay.run_next()
        for name, parts in gradients_in(replay.figures).items():
            values.add("gradient of", name, parts)
        for index, parts in enumerate(step.results):
            values.add("the", f"result {index}", parts)
        for name, parts in values_of(self._takeover.checkpoint).items():
            values.add("variable after", name, parts)
        values.close()
        self._say(table_of([step]))
        self._status = 0

    def _say(self, text: str) -> None:
        print(text, file=self._output, flush=True)


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    if "TF_CONFIG" in os.environ:  # the others are told
        sys.exit(status)
    os._exit(status)  # threads that the script has left are not waited for
