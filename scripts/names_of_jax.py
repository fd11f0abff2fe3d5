"""Checks that a wheel of JAX has the private names that replicax uses; nothing in it is run.

    python -m scripts.names_of_jax                 # the newest one that the package index has
    python -m scripts.names_of_jax jax-0.12.0.1-py3-none-any.whl ...

The next version of JAX that lacks one is seen before people install it. The newest wheel is taken
for the newest Python, as JAX gives up older ones early.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from replicax._src._versions import PRIVATE_NAMES_OF_JAX

_NEWEST_PYTHON = "3.14"


def missing_from(wheel: Path) -> list[str]:
    """Returns the names that the wheel lacks, as in "core.trace_ctx"."""
    missing: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        for module, names in PRIVATE_NAMES_OF_JAX.items():
            path = f"jax/_src/{module.replace('.', '/')}.py"
            if path not in files:
                missing.append(module)
                continue
            source = archive.read(path).decode()
            missing += [f"{module}.{name}" for name in names if not defines(source, name)]
    return missing


def defines(source: str, name: str) -> bool:
    """Whether a module defines or imports a name, by its text.

    Newer versions of JAX are written in a newer Python than this one may be: it cannot parse them.
    """
    name = re.escape(name)
    defined = rf"(?:def|class) {name}\b|{name}\b[^=\n(]*=(?!=)"
    imported = rf"(?:from .+ )?import (?:.*\W)?{name}\b|\s+(?:\w+ as )?{name},?$"
    return re.search(rf"^(?:{defined}|{imported})", source, re.MULTILINE) is not None


def download_newest(folder: Path) -> Path:
    """Downloads the newest wheel of JAX, and nothing that it depends on."""
    options = ["--no-deps", "--only-binary", ":all:", "--python-version", _NEWEST_PYTHON]
    command = [sys.executable, "-m", "pip", "download", "-q", "jax", *options, "-d", str(folder)]
    subprocess.run(command, check=True, timeout=300)
    return next(folder.glob("jax-*.whl"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a wheel lacks a name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="*", type=Path)
    wheels = parser.parse_args(arguments).wheels
    with tempfile.TemporaryDirectory() as folder:
        wheels = wheels or [download_newest(Path(folder))]
        missing = {wheel.name: missing_from(wheel) for wheel in wheels}
    for name, names in missing.items():
        print(f"{name}: {'lacks ' + ', '.join(names) if names else 'has all names'}")
    return int(any(missing.values()))


if __name__ == "__main__":
    raise SystemExit(main())
