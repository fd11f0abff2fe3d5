"""The table of `replicax migrate` is complete, and what it names exists."""

import json
import re
from pathlib import Path

import pytest

from replicax._old_names import OLD_NAMES
from replicax.cli.migrate import _table
from replicax.cli.migrate._lookup import (
    entries,
    exists,
    is_namespace,
    is_remark_on_all,
    lookup,
    lookup_method,
    methods,
    signature,
)
from replicax.cli.migrate._verdict import Verdict

RECORDED = json.loads((Path(__file__).parent / "recorded" / "tensorflow_names.json").read_text())
NAMES: dict[str, list[str]] = {
    path: names.split() for path, names in sorted(RECORDED["names"].items())
}
# Modules of TensorFlow 1 and of TensorFlow before 2.16; everything else is in the recorded version.
GONE = ("tf.contrib", "tf.estimator", "tf.keras.losses.mean_squared_error", "tf.python")
NOT_RECORDED = ("tf.__version__",)  # begins with an underscore
GONE_METHODS = {"Strategy.call_for_each_replica", "Strategy.experimental_run_v2"}

# What the classes of TensorFlow are called in the table.
OWNERS = {
    "Strategy": "Strategy",
    "StrategyExtended": "StrategyExtended",
    "ReplicaContext": "ReplicaContext",
    "InputContext": "InputContext",
    "DistributedDataset": "DistributedDataset",
    "DistributedIterator": "InputIterator",
}


def new_names() -> list[tuple[str, str]]:
    """Every name of replicax, JAX or optax in the table, with where it is."""
    found = [(name, entry.new) for name, entry in (*entries().items(), *methods().items())]
    found += [(name, new) for name, new in _table.CLASSES.items()]
    found += [(name, name) for name in _table.RETURNS if name.startswith("rx.")]
    found += [(name, name) for name in _table.KEYWORDS]
    return found


def plain(new: str) -> str:
    """`rx.Optimizer(optax.adam(...))` names `optax.adam`."""
    inner = re.fullmatch(r"rx\.Optimizer\(([\w.]+)\(\.\.\.\)\)", new)
    return inner[1] if inner else new


def test_what_the_table_names_exists():
    wrong = []
    for where, new in new_names():
        name = plain(new).removesuffix(".*")
        owner, _, method = name.rpartition(".")
        name = f"{_table.CLASSES[owner]}.{method}" if owner in _table.CLASSES else name
        if name and not exists(name):
            wrong.append(f"{where}: {new}")
    assert not wrong


# Written in advice, and not names: variables and modules of the user's program.
NAME_IN_ADVICE = re.compile(r"(?<![\w.])(?:rx|jnp|jax|optax|np)(?:\.\w+)+")


def test_what_advice_names_exists():
    advice = {name: entry.advice for name, entry in (*entries().items(), *methods().items())}
    wrong = [
        f"{where}: {name}"
        for where, text in advice.items()
        for name in NAME_IN_ADVICE.findall(text)
        if not exists(name)
    ]
    assert not wrong


def test_keywords_are_those_of_today():
    for called, keywords in _table.KEYWORDS.items():
        found = signature(called)
        assert found is not None
        assert set(keywords.values()) <= set(found.parameters)


@pytest.mark.parametrize("generation", ["tf.distribute", "tf.compat.v1.distribute"])
def test_every_name_of_tf_distribute_is_answered(generation: str):
    """By a line of its own: not because nothing else was found."""
    namespaces = [
        path for path in NAMES if f"{path}.".startswith(f"{generation}.") and is_module(path)
    ]
    assert namespaces
    unanswered = []
    for path in namespaces:
        for name in NAMES[path]:
            full = f"{path}.{name}"
            match = lookup(full)
            is_known = match.entry.new or match.entry.advice != lookup("tf.no_such").entry.advice
            if not is_module(full) and not (match.name == full and is_known):
                unanswered.append(full)
    assert not unanswered


def is_module(path: str) -> bool:
    return path in NAMES and not path.rpartition(".")[2][0].isupper()


@pytest.mark.parametrize("generation", ["tf.distribute", "tf.compat.v1.distribute"])
def test_every_method_of_tf_distribute_is_answered(generation: str):
    unanswered = []
    for name, owner in OWNERS.items():
        for method in NAMES.get(f"{generation}.{name}", ()):
            entry = lookup_method(owner, method)
            if entry is None or is_remark_on_all(owner, method):
                unanswered.append(f"{owner}.{method}")
    assert not unanswered


