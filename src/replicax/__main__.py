"""`python -m replicax` is the command `replicax`."""

import sys

from replicax._src.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
