"""For tests that use older names: on purpose, or because they are what is tested."""

import contextlib
from collections.abc import Iterator

import pytest

from replicax._src import _old_names

# A mark, for tests in which older names are not the point.
with_old_names = pytest.mark.filterwarnings("ignore::replicax.compat.OldNameWarning")


@contextlib.contextmanager
def warns_of(*names: str) -> Iterator[list[str]]:
    """Inside, each of these names must warn once, and no other; yields where, as "file:line"."""
    _old_names._used.clear()
    places: list[str] = []
    with pytest.warns(_old_names.OldNameWarning) as caught:
        yield places
    _old_names._used.clear()
    expected = [_old_names.row_of(name).text for name in names]
    assert [str(each.message) for each in caught] == expected
    places += [f"{each.filename}:{each.lineno}" for each in caught]
