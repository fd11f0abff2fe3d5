"""Versions of JAX: the names that are used of it, and what is said about one that is not known."""

import ast
import importlib
import re
import sys
import tomllib
import types
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from replicax._src import _jax_internals, _versions
from replicax._src._versions import (
    JAX,
    PRIVATE_NAMES_OF_JAX,
    QUICKER_NAMES_OF_JAX,
    check_jax,
)
from replicax._src.integrations import _joining
from scripts import private_names
from tests.everything import EVERYTHING

ROOT = Path(__file__).parent.parent
INSIDE = ROOT / "src/replicax/_src"


def _names_used(path: Path) -> set[str]:
    """Returns "module.name" for all that a file uses of `jax._src`."""
    tree = ast.parse(path.read_text())
    modules: dict[str, str] = {}
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax._src"):
            package = (node.module or "").removeprefix("jax._src").lstrip(".")
            for each in node.names:
                name = f"{package}.{each.name}".lstrip(".")
                if (each.asname or each.name)[1:].islower():
                    modules[each.asname or each.name] = name
                else:
                    used.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                used.add(f"{modules[node.value.id]}.{node.attr}")
    return used


def test_the_table_has_the_private_names_that_are_used():
    files = ("_jax_internals.py", "_jax_cache.py", "_planned_arrays.py")
    used = set().union(*(_names_used(INSIDE / each) for each in files))
    table = {f"{module}.{name}" for module, names in PRIVATE_NAMES_OF_JAX.items() for name in names}
    assert used == table
    text = (INSIDE / "_jax_internals.py").read_text()
    quicker = re.findall(r'_if_there\("([\w.]+)", "(\w+)"\)', text)
    assert sorted(quicker) == [(key, *names) for key, names in QUICKER_NAMES_OF_JAX.items()]


def test_the_page_lists_them():
    page = (ROOT / "docs/design/versions.md").read_text()
    for module, names in (*PRIVATE_NAMES_OF_JAX.items(), *QUICKER_NAMES_OF_JAX.items()):
        for name in (module, *names):
            assert f"`{name}`" in page
    for tested in (JAX, _versions.KERAS, _versions.FLAX):
        assert f"| {tested} |" in page
    assert f"Versions {JAX} of JAX are tested" in (ROOT / "docs/start.md").read_text()


@pytest.mark.parametrize("library", ["keras", "flax"])
def test_the_installed_keras_and_flax_have_the_names_that_are_used(library: str):
    used = private_names.names_used(library, private_names.is_installed_module)
    assert used
    for module, names in used.items():
        found = importlib.import_module(f"{private_names.PRIVATE[library]}.{module}".rstrip("."))
        assert [name for name in names if not hasattr(found, name)] == []


def test_a_library_that_lacks_a_name_does_not_stop_a_scope(monkeypatch: pytest.MonkeyPatch):
    class Ours:
        @staticmethod
        def join() -> None:
            raise AttributeError("flax.nnx has no attribute 'Variable'")

    monkeypatch.setattr(_joining, "_waiting", {"flax.nnx": "ours"})
    monkeypatch.setitem(sys.modules, "ours", Ours)
    monkeypatch.setitem(sys.modules, "flax", types.SimpleNamespace(__version__="9.1.0"))
    monkeypatch.setitem(sys.modules, "flax.nnx", types.SimpleNamespace())
    expected = r"Flax 9\.1\.0 is not built as .*'Variable'.*pip install \"flax==0\.12\.\*\""
    with pytest.warns(UserWarning, match=expected):
        _joining._join_those_loaded(in_time=True)
    _joining._join_those_loaded(in_time=True)  # it was said once


def test_the_installed_jax_has_them():
    assert jax.__version__ in JAX
    assert _versions.missing_names() == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9.2", False),
        ("0.10.0", True),
        ("0.12.0.1", True),
        ("0.12.1.dev20261101+abc", True),
        ("0.13.0rc1", False),
        ("1.11.0", False),
    ],
)
def test_tested_versions(version: str, expected: bool):
    assert (version in _versions.Tested((0, 10), (0, 12))) is expected


