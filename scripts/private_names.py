"""Checks that wheels of JAX, Keras and Flax have the private names that replicax uses.

    python -m scripts.private_names                 # the newest ones that the package index has
    python -m scripts.private_names jax-0.12.0.1-py3-none-any.whl keras-3.15.1-py3-none-any.whl ...
    python -m scripts.private_names --write         # the table in docs/design/versions.md

Nothing in a wheel is run. The next version that lacks a name is seen before people install it. The
newest wheel is taken for the newest Python, as JAX gives up older ones early.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from replicax._src._versions import PRIVATE_NAMES_OF_JAX, QUICKER_NAMES_OF_JAX

# Libraries, and the package in each whose names are private.
PRIVATE = {"jax": "jax._src", "keras": "keras.src", "flax": "flax.nnx"}
_NEWEST_PYTHON = "3.14"
_ROOT = Path(__file__).resolve().parent.parent
_SOURCE = _ROOT / "src" / "replicax"
_PAGE = _ROOT / "docs" / "design" / "versions.md"
_BEGIN, _END = "<!-- written by scripts/private_names.py -->", "<!-- end of the table -->"


def names_used(library: str, is_module: Callable[[str], bool]) -> dict[str, set[str]]:
    """Returns what the source of replicax imports of a library's private package.

    Args:
      library: a key of `PRIVATE`.
      is_module: whether a dotted name is a module of the library.

    Returns:
      The names by module, both as in "backend.common.global_state".
    """
    package = PRIVATE[library]
    found: dict[str, set[str]] = {}
    for path in _SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules: dict[str, str] = {}
        used: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
                for each in node.names:
                    name = f"{node.module}.{each.name}"
                    if is_module(name):
                        modules[each.asname or each.name] = name
                    else:
                        used.add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in modules:
                    used.add(f"{modules[node.value.id]}.{node.attr}")
        for name in used:
            module, _, attribute = name.removeprefix(f"{package}.").rpartition(".")
            found.setdefault(module, set()).add(attribute)
    return found


def is_installed_module(name: str) -> bool:
    """Whether a dotted name is a module of an installed library, which is not imported."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None or spec.origin is None:
        return False
    path = Path(spec.origin).parent.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def table() -> str:
    """The names of Keras and Flax, for the page of versions."""
    rows = ["| Module | Names |", "|---|---|"]
    for library in ("keras", "flax"):
        for module, names in sorted(names_used(library, is_installed_module).items()):
            whole = f"{PRIVATE[library]}.{module}".rstrip(".")
            rows.append(f"| `{whole}` | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return "\n".join(rows)


def write_table() -> None:
    """Writes the table into the page."""
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{after}", encoding="utf-8")


def missing_from(wheel: Path, quicker: bool = False) -> list[str]:
    """Returns the names that a wheel lacks, as in "core.trace_ctx".

    Args:
      wheel: the file.
      quicker: look for the names that replicax can do without, and not for the others.

    Returns:
      The names. Of Keras and Flax, replicax can do without none.
    """
    library = wheel.name.partition("-")[0]
    folder = PRIVATE[library].replace(".", "/")
    missing: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())

        def source_of(module: str) -> str | None:
            path = module.replace(".", "/")
            for each in (f"{path}.py", f"{path}/__init__.py"):
                if each in files:
                    return each
            return None

        if library == "jax":
            of_jax = QUICKER_NAMES_OF_JAX if quicker else PRIVATE_NAMES_OF_JAX
            wanted = {module: {*names} for module, names in of_jax.items()}
        elif quicker:
            wanted = {}
        else:
            wanted = names_used(library, lambda name: source_of(name) is not None)
        for module, names in sorted(wanted.items()):
            path = source_of(f"{folder}/{module}".rstrip("/"))
            if path is None:
                missing.append(module)
                continue
            source = archive.read(path).decode()
            missing += sorted(f"{module}.{name}" for name in names if not defines(source, name))
    return missing


def defines(source: str, name: str) -> bool:
    """Whether a module defines or imports a name, by its text; a class may be under a condition.

    Newer versions of JAX are written in a newer Python than this one may be: it cannot parse them.
    """
    name = re.escape(name)
    defined = rf"def {name}\b|\s*class {name}\b|{name}\b[^=\n(]*=(?!=)"
    imported = rf"(?:from .+ )?import (?:.*\W)?{name}\b|\s+(?:\w+ as )?{name},?$"
    return re.search(rf"^(?:{defined}|{imported})", source, re.MULTILINE) is not None


def download_newest(folder: Path, library: str) -> Path:
    """Downloads the newest wheel of a library, and nothing that it depends on."""
    options = ["--no-deps", "--only-binary", ":all:", "--python-version", _NEWEST_PYTHON]
    command = [sys.executable, "-m", "pip", "download", "-q", library, *options, "-d", str(folder)]
    subprocess.run(command, check=True, timeout=300)
    return next(folder.glob(f"{library}-*.whl"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a wheel lacks a name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="write the table, check nothing")
    options = parser.parse_args(arguments)
    if options.write:
        write_table()
        return 0
    wheels = options.wheels
    with tempfile.TemporaryDirectory() as folder:
        wheels = wheels or [download_newest(Path(folder), library) for library in PRIVATE]
        missing = {wheel.name: missing_from(wheel) for wheel in wheels}
        slower = {wheel.name: missing_from(wheel, quicker=True) for wheel in wheels}
    for name, names in missing.items():
        print(f"{name}: {'lacks ' + ', '.join(names) if names else 'has all names'}")
        if slower[name]:
            print(f"  something is slower, as it lacks {', '.join(slower[name])}")
    return int(any(missing.values()))


if __name__ == "__main__":
    raise SystemExit(main())
