"""Both ways through the records: the compiled helper and Python, which is the reference."""

import shutil
from pathlib import Path

import pytest

from replicax._src.records import _build, _native


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> _native.Library | None:
    """The compiled helper, built from the source as it is now; None without a C compiler."""
    if shutil.which("cc") is None:
        return None
    path = tmp_path_factory.mktemp("library") / _build.LIBRARY.name
    problem = _build.build(path, ["-Wall", "-Wextra", "-Werror", "-Wconversion"])
    assert problem is None, problem
    return _native.Library(path)


@pytest.fixture(params=[False, True], ids=["python", "native"])
def native(
    request: pytest.FixtureRequest,
    library: _native.Library | None,
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """What to pass as `native`; a test that takes it runs once with each."""
    if request.param and library is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(_native, "_load", lambda: library)
    return request.param


@pytest.fixture
def both(library: _native.Library | None, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """All that can be passed as `native`, for tests that compare them."""
    monkeypatch.setattr(_native, "_load", lambda: library)
    return [False] if library is None else [False, True]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file to write."""
    return tmp_path / "file"
