"""The command: reads files, reports, and writes if it is asked to."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO, final

from replicax._src.cli._log import painter
from replicax._src.cli.migrate import _report
from replicax._src.cli.migrate._files import python_files, write_whole
from replicax._src.cli.migrate._notebooks import Notebook
from replicax._src.cli.migrate._port import Ported, may_use_tensorflow, port
from replicax._src.cli.migrate._source import Unreadable


def run(
    paths: Sequence[str],
    write: bool = False,
    diff: bool = False,
    as_json: bool = False,
    to: TextIO | None = None,
    errors_to: TextIO | None = None,
) -> int:
    """Ports files; returns 0 if nothing is left to be done by hand, 1 if something is, else 2.

    Args:
      paths: files and folders.
      write: replace the files by what they become.
      diff: print the changes instead of the report.
      as_json: print the report as JSON.
      to: where the report goes; standard output by default.
      errors_to: where it says which files cannot be read; standard error by default.
    """
    out: TextIO = to or sys.stdout
    err: TextIO = errors_to or sys.stderr
    paint = painter(out, plainly=as_json)
    unreadable: list[_NotPorted] = []
    results = _results(paths, write, unreadable)
    if write:  # whoever reads the report may stop reading; the files are all written
        results = iter(list(results))
    ported: dict[str, Ported] = {}
    unaffected = 0
    for name, result in results:
        if result is None or not result.findings:
            unaffected += 1
            continue
        ported[name] = result
        if diff:
            out.write(_report.diff(name, result, paint))
        elif not as_json:
            print(_report.as_text(name, result, paint), end="\n\n", file=out)
    left = sum(each.left for each in ported.values())
    if as_json:
        said = {
            "ok": not left and not unreadable,
            "written": write,
            "left": left,
            "files": [_report.as_object(name, each) for name, each in ported.items()],
            "unaffected": unaffected,
            "unreadable": [each._asdict() for each in unreadable],
        }
        print(json.dumps(said, indent=2), file=out)
    elif not diff:
        print(_conclusion(ported, unaffected, write), file=out)
    for each in unreadable:
        place = f"{each.path}:{each.line}" if each.line else each.path
        print(f"replicax migrate: {place}: {each.error}.{_hint(each.error)}", file=err)
    return 2 if unreadable else 1 if left else 0


@final
class _NotPorted(NamedTuple):
    """A file that could not be read, ported or written, and why."""

    path: str
    line: int
    error: str

    @classmethod
    def of(cls, path: Path | str, error: Exception) -> "_NotPorted":
        if isinstance(error, Unreadable):
            return cls(str(path), error.line, str(error))
        if isinstance(error, OSError):
            return cls(str(path), 0, error.strerror or str(error))
        if isinstance(error, RecursionError):
            return cls(str(path), 0, "is nested too deeply to be ported")
        kind = type(error).__name__
        return cls(str(path), 0, f"cannot be ported, by a mistake in replicax ({kind}: {error})")


def _results(
    paths: Sequence[str], write: bool, unreadable: list[_NotPorted]
) -> Iterator[tuple[str, Ported | None]]:
    """Yields each file once, with what it becomes; None if it has nothing of TensorFlow."""

    def complain(error: OSError) -> None:
        unreadable.append(_NotPorted.of(error.filename, error))

    seen: set[Path] = set()
    for name in paths:
        try:
            files = list(python_files(name, complain))
        except OSError as error:
            unreadable.append(_NotPorted.of(name or '""', error))
            continue
        for path in files:
            if (real := path.resolve()) in seen:
                continue
            seen.add(real)
            try:
                content = path.read_bytes()
                if path.suffix == ".ipynb" and may_use_tensorflow(content):
                    results = _ported_notebook(path, content, write, unreadable)
                else:
                    results = {str(path): _ported(path, content, write)}
            except Exception as error:  # of whatever kind: other files are to be done all the same
                unreadable.append(_NotPorted.of(path, error))
            else:
                yield from results.items()


def _ported(path: Path, content: bytes, write: bool) -> Ported | None:
    if not may_use_tensorflow(content):
        return None
    result = port(content)
    if write and result.new != result.old:
        write_whole(path, result.new.encode(result.encoding))
    return result


def _ported_notebook(
    path: Path, content: bytes, write: bool, unreadable: list[_NotPorted]
) -> dict[str, Ported]:
    """Ports a notebook, and the files that its cells write: "a.ipynb: model.py, cell 3"."""
    notebook = Notebook(content)
    program = port(notebook.program.encode())
    files: dict[str, Ported] = {}
    for name, text in notebook.files.items():
        if may_use_tensorflow(text.encode()):
            try:
                files[name] = port(text.encode())
            except Unreadable as error:  # a part of a file, say: the cell stays
                unreadable.append(_NotPorted.of(f"{path}: {name}", error))
    if write and any(each.new != each.old for each in [program, *files.values()]):
        texts = {name: each.new for name, each in files.items()}
        write_whole(path, notebook.with_programs(program.new, texts))
    return {str(path): program, **{f"{path}: {name}": each for name, each in files.items()}}


def _conclusion(ported: dict[str, Ported], unaffected: int, written: bool) -> str:
    others = f"{unaffected} {'file' if unaffected == 1 else 'files'} without TensorFlow. "
    said = others if unaffected else ""
    if not ported:
        return f"{said}Nothing to port."
    left = sum(each.left for each in ported.values())
    changed = sum(each.new != each.old for each in ported.values())
    files = f"{changed} {'file' if changed == 1 else 'files'}"
    if written and changed:
        said += f"{files} written. "
    elif changed:
        said += f"Nothing was written; with --write, {files} will be. "
    if not left:
        return f"{said}Nothing is left to be done by hand."
    will_be = not written and changed
    if left == 1:
        lines, marked = "1 line is", "it will be" if will_be else "it is"
    else:
        lines, marked = f"{left} lines are", "they will be" if will_be else "they are"
    return f"{said}{lines} left to be done by hand; {marked} marked with TODO(replicax)."


def _hint(error: str) -> str:
    # What Python 3 says of a program for Python 2 that prints.
    is_python_2 = "print" in error and "parentheses" in error
    return " It is a program for Python 2; port it to Python 3 first." if is_python_2 else ""
