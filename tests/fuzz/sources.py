"""Programs as text: statements that are put together, run, compared and made smaller.

A program is a list of statements, each for one section of a template. Any of them can be left out:
what then names something that is gone fails, which is no finding.
"""

import collections
import dataclasses
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.distribute import DistributedValues

# Sums in another order differ in their last bits; those of short numbers come early.
TOLERANCE = {"bfloat16": 2e-2, "float16": 2e-3}


class Statement(NamedTuple):
    """One or more lines of a program, and the section of the template that they belong to."""

    section: str
    text: str


class Picker:
    """Writes a random program by picking among options."""

    def __init__(self, random: np.random.Generator):
        self.random = random

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]


class Different(AssertionError):
    """Two ways to run a program gave different results; `error` is the type of what one raised."""

    def __init__(self, message: str, error: type | None = None):
        super().__init__(message)
        self.error = error


def source_of(template: str, statements: Sequence[Statement]) -> str:
    """Returns the template with the statements in the places of its `#section` lines."""
    lines: list[str] = []
    for line in template.strip("\n").splitlines():
        name = line.strip()
        if not name.startswith("#"):
            lines.append(line)
            continue
        indent = line[: line.index("#")]
        texts = [each.text for each in statements if each.section == name[1:]]
        lines += [indent + part for text in texts for part in text.splitlines()]
    return "\n".join(lines) + "\n"


_count = 0


def load(source: str, names: Mapping[str, Any]) -> types.ModuleType:
    """Runs `source` as a module of its own in which `names` are known, and returns the module."""
    global _count
    _count += 1
    module = types.ModuleType(f"fuzzed_{_count}")
    vars(module).update(names)
    file = f"<{module.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, file, "exec"), vars(module))
    finally:
        del sys.modules[module.__name__], linecache.cache[file]
    return module


def check(
    statements: Sequence[Statement],
    compare: Callable[[Sequence[Statement]], int],
    show: Callable[[Sequence[Statement]], str],
) -> int:
    """Returns `compare(statements)`, the number of comparisons.

    Raises:
      AssertionError: they differ; with the smallest list of statements that still does.
    """
    try:
        return compare(statements)
    except Different as found:
        difference = found
    smallest, difference = _smallest(list(statements), compare, difference)
    raise AssertionError(f"{difference}\n\n{show(smallest)}")


def _smallest(
    statements: list[Statement],
    compare: Callable[[Sequence[Statement]], int],
    difference: Different,
) -> tuple[list[Statement], Different]:
    """Leaves out statements, the last first, as long as the results differ in the same way."""
    shrinking = True
    while shrinking:
        shrinking = False
        for index in reversed(range(len(statements))):
            fewer = statements[:index] + statements[index + 1 :]
            found = _difference(fewer, compare)
            if found is not None and found.error is difference.error:
                statements, difference, shrinking = fewer, found, True
    return statements, difference


def _difference(
    statements: Sequence[Statement], compare: Callable[[Sequence[Statement]], int]
) -> Different | None:
    try:
        compare(statements)
    except Different as difference:
        return difference
    except Exception:  # it is not a program any more
        pass
    return None


# What one program for all replicas cannot do, and says so.
REFUSED = "a variable made outside of the strategy's scope, and then meet inside a loop or branch"


def run_ways(ways: Mapping[str, Callable[[], Any]]) -> int:
    """Compares what each way returns with what the first does; returns the number of comparisons.

    Raises:
      Different: one of them returns something else, or fails where the first does not.
    """
    (reference, run), *others = ways.items()
    expected = run()
    for name, run in others:
        try:
            found = run()
        except Exception as error:
            if REFUSED in str(error):
                continue
            raise Different(
                f"{reference}: {shown(expected)}\n{name}: {type(error).__name__}: {error}",
                type(error),
            ) from error
        if problem := next(differences(expected, found), None):
            raise Different(f"{problem}\n{reference}: {shown(expected)}\n{name}: {shown(found)}")
    return len(others)


def shown(value: Any) -> str:
    """A short text that says what a result is."""
    text = repr(value)
    return text if len(text) <= 2000 else f"{text[:2000]}..."


def differences(expected: Any, found: Any, path: str = "the result") -> Iterator[str]:
    """Yields a sentence for each difference: of types, structure, order of keys, and values."""
    if isinstance(expected, jax.Array | np.ndarray | np.generic):
        yield from _of_arrays(expected, found, path)
    elif type(expected) is not type(found):
        yield f"{path} is a {type(expected).__name__}, and not a {type(found).__name__}"
    elif isinstance(expected, DistributedValues):
        yield from differences(expected.values, found.values, path)
    elif isinstance(expected, dict):
        if list(expected) != list(found):
            yield f"{path} has the keys {list(expected)}, and not {list(found)}"
        elif isinstance(expected, collections.defaultdict):
            if expected.default_factory is not found.default_factory:
                yield f"{path} has another default_factory"
        for key in expected:
            yield from differences(expected[key], found[key], f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple):
        if len(expected) != len(found):
            yield f"{path} has {len(expected)} items, and not {len(found)}"
        for index, (one, other) in enumerate(zip(expected, found)):
            yield from differences(one, other, f"{path}[{index}]")
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            yield from differences(
                getattr(expected, field.name), getattr(found, field.name), f"{path}.{field.name}"
            )
    elif hasattr(expected, "tree_flatten"):
        yield from differences(expected.tree_flatten(), found.tree_flatten(), path)
    elif expected is not found and expected != found and not (expected != expected):
        yield f"{path} is {expected!r}, and not {found!r}"


def _of_arrays(expected: Any, found: Any, path: str) -> Iterator[str]:
    if not isinstance(found, jax.Array | np.ndarray | np.generic):
        yield f"{path} is an array, and not {found!r}"
        return
    for what in ("dtype", "shape", "weak_type"):
        one, other = (getattr(each, what, False) for each in (expected, found))
        if one != other:
            yield f"{path}: its {what} is {one}, and not {other}"
            return
    one, other = np.asarray(expected), np.asarray(found)
    if one.dtype.kind in "fcV":
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        one, other = one.astype(wide), other.astype(wide)
        tolerance = TOLERANCE.get(expected.dtype.name, 1e-5)
        close = np.allclose(other, one, tolerance, tolerance, equal_nan=True)
    else:
        close = np.array_equal(one, other)
    if not close:
        yield f"{path} is {one.tolist()}, and not {other.tolist()}"
