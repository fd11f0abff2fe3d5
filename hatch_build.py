"""What hatchling calls when it builds replicax: the compiled helper, and README for the index.

Without a C compiler, or if it fails, replicax is installed all the same: everything works without
the helper, only reading records is slower. An editable install has the helper in `src`. With
REPLICAX_PURE set, a wheel for every machine is built, without the helper.
"""

import os
import re
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER = "src/replicax/_src/records"


class CustomBuildHook(BuildHookInterface):
    """Called by hatchling before it builds a wheel, also one for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("REPLICAX_PURE"):
            return
        script = runpy.run_path(str(Path(self.root, FOLDER, "_build.py")))
        if problem := script["build"]():
            self.app.display_info(f"replicax is built without its compiled helper. {problem}")
            return
        build_data["artifacts"].append(f"{FOLDER}/{script['LIBRARY'].name}")
        # The helper knows nothing of Python: one for all versions, but not for all machines.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling for what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = readme_for_index(text, os.environ.get("REPLICAX_REPOSITORY", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def readme_for_index(text: str, repository: str) -> str:
    """Returns README with links and commands of pip that work outside of the repository.

    Args:
      text: Has links to files, such as `[Start](docs/start.md)`.
      repository: The address that they are relative to. Without one they become plain text.
    """

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        return f"[{words}]({repository.rstrip('/')}/{target})" if repository else words

    text = re.sub(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)", link, text)
    return text.replace('pip install ".[', 'pip install "replicax[').replace(
        "`pip install .`", "`pip install replicax`"
    )