def test_every_method_of_data_sets_is_answered():
    assert all(lookup_method("Dataset", method) for method in NAMES["tf.data.Dataset"])
    carried = [
        method
        for method in NAMES["tf.data.Dataset"]
        if (entry := lookup_method("Dataset", method)) and entry.verdict is Verdict.SAME
    ]
    assert len(carried) > 25


def test_old_names_of_the_table_are_names_of_tensorflow():
    def is_name(name: str) -> bool:
        path, _, last = name.rpartition(".")
        places = [path, path.replace("tf", "tf.compat.v1", 1)]
        places += ["tf", "tf.compat.v1"] if path == "tf.math" else []  # one table of maths for both
        places += ["tf.math"] if path == "tf" else []
        return any(last in NAMES.get(place, ()) for place in places)

    wrong = [
        name
        for name in (name.removesuffix(".*") for name in entries())
        if name.startswith("tf.") and not name.startswith(GONE + NOT_RECORDED) and not is_name(name)
    ]
    assert not wrong


def test_methods_of_the_table_are_methods_of_tensorflow():
    def known(owner: str, method: str) -> bool:
        places = [
            *(f"tf.distribute.{owner}", f"tf.compat.v1.distribute.{owner}", f"tf.{owner}"),
            *(f"tf.data.{owner}", f"tf.compat.v1.data.{owner}", f"tf.keras.{owner}"),
        ]
        recorded = [NAMES[place] for place in places if place in NAMES]
        return not recorded or any(method in names for names in recorded)

    wrong = [
        name
        for name in methods()
        if "." in name and not name.endswith(".*") and not known(*name.rsplit(".", 1))
    ]
    assert set(wrong) == GONE_METHODS


def test_what_replicax_has_is_not_called_missing():
    """Whoever adds `rx.lookup` finds the line of the table that says that there is none."""
    tables = (_table.THOUGHT, _table.UNSUPPORTED)
    missing = [name for table in tables for name in table if name.startswith("tf.")]
    present = []
    for name in missing:
        ours = name.removesuffix(".*").replace("tf.", "rx.", 1)
        is_known_namespace = name.endswith(".*") and is_namespace(name.removesuffix(".*"))
        if exists(ours) and not is_known_namespace:
            present.append(name)
    # Versions are each library's own, and `rx.assign` is something else.
    assert present == ["tf.__version__", "tf.assign"]
    assert not [
        name
        for name in _table.THOUGHT_METHODS
        if name.split(".")[0] in _table.CLASSES
        and not name.endswith((".*", "()"))
        and exists(f"{_table.CLASSES[name.split('.')[0]]}.{name.split('.')[1]}")
    ]


def test_what_replicax_has_by_the_same_name_changes_only_its_spelling():
    """Nothing of the table hides a name of TensorFlow that replicax has in the same place."""
    hidden = [
        full
        for path, names in NAMES.items()
        for name in names
        if not (full := f"{path}.{name}").startswith("tf.compat")
        and full not in NAMES
        and lookup(full).entry.verdict.by_hand
        and exists(full.replace("tf.", "rx.", 1))
    ]
    assert not hidden


def test_every_older_name_of_replicax_is_in_it():
    for rows in OLD_NAMES.values():
        for row in rows:
            if row.old.endswith("="):
                continue
            owner, _, method = row.old.rpartition(".")
            if owner in _table.CLASSES:
                entry = lookup_method(owner, method)
                assert entry is not None and entry.verdict is not Verdict.SAME, row.old
            elif row.old.startswith("rx."):
                assert lookup(f"tf{row.old[2:]}").entry.new == row.new, row.old
            else:
                pytest.fail(f"{row.old}: what is it the name of?")


def test_a_name_is_found_with_the_attributes_after_it():
    assert lookup("tf.distribute.ReduceOp.SUM").name == "tf.distribute.ReduceOp"
    assert lookup("tf.compat.v1.distribute.ReduceOp.SUM").name == "tf.compat.v1.distribute.ReduceOp"
    assert lookup("tf.contrib.distribute.MirroredStrategy").entry.new == (
        "rx.distribute.MirroredStrategy"
    )
    assert lookup("tf.distribute").entry.new == "rx.distribute"
    assert lookup("tf.distribute.NoSuchStrategy").entry.verdict is Verdict.THOUGHT
    assert lookup("tf.saved_model.save").entry.verdict is Verdict.UNSUPPORTED
