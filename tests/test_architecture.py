"""Keeps the drawing of the rooms true: who may import whom, and what an import may load.

The rooms and their order are in `scripts/rooms.py`, which reads the source and draws them. A
failure prints the offending edge: file, line, and the two rooms.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import counts, rooms
from scripts.rooms import (
    FLOORS,
    MAY_IMPORT_THE_PACKAGE,
    MODULES,
    PACKAGE,
    PUBLIC,
    SOURCE,
    Edge,
    edges,
    floor_of,
    room_of,
    tree,
)
from tests.guards import ROOT

# Imports of our own package inside a function, each with the reason why it cannot be at the top.
LOCAL_IMPORTS_WITH_A_REASON: dict[str, str] = {
    "replicax._src.integrations.keras": "what it imports needs Keras to run on JAX",
    "replicax._src.cli._migrate": "the part that it imports needs libcst, which is an extra",
}

# Modules that name types of rooms above them, for type checkers alone, with the reason.
TYPES_FROM_ABOVE: dict[str, str] = {
    "replicax._src.context._strategy": "an interface says what its methods take",
    "replicax._src.context._world": "an interface says what its methods take",
}

# What `import replicax` may not load: it takes time, or is an extra.
HEAVY = (
    "grain keras libcst matplotlib optax orbax ray rich sklearn "
    "tensorboardX tensorflow torch".split()
)

# The rooms that `import replicax` may load.
CORE = (
    "cluster collectives context data devices executors files functions integrations planning "
    "records strategies training values variable".split()
)


# Folders of tests that are no rooms: they look at the whole house.
NO_ROOMS = "fuzz integrations_extra misuse multi_worker parity partitioned spec".split()

# In rooms, tests of behaviour that many files have a part in; all others are named after a file.
ACROSS_FILES: dict[str, list[str]] = {
    room: names.split()
    for room, names in {
        "checkpoints": "continued damage hostile iterating kills many_workers only_ours orbax "
        "removal restore round_trip two_programs workers",
        "cluster": "bad_clusters own_address strangers",
        "compat": "v1_mirrored_strategy_page v1_multiprocess v1_strategies",
        "context": "context tasks",
        "data": "against_tensorflow array_record corners errors files from_function grain "
        "input_options iterables operations parquet passed_elements prefetch reading_ahead resume "
        "shuffle spec state tf_data when_computed",
        "executors": "collectives_from_threads concurrency interruptions walks",
        "functions": "calls compiled_loops control_flow control_flow_gradients corners donation "
        "interruptions replica_numbers results seen_late seen_late_in_odd_ways seen_late_in_runs "
        "types_for_users uneven_calls uneven_programs uneven_steps variables",
        "integrations": "equinox flax",
        "recording": "faults",
        "records": "fixed lines recorded",
        "strategies": "replica_structures",
        "training": "compiled_loss",
        "variable": "staging",
        "watching": "one_speaks summary",
        # What is beside the source, and what the tests themselves are made of.
        "": "api_review architecture benchmarks build docs examples forks fuzz guards memory "
        "misuse not_here notebook numerics pairs processes quick_compiles quick_imports readme "
        "scripts site",
    }.items()
}


def breaks_the_order(edge: Edge) -> str | None:
    """Returns why an edge is not allowed, or None."""
    importer, imported = room_of(edge.importer), room_of(edge.imported)
    if edge.for_types_only and edge.importer in TYPES_FROM_ABOVE:
        return None
    if imported == PUBLIC and importer != PUBLIC:
        if importer in MAY_IMPORT_THE_PACKAGE and edge.imported == PACKAGE:
            return None
        return "imports a public module; name the room that has what you need"
    here, there = floor_of(importer), floor_of(imported)
    if here is None or there is None:
        unknown = importer if here is None else imported
        return f"the room {unknown!r} has no floor; give it one in scripts/rooms.py"
    if importer == imported or there < here:
        return None
    where = "beside" if there == here else "above"
    return f"{importer} may not import {imported}, which is {where} it"


def listing(lines: list[str]) -> str:
    return "\n  ".join(["", *lines])


def test_source_was_found():
    assert len(MODULES) > 20 and edges()


def test_every_room_has_a_floor():
    lost = sorted({room_of(name) for name in MODULES if floor_of(room_of(name)) is None})
    assert not lost, f"no floor in the drawing for: {lost}"


def test_every_floor_has_its_rooms():
    there = {room_of(name) for name in MODULES}
    gone = [room for floor in FLOORS for room in floor.rooms if room not in there]
    assert not gone, f"on a floor, but not in the source: {gone}"


@pytest.mark.parametrize("page", rooms.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_drawings_are_up_to_date(page: Path):
    text = page.read_text(encoding="utf-8")
    assert "drawn by scripts/rooms.py" in text
    assert text == rooms.redrawn(text), "run `python -m scripts.rooms`"


def test_rooms_import_only_what_is_below_them():
    broken = [f"{edge} ({reason})" for edge in edges() if (reason := breaks_the_order(edge))]
    assert not broken, listing(broken)


def test_no_import_inside_a_function():
    hidden = [
        str(edge)
        for edge in edges()
        if edge.inside_function and edge.importer not in LOCAL_IMPORTS_WITH_A_REASON
    ]
    assert not hidden, listing(hidden)


def test_allowed_local_imports_still_exist():
    local = {edge.importer for edge in edges() if edge.inside_function}
    assert not LOCAL_IMPORTS_WITH_A_REASON.keys() - local


def test_modules_have_no_import_cycle():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for edge in edges():
        runs = not edge.inside_function and not edge.for_types_only
        if runs and edge.imported in graph:
            graph[edge.importer].add(edge.imported)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            pytest.fail(" -> ".join([*trail[trail.index(name) :], name]), pytrace=False)
        if name not in done:
            for following in sorted(graph[name]):
                visit(following, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_module_says_what_lives_in_it():
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if not ast.get_docstring(tree(path))
    ]
    assert not silent, listing(silent)


@pytest.mark.parametrize(
    ("importer", "imported", "words"),
    [
        ("replicax._src.values._mirrored", "replicax._src.variable", "above"),
        ("replicax._src.training._optimizer", "replicax._src.executors", "beside"),
        ("replicax._src.context._stack", "replicax", "a public module"),
        ("replicax._src.attic._x", "replicax._src.values", "no floor"),
        ("replicax._src.variable._variable", "replicax._src.values._mirrored", None),
        ("replicax._src.cli.main", "replicax", None),
    ],
)
def test_the_rule_itself(importer: str, imported: str, words: str | None):
    reason = breaks_the_order(Edge(importer, imported, SOURCE, 1, False))
    assert reason is None if words is None else reason is not None and words in reason


def test_import_is_light():
    program = (
        "import sys; import replicax; "
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; print(*heavy)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert result.stdout.split() == [], "loaded by `import replicax`"


def test_import_brings_in_the_core_alone():
    """All other rooms are loaded when one of their public names is used."""
    program = (
        "import sys; import replicax; "
        "print(*(name for name in sys.modules if name.startswith('replicax._src.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    loaded = {room_of(name) for name in result.stdout.split()} - {rooms.LEAVES}
    assert loaded <= set(CORE), listing(sorted(loaded - set(CORE)))


def names_on_demand(path: Path) -> tuple[set[str], set[str]]:
    """Returns what a public module lists for type checkers, and what it loads on demand."""
    for_types: set[str] = set()
    when_run: set[str] = set()
    for node in tree(path).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                for_types.update(f"{each.module} {alias.asname}" for alias in each.names)
            for table in (each for other in node.orelse for each in ast.walk(other)):
                if isinstance(table, ast.Dict) and module_is_named(table):
                    for source, names in ast.literal_eval(table).items():
                        when_run.update(f"{source} {name}" for name in names.split())
    return for_types, when_run


def module_is_named(table: ast.Dict) -> bool:
    first = table.keys[0]
    return isinstance(first, ast.Constant) and str(first.value).startswith(PACKAGE)


def test_type_checkers_see_the_names_that_are_loaded_on_demand():
    found = 0
    for name, path in MODULES.items():
        if room_of(name) == PUBLIC:
            for_types, when_run = names_on_demand(path)
            assert for_types == when_run, name
            found += len(when_run)
    assert found > 20


def test_classes_have_their_public_addresses_however_they_are_loaded():
    """Each public module is the first to be imported once, each time in a fork."""
    program = """
