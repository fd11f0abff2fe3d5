"""How the processes of tests import Keras in less than half of the time.

Keras imports scikit-learn and Matplotlib where they are installed, for wrappers and plots that no
test uses. While it is being imported it does not find them; afterwards everybody does.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_LEFT_OUT = ("matplotlib", "sklearn")


class _WithoutExtras(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname in _LEFT_OUT and _is_being_imported("keras"):
            raise ModuleNotFoundError(f"{fullname} is left out of Keras", name=fullname)


def set_here() -> None:
    """Sets it for this process, before it imports Keras."""
    if not any(isinstance(each, _WithoutExtras) for each in sys.meta_path):
        sys.meta_path.insert(0, _WithoutExtras())


def _is_being_imported(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "_initializing", False)
