"""Slurm: host lists, and who sees which GPUs. Parity with TensorFlow is in test_resolvers.py."""

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src.cluster.resolvers import _host_lists, _slurm
from tests.cluster.questions import environment

Slurm = rx.distribute.cluster_resolver.SlurmClusterResolver

STEP = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}


@pytest.fixture(autouse=True)
def nothing_was_set_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_slurm, "_replaced", None)


# --- host lists -----------------------------------------------------------------------------------

PREFIXES = st.from_regex(r"[a-z]([a-z.-]{0,4}[a-z])?", fullmatch=True)


@st.composite
def groups(draw) -> tuple[str, list[str]]:
    """A part of a host list, and what it stands for."""
    prefix = draw(PREFIXES)
    if draw(st.booleans()):
        number = draw(st.none() | st.integers(0, 99))
        host = prefix + ("" if number is None else str(number))
        return host, [host]
    suffix = draw(st.just("") | PREFIXES)
    width = draw(st.integers(1, 4))
    texts, hosts = [], []
    for first, length in draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(1, 5)), min_size=1, max_size=3)
    ):
        start = str(first).zfill(width)
        numbers = [str(i).zfill(len(start)) for i in range(first, first + length)]
        texts.append(start if length == 1 else f"{start}-{numbers[-1]}")
        hosts += [f"{prefix}{number}{suffix}" for number in numbers]
    return f"{prefix}[{','.join(texts)}]{suffix}", hosts


@given(st.lists(groups(), max_size=4))
def test_host_lists_expand_in_order(parts):
    text = ",".join(text for text, _ in parts)
    assert _host_lists.expand_hostlist(text) == [host for _, hosts in parts for host in hosts]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_task_counts_expand_in_order(counts, data):
    text, at = [], 0
    while at < len(counts):
        same = 1
        while at + same < len(counts) and counts[at + same] == counts[at]:
            same += 1
        same = data.draw(st.integers(1, same))
        text.append(f"{counts[at]}(x{same})" if same > 1 else str(counts[at]))
        at += same
    assert _host_lists.expand_tasks_per_node(",".join(text)) == counts


@given(st.text("n19-,[]x()", max_size=10))
def test_no_text_breaks_the_expansion(text):
    for expand in (_host_lists.expand_hostlist, _host_lists.expand_tasks_per_node):
        try:
            expand(text)
        except ValueError as error:
            assert f'"{text}"' in str(error)


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[1-2", "n[a-b]", "a,,b", ",a", "n[]", "n[1--2]"]
)
def test_malformed_host_lists(text: str):
    with pytest.raises(ValueError, match="Invalid hostlist format"):
        _host_lists.expand_hostlist(text)


def test_several_ranges_in_one_name():
    assert _host_lists.expand_hostlist("r[1-2]n[1-2]") == ["r1n1", "r1n2", "r2n1", "r2n2"]


def test_natural_order():
    names = ["n10", "n2", "m", "n1b", "n1a", "9", "10"]
    assert sorted(names, key=_host_lists.natural_order) == "9 10 m n1a n1b n2 n10".split()


# --- places ---------------------------------------------------------------------------------------


def resolve(arguments: dict[str, Any] | None = None, **variables: str):
    """Returns what a resolver says, and the GPUs that its process then sees."""
    with environment({"CUDA_VISIBLE_DEVICES": "", **STEP, **variables}):
        resolver = Slurm(**(arguments or {}))
        cluster = resolver.cluster_spec().as_dict()
        again = Slurm(**(arguments or {}))
        assert again.cluster_spec().as_dict() == cluster
        assert again.num_accelerators() == resolver.num_accelerators()
        return cluster, resolver, os.environ["CUDA_VISIBLE_DEVICES"]


def test_hosts_keep_the_order_of_slurm():
    """TensorFlow puts n10 first, so that task 0, which is on n9, is said to be on n10."""
    cluster, resolver, _ = resolve()
    assert cluster == {"worker": ["n9:8888", "n9:8889", "n10:8888", "n10:8889"]}
    assert resolver.get_task_info() == ("worker", 0)


def test_hosts_of_a_dict_are_in_the_order_of_slurm():
    cluster, _, _ = resolve({"tasks_per_node": {"n10": 3, "n9": 1}})
    assert cluster == {"worker": ["n9:8888", "n10:8888", "n10:8889", "n10:8890"]}
    cluster, _, _ = resolve({"tasks_per_node": {"n10": 3, "n9": 1}}, SLURM_STEP_NODELIST="z[1-2]")
    assert cluster["worker"][0] == "n9:8888"


def test_a_task_that_is_elsewhere_is_found():
    with pytest.raises(rx.errors.ClusterConfigError, match="--distribution=block") as raised:
        resolve(SLURM_PROCID="1", SLURMD_NODENAME="n10")  # as --distribution=cyclic does
    assert "task 1" in str(raised.value) and "'n10'" in str(raised.value)
    resolve(SLURM_PROCID="1", SLURMD_NODENAME="n9")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "4"}, ["2 nodes", "'4'"]),
        ({"SLURM_STEP_NUM_TASKS": "four"}, ["SLURM_STEP_NUM_TASKS", "'four'"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(2)"}, ["2(2)", "4(x2),3"]),
        ({"SLURM_STEP_NUM_TASKS": "5"}, ["Requested 5 tasks but only 4", "srun --ntasks"]),
        ({"SLURM_PROCID": "7"}, ["SLURM_PROCID is 7", "4 tasks"]),
    ],
)
def test_contradictions(variables: dict[str, str], words: list[str]):
    with pytest.raises((ValueError, RuntimeError)) as raised:
        resolve(None, **variables)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_outside_a_step():
    with environment({}), pytest.raises(RuntimeError, match="srun python train.py"):
        Slurm()


# --- GPUs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "variables", "visible", "per_task"),
    [
        ({}, {}, "", 0),  # TensorFlow fails on nodes without GPUs
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_PROCID": "3"}, "2,3", 2),
        ({}, {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "SLURM_PROCID": "3"}, "6,7", 2),
        ({}, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "GPU-a", 1),
        ({"auto_set_gpu": False}, {"CUDA_VISIBLE_DEVICES": "0,1"}, "0,1", 1),
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_PER_TASK": "2"}, "0,1", 2),
        ({}, {"CUDA_VISIBLE_DEVICES": "1", "SLURM_GPU_BIND": "single:1"}, "1", 1),
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPU_BIND": "none"}, "0", 1),
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_TRES_PER_TASK": "gres/gpu:2"}, "0,1", 2),
        ({}, {"CUDA_VISIBLE_DEVICES": "3"}, "3", 0),
    ],
)
def test_gpus(arguments: dict[str, Any], variables: dict[str, str], visible: str, per_task: int):
    _, resolver, seen = resolve(arguments, **variables)
    assert seen == visible
    assert resolver.num_accelerators() == {"GPU": per_task}


def test_gpus_are_counted_by_the_driver(tmp_path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: X'\necho 'GPU 1: X'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with environment({**STEP, "SLURM_PROCID": "1"}):
        Slurm().cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_no_driver_no_gpus(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with environment(STEP):
        resolver = Slurm()
        resolver.cluster_spec()
        assert resolver.num_accelerators() == {"GPU": 0}
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
