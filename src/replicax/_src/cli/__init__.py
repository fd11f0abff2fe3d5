"""The command line: `replicax launch`, `replicax doctor` and `replicax migrate`.

The engine is usable without it: `Launch(LaunchOptions(("train.py",), workers=Range(2, 2))).run()`.
"""

from replicax._src.cli._launch import Launch as Launch
from replicax._src.cli._main import main as main
from replicax._src.cli._options import LaunchOptions as LaunchOptions
from replicax._src.cli._options import Range as Range
