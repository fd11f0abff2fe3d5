"""The table of `replicax migrate` is complete, and what it names exists."""

import ast
import json
import re
from pathlib import Path

import keras
import pytest

from replicax._src._old_names import OLD_NAMES
from replicax._src.cli.migrate import _lookup, _objects_table, _table
from replicax._src.cli.migrate._lookup import (
    entries,
    exists,
    is_remark_on_all,
    lookup,
    lookup_method,
    methods,
    signature,
)
from replicax._src.cli.migrate._verdict import Verdict

RECORDED = json.loads((Path(__file__).parent / "recorded" / "tensorflow_names.json").read_text())
NAMES: dict[str, list[str]] = {
    path: names.split() for path, names in sorted(RECORDED["names"].items())
}
# Modules of TensorFlow 1 and of TensorFlow before 2.16; everything else is in the recorded version.
GONE = (
    *("tf.contrib", "tf.estimator", "tf.keras.estimator", "tf.keras.experimental", "tf.python"),
    *("tf.keras.backend.get_session", "tf.keras.backend.learning_phase"),
    *("tf.keras.backend.set_session", "tf.keras.layers.CuDNN", "tf.keras.layers.DenseFeatures"),
    *("tf.keras.layers.SyncBatchNormalization", "tf.keras.mixed_precision.experimental"),
    *(
        "tf.keras.utils.SidecarEvaluator",
        "tf.app",
        "tf.compat.v1.losses",
        "tf.keras.backend.logsumexp",
        "tf.layers",
    ),
    *("tf.nn.softmax_cross_entropy_with_logits_v2", "tf.random.set_random_seed"),
    *("tf.keras.premade", "tf.keras.utils.experimental", "tf.keras.utils.multi_gpu_model"),
)
NOT_RECORDED = ("tf.__version__", "tf.keras.__version__")  # begins with an underscore
GONE_METHODS = {
    *("Model.evaluate_generator", "Model.fit_generator", "Model.predict_generator"),
    *("Model.reset_states", "Strategy.call_for_each_replica", "Strategy.experimental_run_v2"),
}


def names_of_tf_keras() -> set[str]:
    """All of `tf.keras`: Keras has a package for it, which is read and not run."""
    folder = Path(keras.__file__).parent / "_tf_keras" / "keras"
    found = set()
    for file in folder.rglob("__init__.py"):
        place = ".".join(["tf.keras", *file.parent.relative_to(folder).parts])
        found.add(place)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                found.update(f"{place}.{each.asname or each.name}" for each in node.names)
    return found


TF_KERAS = names_of_tf_keras()

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
    """Every name of replicax, JAX, Keras or optax in the table, with where it is."""
    found = [(name, entry.new) for name, entry in (*entries().items(), *methods().items())]
    found += [(name, new) for name, new in _objects_table.CLASSES.items()]
    found += [(name, name) for name in _objects_table.RETURNS if not name.startswith("tf")]
    found += [(name, name) for name in (*_table.KEYWORDS, *_table.REFUSED)]
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
        name = (
            f"{_objects_table.CLASSES[owner]}.{method}" if owner in _objects_table.CLASSES else name
        )
        if name and not exists(name):
            wrong.append(f"{where}: {new}")
    assert not wrong


# Written in advice, and not names: variables and modules of the user's program.
NAME_IN_ADVICE = re.compile(r"(?<![\w.])(?:rx|jnp|jax|keras|optax|np)(?:\.\w+)+")


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
        found = signature(called.replace(".*", ".SGD"))
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
        is_reduction = path == "tf.keras.losses.Reduction"  # its members are not recorded
        return (
            any(last in NAMES.get(place, ()) for place in places)
            or (path if is_reduction else name) in TF_KERAS
        )

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
        module = _lookup._in_replicax(name.removesuffix(".*")) if name.endswith(".*") else None
        if exists(ours) and not (module is not None and _lookup.is_module(module.name)):
            present.append(name)
    # Versions are each library's own, `rx.assign` is something else, and the tape only raises.
    assert present == ["tf.__version__", "tf.GradientTape", "tf.assign"]
    methods_that_exist = [
        name
        for name in _objects_table.THOUGHT_METHODS
        if name.split(".")[0] in _objects_table.CLASSES
        and not name.endswith((".*", "()"))
        and exists(f"{_objects_table.CLASSES[name.split('.')[0]]}.{name.split('.')[1]}")
    ]
    assert methods_that_exist == ["Model.add_metric"]  # which only raises an error


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
            if owner in _objects_table.CLASSES:
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


# --- Keras ----------------------------------------------------------------------------------------


def test_every_name_of_tf_keras_is_answered():
    """What Keras 3 has changes its spelling, and is there under the new one."""
    unanswered = []
    gone = {}
    for name in sorted(TF_KERAS):
        match = lookup(name)
        if match.entry.verdict is Verdict.CHANGES:
            assert exists(match.entry.new), name
        elif match.entry.advice == lookup("tf.keras.no_such").entry.advice:
            unanswered.append(name)
        else:
            gone[name] = match.entry
    assert not unanswered
    assert len(TF_KERAS) - len(gone) > 1400
    has = {name for name in gone if exists(name[3:])}
    assert {gone[name].advice.split(":")[0] for name in has} == {"it needs TensorFlow"}


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("tf.keras", "keras"),
        ("tf.keras.layers.Dense", "keras.layers.Dense"),
        ("tf.compat.v1.keras.layers.Dense", "keras.layers.Dense"),
        ("tf.keras.layers.experimental.preprocessing.Rescaling", "keras.layers.Rescaling"),
        ("tf.keras.losses.MSE", "keras.losses.mean_squared_error"),
        ("tf.keras.losses.Reduction.NONE", "None"),
        ("tf.keras.optimizers.legacy.Adam", "keras.optimizers.Adam"),
        ("tf.initializers.GlorotUniform", "keras.initializers.GlorotUniform"),
        ("tf.losses.Huber", "keras.losses.Huber"),
        ("tf.metrics.Mean", "keras.metrics.Mean"),
        ("tf.optimizers.schedules.CosineDecay", "keras.optimizers.schedules.CosineDecay"),
        ("tf.optimizers.get", "keras.optimizers.get"),
        ("tf.keras.backend.epsilon", "keras.backend.epsilon"),
    ],
)
def test_names_of_keras_change(name: str, new: str):
    assert lookup(name).entry == (Verdict.CHANGES, new, "")


@pytest.mark.parametrize(
    "name",
    [
        *("tf.keras.backend.mean", "tf.keras.no_such.Thing", "tf.keras.utils.multi_gpu_model"),
        *("tf.losses.mean_squared_error", "tf.metrics.accuracy"),  # of TensorFlow 1, perhaps
        *("tf.compat.v1.losses.mean_squared_error", "tf.compat.v1.metrics.mean"),
        *("tf.compat.v1.random_normal_initializer", "tf.keras.layers.TextVectorization"),
        "tf.keras.estimator.model_to_estimator",
    ],
)
def test_names_that_keras_does_not_have_do_not(name: str):
    assert lookup(name).entry.verdict.by_hand


def test_names_of_keras_are_known_where_keras_is_not(monkeypatch: pytest.MonkeyPatch):
    asked = {name: lookup(name) for name in TF_KERAS}
    monkeypatch.setattr(_lookup, "keras_is_here", lambda: False)
    _lookup._in_replicax.cache_clear()
    try:
        known = {name: lookup(name) for name in TF_KERAS}
    finally:
        _lookup._in_replicax.cache_clear()
    assert not [
        name for name in TF_KERAS if asked[name].entry.verdict is not known[name].entry.verdict
    ]
