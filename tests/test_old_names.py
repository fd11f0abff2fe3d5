"""Older names work, and warn: once, at the user's line, with the line to write instead."""

import ast
import functools
import inspect
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax
from replicax._src import _old_names
from replicax._src._old_names import OLD_NAMES, OldName
from tests.old_names import warns_of, with_old_names
from tests.replicas import mirrored
from tests.under_test import Executor

rx: Any = replicax  # older names are not what type checkers look for
ROWS = [row for rows in OLD_NAMES.values() for row in rows]


def older(count: int = 2) -> Any:
    return rx.compat.v1.distribute.MirroredStrategy([f"CPU:{index}" for index in range(count)])


def batches() -> Any:
    return rx.data.Dataset.range(8).batch(4)


def all_reduce_with_hints() -> Any:
    def replica_fn() -> Any:
        context = rx.distribute.get_replica_context()
        return context.all_reduce("SUM", jnp.ones(2), experimental_hints=OPTIONS)

    return mirrored(2).run(replica_fn)


OPTIONS = rx.distribute.experimental.CommunicationOptions(bytes_per_pack=8)

# How each name is used; every row of the table has one.
USES: dict[str, Callable[[], Any]] = {
    "Strategy.experimental_run_v2": lambda: mirrored(2).experimental_run_v2(lambda: 1.0),
    "Strategy.experimental_distribute_datasets_from_function": (
        lambda: mirrored(2).experimental_distribute_datasets_from_function(lambda c: batches())
    ),
    "Strategy.experimental_make_numpy_dataset": (
        lambda: mirrored(2).experimental_make_numpy_dataset(np.ones(3))
    ),
    "rx.distribute.experimental.MultiWorkerMirroredStrategy": (
        lambda: rx.distribute.experimental.MultiWorkerMirroredStrategy(communication="NCCL")
    ),
    "rx.distribute.experimental.TPUStrategy": lambda: rx.distribute.experimental.TPUStrategy(),
    "rx.distribute.experimental.CollectiveCommunication": (
        lambda: rx.distribute.experimental.CollectiveCommunication.NCCL
    ),
    "rx.distribute.experimental.CollectiveHints": (
        lambda: rx.distribute.experimental.CollectiveHints(bytes_per_pack=8)
    ),
    "experimental_hints=": all_reduce_with_hints,
    "Strategy.experimental_run": lambda: older().experimental_run(lambda: 1.0),
    "Strategy.make_dataset_iterator": lambda: older().make_dataset_iterator(batches()),
    "Strategy.make_input_fn_iterator": lambda: older().make_input_fn_iterator(lambda c: batches()),
    "InputIterator.initialize": lambda: ITERATOR.initialize(),
    "InputIterator.output_types": lambda: ITERATOR.output_types,
    "InputIterator.output_shapes": lambda: ITERATOR.output_shapes,
    "Strategy.configure": lambda: older().configure(),
    "Strategy.colocate_vars_with": lambda: older().colocate_vars_with(None),
    "Strategy.unwrap": lambda: older().unwrap(3.0),
    "Strategy.group": lambda: older().group(3.0),
    "Strategy.update_config_proto": (
        lambda: older().update_config_proto(rx.compat.v1.ConfigProto())
    ),
    "StrategyExtended.experimental_make_numpy_dataset": (
        lambda: mirrored(2).extended.experimental_make_numpy_dataset(np.ones(3))
    ),
    "StrategyExtended.experimental_run_steps_on_iterator": (
        lambda: mirrored(2).extended.experimental_run_steps_on_iterator(
            lambda context, x: None, [jnp.ones(1)]
        )
    ),
    "rx.compat.v1.distribute.get_loss_reduction": (
        lambda: rx.compat.v1.distribute.get_loss_reduction()
    ),
}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ITERATOR = older().make_dataset_iterator(batches())


