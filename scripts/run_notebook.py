"""Runs a notebook in a fresh kernel, and writes it with its outputs.

    python scripts/run_notebook.py docs/tutorial.ipynb              # in place
    python scripts/run_notebook.py docs/tutorial.ipynb copy.ipynb   # elsewhere; the tests do so

Needs nbclient and ipykernel, which `replicax[dev]` brings. A cell that fails ends it.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config


def run(source: Path, target: Path) -> None:
    """Runs `source`, with this Python, on the CPU and in an empty folder."""
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of the user's own configuration, and nothing left in it.
        os.environ.update(
            IPYTHONDIR=folder,
            JUPYTER_CONFIG_DIR=folder,
            JUPYTER_RUNTIME_DIR=folder,
            JAX_PLATFORMS="cpu",
        )
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
            # No port is taken: they talk through files of this folder.
            config=Config(KernelManager={"transport": "ipc", "ip": f"{folder}/ipc"}),
        )
        client.execute()
    # Which Python it was is not part of the text.
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, target)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run(Path(sys.argv[1]), Path(sys.argv[-1]))
