"""Reads the table: what becomes of a name of TensorFlow, and of a method of an object.

The older names come from `_src/_old_names.py`; what replicax and Keras have is asked of them.
"""

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, final

from replicax._src._old_names import OLD_NAMES, OldName
from replicax._src.cli.migrate import _calls_table, _objects_table, _table
from replicax._src.cli.migrate._rows import pairs
from replicax._src.cli.migrate._verdict import Verdict

# What the first part of a name stands for.
MODULES = dict(
    pairs("""
    absl_NAME -> absl.NAME | app flags logging; jnp -> jax.numpy; np -> numpy; rx -> replicax;
    NAME -> NAME | glob jax keras logging optax os shutil;
    """)
)

# Other places where TensorFlow has, or had, the same names.
_OTHER_PLACES = {
    "tf.compat.v1.": "tf.",
    "tf.compat.v2.": "tf.",
    "tf.contrib.distribute.": "tf.distribute.",
    "tf.dtypes.": "tf.",
    "tf.gfile.": "tf.io.gfile.",
}

# The same of Keras: Keras 3 has no other place for them, or one that only says so.
_OTHER_PLACES_OF_KERAS = {
    "tf.keras.callbacks.experimental.": "tf.keras.callbacks.",
    "tf.keras.layers.experimental.": "tf.keras.layers.",
    "tf.keras.layers.experimental.preprocessing.": "tf.keras.layers.",
    "tf.keras.optimizers.experimental.": "tf.keras.optimizers.",
    "tf.keras.optimizers.legacy.": "tf.keras.optimizers.",
    "tf.optimizers.": "tf.keras.optimizers.",
}

# TensorFlow 1 had functions there; classes are those of Keras.
_CLASSES_OF_KERAS = re.compile(r"tf\.(initializers|losses|metrics)\.[A-Z]")


@final
class Entry(NamedTuple):
    """A line of the table."""

    verdict: Verdict
    new: str = ""
    advice: str = ""


@final
class Match(NamedTuple):
    """A line of the table that a name was found in."""

    name: str
    """The part of the name that was found; what follows is an attribute of it."""
    entry: Entry


_UNKNOWN = Entry(Verdict.THOUGHT, advice="not known here: look in jnp and jax")


@functools.cache
def entries() -> dict[str, Entry]:
    """Returns every line of the table, by TensorFlow's name."""
    return dict(_entries())


def _entries() -> Iterator[tuple[str, Entry]]:
    def changes(new: str) -> Entry:
        return Entry(Verdict.CHANGES, new)

    yield from _by_hand(_table.THOUGHT, _table.UNSUPPORTED).items()
    yield from ((name, changes(new)) for name, new in _table.RENAMED.items())
    for name in _table.DTYPES.split():
        yield f"tf.{name}", changes(f"jnp.{name}")
    for row in _old_rows():
        if row.old.startswith("rx.") and row.new.startswith("rx."):
            yield f"tf{row.old[2:]}", changes(row.new)

    for name, new in _calls_table.MATHS.items():
        entry = Entry(Verdict.THOUGHT, new, _calls_table.OTHERWISE_IN_JAX.get(name, ""))
        yield f"tf.{name}", entry
        if "." not in name:
            yield f"tf.math.{name}", entry
    for name, _, new in reversed(list(call_lines(_calls_table.CALLS))):  # the first form counts
        function = "jnp.asarray" if new.startswith("cast(") else function_of(new)
        said = _table.THOUGHT.get(f"tf.{name.rpartition('.')[2]}", "" if function else new)
        yield name, Entry(Verdict.THOUGHT, "" if said else function, said)
    for name, new in _calls_table.OLD_OPTIMIZERS.items():
        yield f"tf.train.{name}", Entry(Verdict.THOUGHT, f"rx.Optimizer({new}(...))")
    for place in ("keras.losses", "keras.metrics"):
        for name, new in _table.SHORT_LOSSES.items():
            yield f"tf.{place}.{name}", changes(f"{place}.{new}")
            if len(name) <= 4:
                yield f"tf.{place}.{name.upper()}", changes(f"{place}.{new}")


