"""`rx.train.ClusterSpec`: its laws. Parity with TensorFlow is in test_resolvers.py."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx

ADDRESSES = st.text("abc.:0123456789", min_size=1, max_size=12)
LISTS = st.lists(ADDRESSES, min_size=1, max_size=5)
SPARSE = st.dictionaries(st.integers(0, 9), ADDRESSES, max_size=5)
CLUSTERS = st.dictionaries(st.text("abcde", min_size=1, max_size=3), LISTS | SPARSE, max_size=4)


@given(CLUSTERS)
def test_what_goes_in_comes_out(cluster):
    spec = rx.train.ClusterSpec(cluster)
    assert spec.jobs == list(cluster)
    assert bool(spec) == bool(cluster)
    for job, tasks in cluster.items():
        given = dict(enumerate(tasks)) if isinstance(tasks, list) else tasks
        assert spec.num_tasks(job) == len(given)
        assert spec.task_indices(job) == sorted(given)
        assert {i: spec.task_address(job, i) for i in given} == given
        by_index = spec.job_tasks(job)
        assert {i: each for i, each in enumerate(by_index) if each is not None} == given


@given(CLUSTERS)
def test_all_round_trips_are_equal(cluster):
    spec = rx.train.ClusterSpec(cluster)
    for other in (
        rx.train.ClusterSpec(spec),
        rx.train.ClusterSpec(spec.as_dict()),
        rx.train.ClusterSpec(spec.as_cluster_def()),
        eval(repr(spec), {"ClusterSpec": rx.train.ClusterSpec}),
        copy.deepcopy(spec),
        pickle.loads(pickle.dumps(spec)),
    ):
        assert other == spec and not other != spec


@given(CLUSTERS)
def test_a_job_is_a_list_if_it_has_no_gaps(cluster):
    for tasks in rx.train.ClusterSpec(cluster).as_dict().values():
        dense = isinstance(tasks, list) or (tasks and set(tasks) == set(range(len(tasks))))
        assert isinstance(tasks, list) == bool(dense)


def test_it_does_not_change_with_what_it_was_made_of():
    tasks = ["a:1"]
    spec = rx.train.ClusterSpec({"worker": tasks})
    tasks.append("b:1")
    spec.as_dict()["worker"].append("c:1")  # type: ignore[union-attr]
    spec.as_cluster_def().job[0].tasks[5] = "d:1"
    assert spec.as_dict() == {"worker": ["a:1"]}


def test_bytes_are_text():
    spec = rx.train.ClusterSpec({b"worker": [b"a:1"]})  # type: ignore[dict-item]
    assert spec.as_dict() == {"worker": ["a:1"]}


def test_an_empty_job_has_no_tasks():
    assert rx.train.ClusterSpec({"worker": []}).job_tasks("worker") == []  # TensorFlow fails here


@pytest.mark.parametrize(
    ("cluster", "error", "words"),
    [
        ("a:1", TypeError, ["dict from job names", "'a:1' (str)", "{'worker': ["]),
        ({"worker": "a:1"}, TypeError, ["job 'worker'", "Write ['a:1']"]),
        ({"worker": {"one": "a:1"}}, ValueError, ["integer", "'one'", "'worker'"]),
        ({"worker": {-1: "a:1"}}, ValueError, ["negative", "'worker'", "-1"]),
        ({"worker": ["a:1", 5]}, TypeError, ["address of task 1", "'worker'", "5 (int)"]),
        ({3: ["a:1"]}, TypeError, ["name of a job", "3 (int)"]),
    ],
)
def test_errors_show_what_is_wrong(cluster, error, words):
    with pytest.raises(error) as raised:
        rx.train.ClusterSpec(cluster)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_errors_say_what_there_is():
    spec = rx.train.ClusterSpec({"worker": {2: "a:1"}})
    with pytest.raises(ValueError, match=r"No such job in cluster: 'ps'. It has \['worker'\]"):
        spec.job_tasks("ps")
    with pytest.raises(ValueError, match=r"No task with index 0 in job 'worker', which has \[2\]"):
        spec.task_address("worker", 0)
