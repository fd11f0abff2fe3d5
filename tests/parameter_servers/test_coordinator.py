"""A strategy with two workers and two servers on Ray, beside what TensorFlow 2.21's does.

`recorded/facts.json` is what TensorFlow's does on a cluster in one process, with two
`tf.distribute.Server`s of each kind: `record.py` records it.
"""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.scripts import run_python

pytest.importorskip("ray")
HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded" / "facts.json").read_text(encoding="utf-8"))
SAME = """num_replicas_in_sync placement table_read lookup table_assigned done fetched
fetch fetch_structure counter kwargs run_scheduled worker_indices_are_of after_error
same_coordinator shards made_in_parts retries join_error_again distributed_dataset""".split()
SAME_KIND = """worker_index_outside next_on_coordinator end_of_data
schedule_not_callable""".split()
OTHER_KIND = {
    "assign_wrong_shape": "InvalidArgumentError",
    "create_per_worker_bad": "ValueError",
    "schedule_remote_value": "ValueError",
    "coordinator_of_other": "AttributeError",
    "no_ps": "ValueError",
    "no_workers": "ValueError",
}
ERRORS = {
    "assign_wrong_shape": ("ValueError", "shape"),
    "no_row": ("IndexError", "there is no row 5"),
    "worker_index_outside": ("RuntimeError", "coordinator.schedule"),
    "next_on_coordinator": ("NotImplementedError", "coordinator.schedule"),
    "end_of_data": ("OutOfRangeError", "repeat the data"),
    "create_per_worker_bad": ("TypeError", "a function without arguments"),
    "join_error": ("KeyError", "mine"),
    "cancelled": ("CancelledError", "did not run"),
    "schedule_not_callable": ("TypeError", "takes a function"),
    "args_is_no_list": ("TypeError", "`args` is a tuple or list of the arguments of 'abs'"),
    "kwargs_is_no_dictionary": ("TypeError", "`kwargs` is a dictionary of the keyword arguments"),
    "coordinator_in_function": ("TypeError", "it uses the ClusterCoordinator"),
    "closed": ("RuntimeError", "This coordinator was closed"),
    "schedule_remote_value": ("TypeError", "remote_value.fetch()"),
    "coordinator_of_other": ("TypeError", "ParameterServerStrategy"),
    "variable_outside": ("TypeError", "'outside:0', which was made outside of the strategy's"),
    "cannot_be_pickled": ("TypeError", "create_per_worker_values"),
    "variable_in_function": ("WrongContextError", "inside `with strategy.scope():`"),
    "bad_limit": ("ValueError", "0 or more"),
    "of_another": ("TypeError", "of another ParameterServerStrategy"),
    "another_limit": ("ValueError", "max_staleness=0, and there is one"),
    "stands_still": ("UnavailableError", "Parameter server 1 did not answer 'pull' within 8 s"),
    "stands_still_in_function": ("UnavailableError", "Parameter server 1 did not answer"),
    "no_ps": ("ClusterConfigError", "at least one"),
    "no_workers": ("ClusterConfigError", "at least one"),
    "server_lost": ("UnavailableError", "Restore the variables from the last checkpoint"),
}
OURS = {
    # TensorFlow has changed some parts when it refuses a value of another shape; nothing is here.
    "table_slice": [[2.5, 2.5]] * 3,
    "table_scattered": [[3.5, 3.5], [2.5, 2.5], [2.5, 2.5], [2.5, 2.5], [7.5, 7.5]],
    "table_scatter_update": [[3.5, 3.5], [2.5, 2.5], [2.5, 2.5], [7.0, 7.0], [7.5, 7.5]],
    "parameter_devices": [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2)],
    "own_changes_are_seen": -1,
    "run_scheduled_eagerly": 2.0,
    "metric": 3.0,
    "per_worker_first": True,
    "dataset_itself": 0,
    "random_data": 2,
    "per_worker_values": True,
    "fetch_after_error": ["CancelledError", "KeyError"],
    "losses": True,
    "trained": True,
    "iterations": 3,
    "updates": 3,
    "counted_though_killed": [40, 39],
    "another_coordinator": 1,
    "worker_index_in_data": True,
    "files": ["arrays", "manifest.json", "objects.json", "servers-00000", "servers-00001"],
    "read_as_one": True,
    "without_servers": True,
    "warned": True,
    "through_here": True,
    "restored": True,
    "restored_iterations": 3,
    "goes_on": 4,
    "from_tf_config": "<ParameterServerStrategy with 2 worker(s) and 3 server(s)>",
    "in_other_parts": [3, True, 3],
    "largest_staleness": 0,
    "limited_updates": 20,
    "program_of_the_coordinator": [1.0, 1.0],
    "answers_again": True,
}


def is_running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # empty, if nobody waited for it
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_cluster_of_two_workers_and_two_servers(tmp_path: Path):
    output = tmp_path / "facts.json"
    run_python([str(HERE / "program.py"), str(output)], tmp_path, status=-signal.SIGKILL)
    facts = json.loads(output.read_text(encoding="utf-8"))
    deadline = time.monotonic() + 100
    while left := [pid for pid in facts["processes"] if is_running(pid)]:
        assert time.monotonic() < deadline, f"did not end with the program: {left}"
        time.sleep(0.05)
    wrong = {name: (facts[name], RECORDED[name]) for name in SAME if facts[name] != RECORDED[name]}
    wrong |= {name: (facts[name], value) for name, value in OURS.items() if facts[name] != value}
    for name in SAME_KIND:
        if facts[name][0] != RECORDED[name][0]:
            wrong[name] = (facts[name], RECORDED[name])
    if not np.allclose(facts["rows_updated"], RECORDED["rows_updated"], rtol=1e-6):
        wrong["rows_updated"] = (facts["rows_updated"], RECORDED["rows_updated"])
    for name, (kind, text) in ERRORS.items():
        found = facts[name] or ["nothing", ""]
        if found[0] != kind or text not in found[1]:
            wrong[name] = (found, (kind, text))
    assert not wrong


def test_where_errors_are_of_another_kind():
    """The table of differences in the guide says so; TensorFlow's are the recorded ones."""
    assert {name: RECORDED[name][0] for name in OTHER_KIND} == OTHER_KIND
    assert all(ERRORS[name][0] != kind for name, kind in OTHER_KIND.items())
    assert RECORDED["python_error"][0] == ERRORS["join_error"][0]
    assert "CancelledError" in RECORDED["fetch_after_error"]
