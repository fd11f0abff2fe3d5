"""Versions of other libraries that replicax has been tried with."""

from __future__ import annotations

from replicax._src._warnings import warn


def warn_unless_known(library: str, version: str, known: tuple[int, int], remedy: str) -> None:
    """Gives a warning if the version of a library is not a `known` one: major and minor.

    Args:
      library: its name, as the user knows it.
      version: what is installed.
      known: the one whose inside we know.
      remedy: what to install instead.
    """
    found = tuple(int(part) for part in version.split(".")[:2])
    if found != known:
        warn(
            f"{library} {version} was not tried with this version of replicax; "
            f"{known[0]}.{known[1]} was. If a model fails or learns nothing under a strategy, "
            f"install that: {remedy}"
        )
