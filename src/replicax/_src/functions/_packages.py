"""Whose a function, a class or a module is: the user's own, or that of a package."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_INSTALLED_IN = frozenset(["site-packages", "dist-packages"])  # of any environment
TAKEN_AS_THEY_ARE = frozenset(
    ["chex", "equinox", "flax", "jax", "jaxlib", "keras", "numpy", "optax", "orbax", "replicax"]
)
_NO_PACKAGES = frozenset(["abc", "builtins", "collections", "enum", "types", "typing"])
own_packages: set[str] = set()  # of functions that were handed over: also if they are installed


def from_library(value: object) -> bool:
    """Returns whether a function, class or module is not the user's own."""
    return is_from_library(package_of(value))


def is_from_library(package: str) -> bool:
    """Returns whether what is in a package is not the user's own."""
    if package in own_packages and not _is_never_own(package):
        return False
    return _is_installed(package)


def is_taken_as_it_is(kind: type) -> bool:
    """Returns whether objects of a class are not looked into."""
    return _is_never_own(package_of(kind))


def _is_never_own(package: str) -> bool:
    return package in TAKEN_AS_THEY_ARE or package in sys.stdlib_module_names


def is_used_by_package(kind: type) -> bool:
    """Returns whether a class has a base from a package, which may read what users do not."""
    return any(from_library(b) and package_of(b) not in _NO_PACKAGES for b in kind.__mro__)


def package_of(value: object) -> str:
    """Returns the name of the package that a function, class or module belongs to."""
    if isinstance(value, types.FunctionType):  # a wrapper may say that it is what it wraps
        name = value.__globals__.get("__name__")
    elif isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = getattr(value, "__module__", None)
    return (name if isinstance(name, str) else "").partition(".")[0]


@functools.lru_cache(maxsize=4096)
def _is_installed(package: str) -> bool:
    """Returns whether a package is Python's or installed, and is not the program itself."""
    if package == "__main__" or not package:
        return False
    if package in TAKEN_AS_THEY_ARE:
        return True
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    if not file:
        return package in sys.stdlib_module_names
    if file.startswith(_INSTALLED) or not _INSTALLED_IN.isdisjoint(Path(file).parts):
        return True
    folder = Path(file).parent.parent if Path(file).stem == "__init__" else Path(file).parent
    return any(folder.glob("*.dist-info"))  # `pip install --target`