import importlib, os, sys
import replicax
MODULES = sys.argv[1:]
def addresses(first):
    found = {}
    for module in [first, *MODULES]:
        namespace = importlib.import_module(module)
        for name in dir(namespace):
            value = getattr(namespace, name)
            if isinstance(value, type) and not name.startswith("_"):
                found[f"{module}.{name}"] = f"{value.__module__}.{value.__qualname__}"
    return found
expected = None
for module in MODULES:
    read, write = os.pipe()
    if os.fork() == 0:
        with open(write, "w") as file:
            print(sorted(addresses(module).items()), file=file)
        os._exit(0)
    os.close(write)
    with open(read) as file:
        text = file.read()
    assert os.wait()[1] == 0
    expected = expected or text
    assert text == expected, module
    assert "replicax._src" not in text
"""
    public = [name for name in MODULES if room_of(name) == PUBLIC and "__main__" not in name]
    result = subprocess.run(
        [sys.executable, "-c", program, *public],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr


def test_import_starts_no_device():
    """Virtual devices can be asked for after `import replicax`, so that may not start a backend."""
    program = (
        "import replicax; from jax._src import xla_bridge; "
        "assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        timeout=500,
        check=True,
    )


# What should become less, and may not become more: see `scripts/counts.py`.
LIMITS = {
    "lines that ask: am I being traced?": 16,
    "lines that ask: are there other workers?": 6,
    "lines that ask: is it in parts?": 11,
    "lines that ask: is there one replica?": 5,
    "parameters that are Any, in percent": 3.6,
}


@pytest.mark.parametrize("what", LIMITS)
def test_counts_do_not_grow(what: str):
    assert counts.COUNTS[what]() <= LIMITS[what], "`python -m scripts.counts` prints them"


def test_no_room_uses_private_attributes_of_another():
    """A room that needs more of another's objects gets a function: see `_access.py` of rooms."""
    assert not counts.reaches(), listing(counts.reaches())


