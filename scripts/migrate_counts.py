"""Counts what `replicax migrate` does to programs: a row of a Markdown table for each file.

python -m scripts.migrate_counts PATH...
"""

import sys
from pathlib import Path

from replicax._src.cli.migrate import Unreadable, Verdict, port
from replicax._src.cli.migrate._notebooks import Notebook


def program_of(path: Path) -> bytes:
    """The code of a file; of a notebook, that of its cells."""
    content = path.read_bytes()
    return Notebook(content).program.encode() if path.suffix == ".ipynb" else content


def row(path: Path) -> str:
    """Lines that are not blank, lines that change, and lines that are marked."""
    try:
        program = program_of(path)
        ported = port(program)
    except Unreadable as error:
        return f"| {path.name} | cannot be read: {error} | | |"
    lines = sum(1 for line in program.decode().splitlines() if line.strip())
    marked = {each.line for each in ported.findings if each.verdict.by_hand}
    changed = {each.line for each in ported.findings if each.verdict is Verdict.CHANGES} - marked
    return f"| {path.name} | {lines} | {len(changed)} | {len(marked)} |"


def main(paths: list[str]) -> None:
    """Prints the table."""
    print("| program | lines | rewritten | marked |\n|---|---:|---:|---:|")
    for path in map(Path, paths):
        print(row(path), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
