"""Compiles `_native.c` into a library beside it: `python -m replicax._src.records._build`.

Installing replicax does this (`hatch_build.py`), if there is a C compiler. It then runs before
anything else is installed, so only the standard library is imported.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("_native.c")
LIBRARY = Path(__file__).with_name("librecords.so")


def build(library: Path = LIBRARY, options: Sequence[str] = ()) -> str | None:
    """Compiles the library with `cc`, or whatever the variable CC names.

    An old library is removed even if there will be no new one: it may not fit the source any more.

    Args:
      library: What to write.
      options: More options for the compiler.

    Returns:
      None, or why there is no library.
    """
    new = library.with_suffix(f".{os.getpid()}.tmp")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, "-O3", "-shared", "-fPIC", *options, "-o", str(new), str(SOURCE)]
    try:
        library.unlink(missing_ok=True)
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode:
            return f"`{shlex.join(command)}` failed: {result.stderr.strip()}"
        new.replace(library)  # at once, so that nobody loads half of it
    except (OSError, subprocess.SubprocessError) as error:
        return f"`{shlex.join(command)}` failed: {error}"
    finally:
        new.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    raise SystemExit(build())
