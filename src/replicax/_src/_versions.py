"""The versions of JAX, Keras and Flax that replicax is tested with, and what it says about others.

pip may install any newer version: an upper bound would make it replace the JAX that people have. So
a version outside of the tested range is met with a warning of one line, and with an `ImportError`
only if something of JAX that replicax cannot do without is not there.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import NamedTuple

from replicax._src._warnings import warn


class Tested(NamedTuple):
    """The first and the last minor version of a library that the tests ran with."""

    first: tuple[int, int]
    last: tuple[int, int]

    def __contains__(self, version: object) -> bool:
        return self.first <= _minor(str(version)) <= self.last

    def __str__(self) -> str:
        first, last = (f"{major}.{minor}" for major, minor in (self.first, self.last))
        return first if first == last else f"{first} to {last}"


JAX = Tested((0, 10), (0, 12))
KERAS = Tested((3, 15), (3, 15))
FLAX = Tested((0, 12), (0, 12))

# Everything outside of JAX's public interface that replicax uses: modules of `jax._src`, and their
# names. Only `_jax_internals.py`, `_jax_cache.py` and `_planned_arrays.py` import them.
PRIVATE_NAMES_OF_JAX: dict[str, tuple[str, ...]] = {
    "api_util": ("debug_info",),
    "array": ("ArrayImpl",),
    "compilation_cache": (
        "decompress_executable",
        "get_file_cache",
        "is_cache_used",
        "put_executable_and_time",
        "reset_cache",
    ),
    "compiler": ("_cache_write",),
    "config": (
        "config_ext",
        "config_states",
        "enable_checks",
        "explicit_device_put_scope",
        "persistent_cache_min_compile_time_secs",
        "trace_context",
    ),
    "core": (
        "EvalTrace",
        "Primitive",
        "ShapedArray",
        "Trace",
        "aval_method",
        "aval_property",
        "eval_context",
        "eval_trace",
        "extend_axis_env_nd",
        "jaxprs_in_params",
        "pytype_aval_mappings",
        "set_current_trace",
        "trace_ctx",
        "trace_state_clean",
        "typeof",
    ),
    "distributed": ("global_state",),
    "dtypes": ("register_canonicalize_value_handler",),
    "interpreters.batching": ("BatchTrace",),
    "interpreters.partial_eval": (
        "DynamicJaxprTrace",
        "DynamicJaxprTracer",
        "convert_constvars_jaxpr",
        "trace_to_jaxpr_dynamic",
    ),
    "interpreters.pxla": ("shard_arg_handlers",),
    "lax.lax": ("_convert_element_type",),
    "lru_cache": ("LRUCache",),
    "xla_bridge": ("backends_are_initialized", "xla_client"),
}

# Names that make something quicker, and that replicax does without if JAX has them no more.
QUICKER_NAMES_OF_JAX: dict[str, tuple[str, ...]] = {
    "lax.eval_jaxpr": ("eval_jaxpr_p",),
    "lib": ("xla_client",),
}


def check_jax(version: str) -> None:
    """Warns about a version of JAX that was not tested; raises `ImportError` if names are missing.

    Args:
      version: what is installed.
    """
    if version in JAX:
        return
    if _minor(version) < JAX.first:
        raise ImportError(
            f"replicax needs JAX {JAX.first[0]}.{JAX.first[1]} or newer, and JAX {version} is "
            "installed. Install a newer one: pip install --upgrade jax"
        )
    if missing := missing_names():
        raise ImportError(
            f"replicax does not know JAX {version}, which has no {', '.join(missing)}. Install a "
            f'version that it was tested with ({JAX}): pip install "jax<{_after(JAX)}"; or a newer '
            "replicax: pip install --upgrade replicax"
        )
    warn(f"This version of replicax was tested with JAX {JAX}, and not with JAX {version}.")


def warn_unless_tested(library: str, version: str, tested: Tested) -> None:
    """Warns about a version of a library whose objects are taken into strategies.

    Args:
      library: its name, as the user knows it.
      version: what is installed.
      tested: the versions whose inside is known.
    """
    if version not in tested:
        warn(
            f"This version of replicax was tested with {library} {tested}, and not with {version}. "
            "If a model fails or learns nothing under a strategy, that may be why. "
            f"{_to_install(library.lower(), tested)}"
        )


def not_as_known(module: str, error: Exception) -> str:
    """Returns what to say about a library that lacks something which replicax uses of it.

    Args:
      module: "keras" or "flax.nnx".
      error: what was raised.

    Returns:
      The text of a warning: its objects do not follow strategies.
    """
    library = module.partition(".")[0]
    version = getattr(sys.modules[library], "__version__", "")
    tested = {"keras": KERAS, "flax": FLAX}[library]
    return (
        f"{library.capitalize()} {version} is not built as replicax knows it ({error}), so its "
        f"objects do not follow strategies. {_to_install(library, tested)}"
    )


def _to_install(library: str, tested: Tested) -> str:
    first, last = tested.last
    return f'Install a version that was tested: pip install "{library}=={first}.{last}.*"'


def missing_names() -> list[str]:
    """Returns the private names of JAX that are not in the one that is installed."""
    missing: list[str] = []
    for module, names in PRIVATE_NAMES_OF_JAX.items():
        try:
            found = importlib.import_module(f"jax._src.{module}")
        except ImportError:
            missing.append(f"jax._src.{module}")
        else:
            missing += [f"jax._src.{module}.{name}" for name in names if not hasattr(found, name)]
    return missing


def _minor(version: str) -> tuple[int, int]:
    """Returns the first two numbers of a version such as "0.12.0.1" or "0.13.0.dev20261101"."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def _after(tested: Tested) -> str:
    return f"{tested.last[0]}.{tested.last[1] + 1}"