def lines_of(use: Callable[[], Any]) -> range:
    """Where the text of a function is in this file."""
    lines, first = inspect.getsourcelines(use)
    return range(first, first + len(lines))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_a_name_warns_once_at_the_line_that_uses_it(
    row: OldName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    use = USES[row.old]
    with warns_of(row.old) as places:
        use()
        use()
    file, _, line = places[0].rpartition(":")
    assert Path(file).samefile(__file__) and int(line) in lines_of(use)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_a_warning_says_what_to_write(row: OldName) -> None:
    assert row.text.startswith(f"{row.old} is ")
    assert row.new in row.text and row.text.endswith(row.line or row.note)
    assert row.line or row.note
    ast.parse(row.line)


def test_every_name_is_tried_here():
    assert USES.keys() == {row.old for row in ROWS} and len(USES) == len(ROWS)


def test_where_warnings_are_errors_every_use_is_one():
    _old_names._used.clear()
    for _ in range(2):
        with pytest.raises(rx.compat.OldNameWarning, match=r"Write: strategy\.run\("):
            mirrored(2).experimental_run_v2(lambda: 1.0)


def test_threads_that_use_a_name_at_once_warn_once():
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        _old_names.warn_of("Strategy.unwrap")

    with warns_of("Strategy.unwrap"):
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_importing_an_older_name_warns_at_the_import():
    program = "\n\nfrom replicax.distribute.experimental import CollectiveCommunication as found"
    namespace: dict[str, Any] = {"__name__": "theirs"}
    with warns_of("rx.distribute.experimental.CollectiveCommunication") as places:
        exec(compile(program, "theirs.py", "exec"), namespace)
    assert places == ["theirs.py:3"]
    assert namespace["found"] is rx.distribute.experimental.CommunicationImplementation
    older_namespace = rx.compat.v1.distribute.experimental
    with warns_of("rx.distribute.experimental.CollectiveCommunication"):
        assert older_namespace.CollectiveCommunication is namespace["found"]


@pytest.mark.parametrize("name", ["distribute.experimental", "compat.v1.distribute.experimental"])
def test_names_that_never_were(name: str):
    namespace = functools.reduce(getattr, name.split("."), rx)
    with pytest.raises(AttributeError, match=f"^rx.{name} has no attribute 'CollectiveHint'"):
        namespace.CollectiveHint  # noqa: B018


def test_python_shows_the_warning_also_in_modules(tmp_path: Path):
    """A `DeprecationWarning` would be hidden there."""
    module = tmp_path / "theirs.py"
    module.write_text("import replicax as rx\nrx.distribute.experimental.CollectiveHints()\n")
    run = subprocess.run(
        [sys.executable, "-c", "import theirs"],
        env={
            "PYTHONPATH": f"{Path(rx.__file__).parent.parent}:{tmp_path}",
            "PATH": "",
            "JAX_PLATFORMS": "cpu",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert (
        "theirs.py:2: OldNameWarning: rx.distribute.experimental.CollectiveHints is" in run.stderr
    )


# --- what the older names do ----------------------------------------------------------------------


@with_old_names
def test_run_by_its_older_name(strategy: Any, executor: Executor):
    def replica_fn(x: Any, y: Any) -> Any:
        return x * y

    options = rx.distribute.RunOptions()

    def run() -> Any:
        return strategy.experimental_run_v2(replica_fn, (2.0,), {"y": jnp.ones(2)}, options)

    result = run() if executor.name == "eager" else rx.function(run)()
    for each in strategy.experimental_local_results(result):
        np.testing.assert_array_equal(each, [2.0, 2.0])


@with_old_names
@pytest.mark.parametrize("name", ["experimental_hints", "options"])
def test_hints_are_options(name: str, strategy: Any, executor: Executor):
    hints = rx.distribute.experimental.CollectiveHints(bytes_per_pack=4)
    replicas = strategy.num_replicas_in_sync

    def replica_fn() -> Any:
        context = rx.distribute.get_replica_context()
        return context.all_reduce("SUM", {"a": jnp.ones(2), "b": jnp.ones(3)}, **{name: hints})

    result = executor.run(strategy, replica_fn)
    for each in strategy.experimental_local_results(result):
        assert each["a"].tolist() == [replicas] * 2 and each["b"].tolist() == [replicas] * 3


@with_old_names
def test_hints_of_reductions(strategy: Any):
    hints = rx.distribute.experimental.CollectiveHints(4)
    if strategy is rx.distribute.get_strategy():
        pytest.skip("the default strategy reduces nothing")
    value = strategy.run(lambda: jnp.ones(2))
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        v = rx.Variable(jnp.zeros(2))
        extended = strategy.extended
        results = [
            extended.reduce_to("SUM", value, v, hints),
            extended.reduce_to("SUM", value, v, experimental_hints=hints),
            *extended.batch_reduce_to("SUM", [(value, v), (value, v)], hints),
            *extended.batch_reduce_to("SUM", [(value, v)], experimental_hints=hints),
        ]
    for result in results:
        for each in strategy.experimental_local_results(result):
            assert each.tolist() == [replicas] * 2


@with_old_names
def test_hints_of_cross_device_ops():
    hints = rx.distribute.experimental.CollectiveHints(4)
    seen = []

    class Watched(rx.distribute.ReductionToOneDevice):
        def reduce_implementation(
            self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
        ) -> Any:
            seen.append(options)
            return super().reduce_implementation(
                reduce_op, per_replica_value, destinations, options
            )

    value = rx.distribute.PerReplica([jnp.ones(1), jnp.ones(1)])
    ops = Watched()
    assert float(ops.reduce("SUM", value, "CPU:0", experimental_hints=hints)[0]) == 2.0
    (one,) = ops.batch_reduce("SUM", [(value, "CPU:0")], experimental_hints=hints)
    assert float(one[0]) == 2.0
    assert seen == [hints, hints]


@with_old_names
def test_wrong_hints_are_refused():
    value = rx.distribute.PerReplica([jnp.ones(1), jnp.ones(1)])
    with pytest.raises(TypeError, match="CommunicationOptions; got 3"):
        mirrored(2).extended.reduce_to("SUM", value, "CPU:0", experimental_hints=3)


@with_old_names
def test_options_go_before_hints():
    assert _old_names.options_or_hints(OPTIONS, "other") is OPTIONS
    assert _old_names.options_or_hints(None, OPTIONS) is OPTIONS
    assert _old_names.options_or_hints(OPTIONS, None) is OPTIONS


@with_old_names
def test_strategies_by_their_older_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    experimental = rx.distribute.experimental
    many = experimental.MultiWorkerMirroredStrategy(
        communication=experimental.CollectiveCommunication.RING, cluster_resolver=None
    )
    assert isinstance(many, rx.distribute.MultiWorkerMirroredStrategy)
    assert many.extended._options.implementation is experimental.CommunicationImplementation.RING
    assert isinstance(experimental.TPUStrategy(), rx.distribute.TPUStrategy)
    with pytest.raises(ValueError, match="'AUTO', 'RING' or 'NCCL'"):
        experimental.MultiWorkerMirroredStrategy("MPI")


@with_old_names
def test_lists_of_arrays_are_stacked(strategy: Any):
    first, second = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    for owner in (strategy, strategy.extended):
        rows = list(owner.experimental_make_numpy_dataset([first, second]))
        assert len(rows) == 2
        np.testing.assert_array_equal(rows[0], first)
        (row, *_) = owner.experimental_make_numpy_dataset({"x": (first, {"y": second})})
        np.testing.assert_array_equal(row["x"][0], first[0])
        np.testing.assert_array_equal(row["x"][1]["y"], second[0])