def test_a_newer_jax_with_all_names_gets_one_line():
    wanted = r"tested with JAX 0\.10 to .*, and not with JAX 0\.99\.0\.$"
    with pytest.warns(UserWarning, match=wanted):
        check_jax("0.99.0")


def test_a_newer_jax_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PRIVATE_NAMES_OF_JAX, "core", ("no_such_name",))
    monkeypatch.setitem(PRIVATE_NAMES_OF_JAX, "no_such_module", ("x",))
    wanted = (
        r"no jax\._src\.core\.no_such_name, jax\._src\.no_such_module\. .*pip install \"jax<0\.13"
    )
    with pytest.raises(ImportError, match=wanted):
        check_jax("0.99.0")


def test_an_older_jax_is_refused():
    with pytest.raises(ImportError, match=r"needs JAX 0\.10 or newer.*JAX 0\.4\.30 is installed"):
        check_jax("0.4.30")


def test_no_upper_bound_makes_pip_replace_a_library():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["keras"], *extras["flax"]]:
        assert "<" not in requirement and "==" not in requirement


def test_a_wheel_is_read_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    wheel = tmp_path / "jax-9.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for module, names in PRIVATE_NAMES_OF_JAX.items():
            if module == "lru_cache":
                continue
            kept = [name for name in names if name != "trace_ctx"]
            lines = ["raise SystemExit('this is not to be run')", *(f"{name} = 1" for name in kept)]
            archive.writestr(f"jax/_src/{module.replace('.', '/')}.py", "\n".join(lines))
    assert private_names.main([str(wheel)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{wheel.name}: lacks core.trace_ctx, lru_cache",
        "  something is slower, as it lacks lax.eval_jaxpr, lib",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def wanted[T](x: T) -> T: ...",
        "class wanted(Base):",
        "if old:\n  class wanted(Base):",
        "wanted = 1",
        "wanted: int = 1",
        "from a import wanted",
        "from a import (\n  b,\n  wanted,\n)",
        "from a import b as wanted",
        "import wanted",
    ],
)
def test_what_defines_a_name(source: str):
    assert private_names.defines(f"x = 1\n{source}\n", "wanted")


@pytest.mark.parametrize(
    "source", ["wanted_not = 1", "wanted == 1", "x = wanted", "wanted(x=1)", "def f(wanted=1):"]
)
def test_what_does_not(source: str):
    assert not private_names.defines(source, "wanted")


@pytest.mark.skipif(not EVERYTHING, reason="a new JAX is no fault of a change here")
def test_the_newest_jax_of_the_index_has_them():
    assert private_names.main([]) == 0


def test_without_the_quick_way_to_devices_arrays_are_the_same(monkeypatch: pytest.MonkeyPatch):
    devices = jax.devices()[:2]
    whole = NamedSharding(jax.sharding.Mesh(np.array(devices), ("rows",)), PartitionSpec())
    rows = [np.full((3, 2), number, np.float32) for number in (1, 2)]

    def placed() -> tuple[jax.Array, jax.Array]:
        each = _jax_internals.put_on_each(rows, whole, devices)
        return each, _jax_internals.put_on_one(rows[1], devices[1])

    expected = placed()
    monkeypatch.setattr(_jax_internals, "_batched_device_put", None)
    for found, wanted in zip(placed(), expected, strict=True):
        assert found.committed == wanted.committed
        assert found.sharding == wanted.sharding
        for one, other in zip(found.addressable_shards, wanted.addressable_shards, strict=True):
            np.testing.assert_array_equal(one.data, other.data)
            assert one.device == other.device


def test_a_program_is_one_operation_of_another_whatever_its_parameter_is_called():
    program = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)
    around = jax.make_jaxpr(_jax_internals.as_one_operation(program))(2.0)
    assert len(program.jaxpr.eqns) == 2 and len(around.jaxpr.eqns) == 1


def test_without_such_an_operation_the_program_is_carried_out(monkeypatch: pytest.MonkeyPatch):
    unknown = types.SimpleNamespace(impl=lambda *args, program: None)  # of a newer JAX
    for operation in (None, unknown):
        monkeypatch.setattr(_jax_internals, "_eval_jaxpr", operation)
        program = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)
        around = jax.make_jaxpr(_jax_internals.as_one_operation(program))(2.0)
        assert len(around.jaxpr.eqns) == 2
