"""The process of `replicax plan` that follows a script, with planned devices for its strategy."""

import contextlib
import dataclasses
import json
import os
import runpy
import sys
import traceback
import unittest.mock
from typing import Any

import jax

from replicax._src._errors import DeviceError, PlannedValueError
from replicax._src._planned_arrays import reading_nan, shapes_only
from replicax._src.cli._without_effects import without_effects
from replicax._src.cli._write_lock import change_files_only_in
from replicax._src.devices import PlannedDevices, Supposed, planned_devices, replaced_by, supposing
from replicax._src.planning import NothingNew, recording

_STEPS = 200  # of each epoch of a data set; nothing new is to be seen in more
_COMPUTED = 1 << 26  # bytes: what is computed outside of scopes: data, for example


def main(request_path: str) -> int:
    """Follows the script that a file of JSON describes; writes what was found beside it."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    temporary = os.path.dirname(request_path)
    try:
        # First: what drives a GPU writes where scripts may not.
        devices = planned_devices(request["on"], request["memory"])
    except DeviceError as error:
        found: dict[str, Any] = {"refused": str(error)}
    else:
        change_files_only_in([temporary, "/dev"])
        found = follow(request, devices, temporary)
    with open(request["result"], "w", encoding="utf-8") as file:
        json.dump(found, file)
    return 0


def follow(request: dict[str, Any], devices: PlannedDevices, temporary: str) -> dict[str, Any]:
    """Runs the script; returns its plans, and how it ended."""
    script = os.path.abspath(request["script"])
    what = Supposed(**request["supposed"], most_steps=_STEPS)
    ended, failed, left = "", "", False
    sys.argv = [script, *request["arguments"]]
    sys.path[0] = os.path.dirname(script)
    with recording() as log:
        with contextlib.ExitStack() as stack:
            if not request["show"]:
                stack.enter_context(silence())
            following = shapes_only(devices[0], _COMPUTED)
            for each in (supposing(what), replaced_by(devices), reading_nan(), following):
                stack.enter_context(each)
            stack.enter_context(without_effects(temporary))
            # JAX itself has one process here; a script may ask which host it is on.
            stack.enter_context(
                unittest.mock.patch.object(jax, "process_index", lambda *_, **__: request["host"])
            )
            try:
                runpy.run_path(script, run_name="__main__")
            except NothingNew:
                left = True
            except SystemExit:
                pass
            except PlannedValueError as error:
                ended = f"it needs a value at {_line(error, script)}"
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                ended = f"{type(error).__name__}: {error}, at {_line(error, script)}"
                failed = "".join(traceback.format_exception(error))
        try:
            log.finish()
        except Exception as error:  # of the compiler
            ended = ended or f"{type(error).__name__}: {error}"
            failed = failed or "".join(traceback.format_exception(error))
    return {
        "plans": [each.as_dict() for each in log.plans],
        "batch": log.batch,
        "ended": ended,
        "failed": failed,
        "left": left,
        "supposed": dataclasses.asdict(what),
    }


@contextlib.contextmanager
def silence() -> Any:
    """What the script prints goes nowhere."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield


def _line(error: BaseException, script: str) -> str:
    """Returns the innermost line of the script, or of what it imports beside it, in a traceback."""
    folder = os.path.dirname(script) + os.sep
    lines = [
        f"{os.path.relpath(frame.filename)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(folder) and "/site-packages/" not in frame.filename
    ]
    return lines[-1] if lines else script


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(status)  # threads that the script has left are not waited for
