"""The command line: `replicax launch`, `replicax doctor` and `replicax migrate`.

The engine is usable without it: `Launch(LaunchOptions(("train.py",), workers=Range(2, 2))).run()`.
"""

from replicax.cli._launch import Launch as Launch
from replicax.cli._main import main as main
from replicax.cli._options import LaunchOptions as LaunchOptions
from replicax.cli._options import Range as Range