def test_no_room_imports_private_files_of_another():
    assert not counts.private_imports(), listing(counts.private_imports())


def names_for_tests() -> dict[str, set[str]]:
    """Returns what the files of each room, and the folders in it, are called; "" is no room."""
    found: dict[str, set[str]] = {"": set()}
    for path in (SOURCE / "_src").rglob("*.py"):
        room, *inside = [part.strip("_") for part in path.relative_to(SOURCE / "_src").parts]
        if inside:
            found.setdefault(room, set()).update(part.removesuffix(".py") for part in inside)
        else:
            found[""].add(room.removesuffix(".py"))
    return found


def test_tests_mirror_the_source():
    """`tests/ROOM/test_x.py` and `test_x_of_something.py` are about `_src/ROOM/.../_x.py`."""
    lost = []
    names = names_for_tests()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        *folders, file = path.relative_to(ROOT / "tests").parts
        room = folders[0] if folders else ""
        subject = file.removeprefix("test_").removesuffix(".py")
        if room in NO_ROOMS or subject in ACROSS_FILES.get(room, ()):
            continue
        if not any(f"{subject}_".startswith(f"{name}_") for name in names.get(room, ())):
            lost.append(str(path.relative_to(ROOT)))
    assert not lost, listing(["name it after a file of its room, or list it here", *lost])


def test_tests_across_files_are_there():
    gone = [
        f"{room}/{name}"
        for room, listed in ACROSS_FILES.items()
        for name in listed
        if not list(
            (ROOT / "tests" / room).glob(f"**/test_{name}.py" if room else f"test_{name}.py")
        )
    ]
    assert not gone, listing(gone)


def test_no_file_of_tests_is_too_long_to_read():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    }
    long = [f"{path}: {length} lines" for path, length in lengths.items() if length > 600]
    assert not long, listing(["at most 600 lines; split it along its subjects", *long])


def test_the_estimator_is_a_wing_that_nothing_else_needs():
    wing, door = "replicax._src.compat.estimator", "replicax.compat."
    inside = [
        str(edge)
        for edge in edges()
        if edge.imported.startswith(wing) and not edge.importer.startswith((wing, door))
    ]
    assert not inside, listing(inside)
