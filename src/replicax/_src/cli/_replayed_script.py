"""The process of `replicax replay` that runs a script up to the recorded function, and replays."""

import contextlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax

from replicax._src._errors import DataLossError
from replicax._src._typing import Device
from replicax._src.checkpoints import CheckpointManager
from replicax._src.cli._planned_script import silence
from replicax._src.cli._without_effects import without_effects
from replicax._src.cli._write_lock import change_files_only_in
from replicax._src.devices import replaced_by
from replicax._src.functions import Examined, Proceed
from replicax._src.recording import (
    Recorded,
    Replay,
    ScriptTakenOver,
    Takeover,
    examine,
    heading,
    table_of,
)


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
    devices = jax.local_devices()
    change_files_only_in([temporary, "/dev"])
    return _Replaying(request, recorded).run(devices, temporary)


def _examined(examined: Examined) -> str:
    """Returns what is said of a step that was interpreted."""
    try:
        found = examine(examined)
    except NotImplementedError as error:
        return f"  the step cannot be taken apart: {error}"
    if found.bad is None:
        return "  all values that reach a result or a variable are finite"
    lines = [f"  not finite: {found.bad}. First of all:"]
    lines += [f"  {each}" for each in found.origins[:3]]
    return "\n".join(lines)


class _Replaying:
    """One replay of a script."""

    def __init__(self, request: dict[str, Any], recorded: Recorded):
        self._request = request
        self._recorded = recorded
        self._step: int = request["step"] or recorded.step
        self._status = 2
        self._is_taken_over = False
        self._output = sys.stdout

    def run(self, devices: Sequence[Device], temporary: str) -> int:
        script = os.path.abspath(self._request["script"])
        sys.argv = [script, *self._request["arguments"]]
        sys.path[0] = os.path.dirname(script)
        takeover = Takeover(self._recorded, self._taken_over)
        with contextlib.ExitStack() as stack:
            if not self._request["show"]:
                stack.enter_context(silence())
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

    def _failed(self, why: str) -> int:
        print(f"replicax replay: {why}", file=sys.__stderr__)
        return 2

    def _taken_over(self, replay: Replay, proceed: Proceed, body: Callable[..., Any]) -> None:
        self._is_taken_over = True
        self._say(heading(self._recorded, self._step))
        steps = replay.go_to(self._step)
        found: Any = ""
        if self._request["eager"]:
            examined = proceed.examined(body, *replay.inputs_of(self._step))
            found = examined if isinstance(examined, str) else _examined(examined)
        steps.append(replay.run_next())
        self._say(table_of(steps))
        if found:
            self._say(found)
        is_same = all(each.agrees for each in steps)
        self._status = 0 if is_same else 1

    def _say(self, text: str) -> None:
        print(text, file=self._output, flush=True)


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(status)  # threads that the script has left are not waited for