def _by_hand(thought: dict[str, str], unsupported: dict[str, str]) -> dict[str, Entry]:
    return {
        name: Entry(verdict, advice=advice)
        for verdict, table in ((Verdict.THOUGHT, thought), (Verdict.UNSUPPORTED, unsupported))
        for name, advice in table.items()
    }


def call_lines(table: str) -> Iterator[tuple[str, str, str]]:
    """Yields the names whose calls are rewritten, their parameters, and the new expression."""
    for old, new in pairs(table):
        name, _, parameters = old.removesuffix(")").partition("(")
        arguments = "" if parameters == "*" else parameters
        new = new or f"jnp.{name}({arguments})"
        yield f"tf.{name}", parameters, new
        if "." not in name:
            yield f"tf.math.{name}", parameters, new


def function_of(expression: str) -> str:
    """Returns the first function that an expression of the table calls; "" if it calls none."""
    found = re.findall(r"[\w.]+(?=\()", expression)
    return next((each for each in found if is_function(each)), "")


def is_function(name: str) -> bool:
    """Returns whether a name that is called is a library's or Python's: no method of an object."""
    return name[0] != "." and ("." not in name or name.partition(".")[0] in MODULES)


def _old_rows() -> Iterator[OldName]:
    return (row for rows in OLD_NAMES.values() for row in rows)


@functools.cache
def lookup(name: str) -> Match:
    """Finds the longest part of a dotted name that is in the table."""
    forms = other_names(name)
    if name in _table.NOT_NEEDED.split():
        return Match(name, Entry(Verdict.CHANGES, advice=_table.THOUGHT.get(name, "")))
    for form in forms:
        for part in _prefixes(form):
            if entry := entries().get(part):
                return Match(_without_last(name, form.count(".") - part.count(".")), entry)
    for form in forms:
        if new := _in_replicax(form):
            return Match(_without_last(name, new.unused), Entry(Verdict.CHANGES, new.name))
    for form in forms:
        for part in _prefixes(form):
            if entry := entries().get(f"{part}.*"):
                operation = f"keras.ops.{form.rpartition('.')[2]}"
                if part == "tf.keras.backend" and keras_is_here() and exists(operation):
                    entry = Entry(Verdict.THOUGHT, operation)
                return Match(name, entry)
    return Match(name, _UNKNOWN)


@final
class _Ours(NamedTuple):
    name: str
    """What replicax or Keras has in the same place."""
    unused: int
    """How many parts of the name are attributes of that: one of `tf.distribute.ReduceOp.SUM`."""


@functools.cache
def _in_replicax(name: str) -> _Ours | None:
    """Finds a name in replicax or Keras under the same path; modules only if nothing follows."""
    if name == "tf" or f"{name}.".startswith("tf.compat."):  # which has other forms of its names
        return None
    place = next((place for place in _table.PLACES if f"{name}.".startswith(f"{place}.")), None)
    if place is None:
        return None
    new = _table.PLACES[place]
    if new == "keras" and not keras_is_here() and _is_known_to_be_gone(name):
        return None
    parts = name[len(place) :].strip(".").split(".") if name != place else []
    for position, part in enumerate(parts, 1):
        new = f"{new}.{part}"
        if part.startswith("_") or not exists(new):
            return None
        if not is_module(new):
            return _Ours(new, len(parts) - position)
    return _Ours(new, 0)


def other_names(name: str) -> list[str]:
    """Returns a name, and those that mean the same: `tf.compat.v1.Session`, `tf.Session`."""
    if _CLASSES_OF_KERAS.match(name):
        name = name.replace("tf.", "tf.keras.", 1)
    for place in sorted(_OTHER_PLACES_OF_KERAS, reverse=True):  # the longer ones first
        if name.startswith(place):
            name = _OTHER_PLACES_OF_KERAS[place] + name[len(place) :]
    forms = [name]
    for form in forms:  # grows while it is walked: tf.compat.v1.gfile.x has three
        for place, other in _OTHER_PLACES.items():
            if form.startswith(place):
                forms.append(other + form[len(place) :])
    return forms


