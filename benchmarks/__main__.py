"""Runs benchmarks: `python benchmarks --help` says how."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Started by its folder's name, Python looks for modules in the folder and not beside it.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    if sys.argv[1:2] == ["serve"]:
        from benchmarks.harness.processes import serve

        serve(*sys.argv[2:])
    else:
        from benchmarks.harness.command_line import main

        main()
