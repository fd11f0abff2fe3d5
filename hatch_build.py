"""Builds the compiled helper for records when replicax is installed, if that is possible.

Without a C compiler, or if it fails, replicax is installed all the same: everything works without
the helper, only reading records is slower. An editable install has the helper in `src`.
"""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "src/replicax/_src/records"


class CustomBuildHook(BuildHookInterface):
    """Called by hatchling before it builds a wheel, also one for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = runpy.run_path(str(Path(self.root, FOLDER, "_build.py")))
        if problem := script["build"]():
            self.app.display_info(f"replicax is built without its compiled helper. {problem}")
            return
        build_data["artifacts"].append(f"{FOLDER}/{script['LIBRARY'].name}")
        # The helper knows nothing of Python: one for all versions, but not for all machines.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