def remark(name: str, text: str) -> str:
    """Returns what else is said of a name in a file with this text; "" if nothing."""
    found = _table.REMARKS.get(name)
    if found is None or not found.where.search(text):
        return ""
    return "" if found.unless is not None and found.unless.search(text) else found.text


def _prefixes(name: str) -> Iterator[str]:
    """Yields `a.b.c`, then `a.b`, then `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _without_last(name: str, count: int) -> str:
    return ".".join(name.split(".")[: name.count(".") + 1 - count])


# --- methods --------------------------------------------------------------------------------------


@functools.cache
def methods() -> dict[str, Entry]:
    """Returns what is said of methods, as `Strategy.run`."""
    found = _by_hand(_objects_table.THOUGHT_METHODS, _objects_table.UNSUPPORTED_METHODS)
    for name, new in _objects_table.RENAMED_METHODS.items():
        found[name] = Entry(Verdict.CHANGES, new)
    found |= {f"{owner}()": Entry(Verdict.SAME) for owner in _objects_table.CALLED.split()}
    for row in _old_rows():
        owner, _, method = row.old.rpartition(".")
        if owner not in _objects_table.CLASSES:
            continue
        written = f"{row.note} {row.line}".strip()
        is_name = row.new.startswith(("rx.data.", f"{owner}."))
        found[f"{owner}.{method}"] = (
            Entry(Verdict.CHANGES, row.new) if is_name else Entry(Verdict.THOUGHT, advice=written)
        )
    return found


def lookup_method(owner: str, method: str) -> Entry | None:
    """Finds what becomes of a method or attribute of such an object; None if nothing is known.

    The method `()` is a call of the object itself.
    """
    if method == "()":
        return methods().get(f"{owner}()")
    if entry := methods().get(f"{owner}.{method}"):
        return entry
    if owner in _objects_table.CLASSES and _has(_objects_table.CLASSES[owner], method):
        return Entry(Verdict.SAME)
    return methods().get(f"{owner}.*")


def _has(cls: str, name: str) -> bool:
    return exists(f"{cls}.{name}") or name in getattr(find(cls), "__dataclass_fields__", ())


def is_remark_on_all(owner: str, method: str) -> bool:
    """Returns whether nothing is said of this method, only of all without a line of their own."""
    found = lookup_method(owner, method)
    return found is not None and found is methods().get(f"{owner}.*")


def new_keyword(called: str, keyword: str) -> str | None:
    """Returns what a keyword is called today, if that is something else."""
    renamed = _of_call(_table.KEYWORDS, called)
    older = {row.old: row.new for row in _old_rows() if row.old.endswith("=")}
    return renamed.get(keyword) or older.get(f"{keyword}=", "").removesuffix("=") or None


def refused_keyword(called: str, keyword: str) -> str | None:
    """Returns what to write in the place of a keyword that is no good."""
    return _of_call(_table.REFUSED, called).get(keyword)


def _of_call(table: dict[str, dict[str, str]], called: str) -> dict[str, str]:
    return table.get(called) or table.get(f"{called.rpartition('.')[0]}.*", {})


# --- what replicax, JAX and Keras have ------------------------------------------------------------


@functools.cache
def keras_is_here() -> bool:
    """Returns whether Keras 3 is installed, so that it can be asked what it has."""
    if importlib.util.find_spec("keras") is None:
        return False
    os.environ.setdefault("KERAS_BACKEND", "jax")  # by default it would load TensorFlow
    try:
        return importlib.import_module("keras").__version__ >= "3"
    except Exception:  # of whatever kind: its backend is not installed, say
        return False


def _is_of_absent_keras(name: str) -> bool:
    return name.partition(".")[0] == "keras" and not keras_is_here()


def _is_known_to_be_gone(name: str) -> bool:
    """Returns, where Keras cannot be asked, whether the table has a remark on all of a place."""
    place, _, last = name.rpartition(".")
    if name in _table.LEFT_IN_KERAS or last in _table.LEFT_IN_KERAS.get(place, "").split():
        return False
    return any(part != "tf.keras" and f"{part}.*" in entries() for part in _prefixes(name))


@functools.cache
def find(name: str) -> Any:
    """Returns what a name stands for: `jnp.sum`, `rx.data.Dataset`, `iter`.

    Raises:
      AttributeError: There is no such thing.
    """
    first, *rest = name.split(".")
    if first not in MODULES:
        if name == "None" or re.fullmatch('"[^"]*"', name):
            return ast.literal_eval(name)
        return getattr(builtins, name)
    value = importlib.import_module(MODULES[first])
    done = MODULES[first]
    for part in rest:
        done = f"{done}.{part}"
        if not hasattr(value, part) and inspect.ismodule(value):
            try:
                importlib.import_module(done)  # jax.scipy.special is loaded only when asked for
            except ImportError:
                raise AttributeError(f"there is no {name}") from None
        value = getattr(value, part)
    return value


def exists(name: str) -> bool:
    """Returns whether a name stands for something; all of Keras does where it cannot be asked."""
    if _is_of_absent_keras(name):
        return True
    try:
        find(name)
    except AttributeError:
        return False
    return True


def is_module(name: str) -> bool:
    """Returns whether a name stands for a module."""
    if _is_of_absent_keras(name):
        return not any(part[0].isupper() for part in name.split("."))
    return exists(name) and inspect.ismodule(find(name))


def for_numpy(new: str) -> str:
    """Returns the function of NumPy in the place of one of `jax.numpy`, if there is one."""
    name = new.replace("jnp.", "np.", 1) if new.startswith("jnp.") else ""
    return name if name and exists(name) else new


def signature(name: str) -> inspect.Signature | None:
    """Returns the arguments of a function, method or class, without `self`; None if not known."""
    if _is_of_absent_keras(name):
        return None
    value = find(name)
    is_method = False
    if inspect.isclass(value):
        if value.__init__ is object.__init__:
            return None
        value, is_method = value.__init__, True
    elif "." in name:
        owner, _, method = name.rpartition(".")
        is_method = inspect.isclass(find(owner)) and inspect.isfunction(
            inspect.getattr_static(find(owner), method, None)  # None: it is that of its class
        )
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    return inspect.Signature(list(found.parameters.values())[1:]) if is_method else found


# --- where a name of Keras is not what a file needs -----------------------------------------------


@final
class WithReplicax:
    """Says what takes the place of a name of Keras in a file with objects of replicax."""

    def __init__(self, has_estimator: bool, trains_own_variables: bool) -> None:
        """Prepares for a file.

        Args:
          has_estimator: it has an Estimator, which takes metrics of replicax.
          trains_own_variables: its optimizers update Variables, which those of Keras do not.
        """
        self._has_estimator = has_estimator
        self._trains_own_variables = trains_own_variables

    def new_name(self, new: str) -> str | None:
        """Returns the name to write for one of Keras; None if somebody has to think."""
        if self._has_estimator and new.startswith("keras.metrics."):
            return f"rx{new[5:]}" if exists(f"rx{new[5:]}") else None
        if self._trains_own_variables and new.startswith("keras.optimizers."):
            return None
        return new

    def advice(self, new: str) -> tuple[str, str]:
        """Returns what to write, and why, where `new_name` knows none."""
        if new.startswith("keras.metrics."):
            return "", "rx.metrics, which an Estimator takes, does not have it"
        name = new.rpartition(".")[2].lower()
        optimizer = "rx.train.adam" if name == "adam" else f"optax.{name}"
        found = f"rx.Optimizer({optimizer}(...))" if exists(optimizer) else "rx.Optimizer"
        return found, "that of Keras trains Keras's variables"
