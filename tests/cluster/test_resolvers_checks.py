"""What one worker can find wrong in a description by itself, and what it makes of a right one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src.cluster import WorkerView, checked_cluster, split_address
from tests.cluster.questions import environment

resolvers = rx.distribute.cluster_resolver
ClusterConfigError = rx.errors.ClusterConfigError

WORKERS = {"worker": ["a:1", "b:1", "c:1"]}
CHIEF = {"chief": ["x:1"], "worker": ["a:1", "b:1"]}


def config(cluster: Any = WORKERS, task_type: Any = "worker", index: Any = 0, **more: Any) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, **more})


def view(text: str | None) -> WorkerView | None:
    with environment({} if text is None else {"TF_CONFIG": text}):
        return checked_cluster(resolvers.TFConfigClusterResolver())


# --- right ones -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rank", "name", "is_chief"),
    [
        (config(index=0), 0, "worker 0", True),
        (config(index=2), 2, "worker 2", False),
        (config(index="2"), 2, "worker 2", False),
        (config(CHIEF, "chief", 0), 0, "chief", True),
        (config(CHIEF, "worker", 0), 1, "worker 0", False),
        (config(CHIEF, "worker", 1), 2, "worker 1", False),
        (config(CHIEF, "evaluator", 0), None, "evaluator 0", True),
        (config({**CHIEF, "evaluator": ["e:1"]}, "evaluator", 0), None, "evaluator 0", True),
        (config({**CHIEF, "evaluator": ["e:1"]}, "worker", 1), 2, "worker 1", False),
        (config({"worker": {"1": "b:1", "0": "a:1", "2": "c:1"}}, index=1), 1, "worker 1", False),
    ],
)
def test_places_are_those_of_tensorflow(text: str, rank: int | None, name: str, is_chief: bool):
    found = view(text)
    assert found is not None
    assert (found.rank, found.name, found.is_chief) == (rank, name, is_chief)
    with_chief = "chief" in json.loads(text)["cluster"]
    assert found.workers == (("x:1", "a:1", "b:1") if with_chief else ("a:1", "b:1", "c:1"))
    assert found.names == (
        ("chief", "worker 0", "worker 1") if with_chief else ("worker 0", "worker 1", "worker 2")
    )
    assert rank is None or found.names[rank] == name
    assert found.num_workers == (1 if rank is None else 3)
    assert found.source == "TF_CONFIG"


@pytest.mark.parametrize(
    "text", [None, "{}", '{"environment": "cloud"}', '{"task": {"type": "evaluator", "index": 0}}']
)
def test_no_cluster_is_one_worker(text: str | None):
    assert view(text) is None
    assert checked_cluster(None) is None


def test_a_resolver_may_return_a_dict():
    class Plain(resolvers.ClusterResolver):
        _task_type, _task_id = "worker", 1

        def cluster_spec(self):
            return WORKERS

        def master(self, task_type=None, task_id=None, rpc_layer=None):
            return ""

    found = checked_cluster(Plain())
    assert found is not None and found.rank == 1 and found.source == "Plain"


# --- wrong ones -----------------------------------------------------------------------------------


def with_address(address: str) -> str:
    return config({"worker": ["a:1", address]})


WRONG: dict[str, tuple[str, list[str]]] = {
    "empty": ("", ["TF_CONFIG is set, but empty", "Unset it"]),
    "single quotes": ("{'cluster': {}}", ["character 1", "^", "double quotes", "json.dumps"]),
    "no quotes": ("{cluster: {worker: [a:1]}}", ["not JSON", "{cluster:", "single quotes"]),
    "cut off": (config()[:-20], ["not JSON", "^", "cut off"]),
    "trailing comma": ('{"cluster": {},}', ["not JSON", "character 15", "^"]),
    "second line": ('{\n "cluster" {}}', ["line 2", ' "cluster" {}}', "^"]),
    "a key twice": (
        '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}',
        ["'worker' twice", "['a:1']"],
    ),
    "a list": ("[1, 2]", ["JSON object", "a list: [1, 2]"]),
    "cluster is a list": (config(["a:1"]), ["'cluster'", "a list: ['a:1']", '"worker": [']),
    "cluster is null": (config(None), ["'cluster'", "null"]),
    "job is a string": (config({"worker": "a:1"}), ["'worker'", "a string", 'Write ["a:1"]']),
    "address is a number": (config({"worker": ["a:1", 5]}), ["'worker'[1]", "a number: 5"]),
    "job with names": (config({"worker": {"one": "a:1"}}), ["index of a task", "'one'"]),
    "no cluster": ('{"task": {"type": "worker", "index": 1}}', ["no 'cluster'", "'task'"]),
    "empty cluster": (config({}), ["no 'cluster'", "unset TF_CONFIG"]),
    "no task": (json.dumps({"cluster": WORKERS}), ["task_type", '"task": {"type": "worker"']),
    "task is a string": (
        json.dumps({"cluster": WORKERS, "task": "worker"}),
        ["'task'", "a string"],
    ),
    "task without index": (
        json.dumps({"cluster": WORKERS, "task": {"type": "worker", "id": 1}}),
        ["no 'index'", "'id' is not read"],
    ),
    "task without type": (
        json.dumps({"cluster": WORKERS, "task": {"index": 1}}),
        ["task_type is not known", '"type": "worker"'],
    ),
    "type is a number": (config(task_type=1), ["'type'", "a number: 1"]),
    "index is a word": (config(index="first"), ["'index'", "'first'", "0 for the first"]),
    "index is a fraction": (config(index=1.0), ["'index'", "1.0"]),
    "index is true": (config(index=True), ["'index'", "True"]),
    "index is negative": (config(index=-1), ["'index'", "-1"]),
    "index of 5,000 digits": (
        config().replace('"index": 0', '"index": ' + "9" * 5000),
        ["a number of 5000 digits", "99999...", '"index": 0'],
    ),
    "index of 5,000 digits in a string": (config(index="9" * 5000), ["'index'", "0 for the first"]),
    "port of 5,000 digits": (
        with_address("b:" + "1" * 5000),
        ["worker 1", "5002 characters", "1 to 65535"],
    ),
    "nested deeply": ("[" * 200_000, ["inside each other", '"cluster": {"worker"']),
    "cluster nested deeply": (
        '{"cluster": ' + "[" * 200_000 + "]" * 200_000 + "}",
        ["inside each other", '"cluster": {"worker"'],
    ),
    "address nested": (
        '{"cluster": {"worker": [' + "[" * 400 + "]" * 400 + "]}}",
        ["'worker'[0]", "a list: [["],
    ),
    "index outside": (config(index=3), ["worker 3", "3 of that type", "Correct the index"]),
    "index of an empty job": (
        config({"chief": ["a:1"], "worker": []}),
        ["worker 0", "0 of that type"],
    ),
    "unknown type": (config(task_type="boss"), ["'boss'", "'chief', 'worker'"]),
    "type not in cluster": (config(task_type="chief"), ["no job 'chief'", "Add its address"]),
    "unknown job": (config({"workers": ["a:1"]}), ["'workers'", "Did you mean 'worker'"]),
    "master": (config({**WORKERS, "master": ["m:1"]}), ["'master'", "'chief' now"]),
    "two chiefs": (
        config({**WORKERS, "chief": ["x:1", "y:1"]}),
        ["2 tasks", "['x:1', 'y:1']"],
    ),
    "two evaluators": (
        config({**WORKERS, "evaluator": ["x:1", "y:1"]}),
        ["'evaluator'", "2 tasks"],
    ),
    "gaps": (config({"worker": {"0": "a:1", "3": "b:1"}}), ["gaps", "[0, 3]", "[1, 2]"]),
    "chief with a gap": (config({**WORKERS, "chief": {"1": "x:1"}}), ["'chief'", "not [0]"]),
    "ps": (config({**WORKERS, "ps": ["p:1"]}), ["'ps': ['p:1']", "leave 'ps' out"]),
    "nobody trains": (config({"evaluator": ["e:1"]}, "evaluator"), ["no 'worker' and no 'chief'"]),
    "no port": (with_address("host"), ["worker 1, 'host'", "no port", "'host:2222'"]),
    "no port, IPv6": (with_address("[::1]"), ["no port", "'[::1]:2222'"]),
    "IPv6 without brackets": (with_address("::1:2222"), ["more than one colon", "'[::1]:2222'"]),
    "empty address": (with_address(""), ["worker 1, ''", "no port"]),
    "scheme": (with_address("grpc://b:1"), ["scheme (grpc://)", "without: 'b:1'"]),
    "web address": (with_address("http://b:1/"), ["scheme (http://)", "without: 'b:1'"]),
    "path": (with_address("b:1/x"), ["port '1/x'", "1 to 65535"]),
    "port 0": (with_address("b:0"), ["port '0'", "1 to 65535"]),
    "port too large": (with_address("b:70000"), ["port '70000'", "'b:2222'"]),
    "port is a word": (with_address("b:http"), ["port 'http'"]),
    "port missing": (with_address("b:"), ["port ''"]),
    "no host": (with_address(":2222"), ["no host", "'localhost:2222'"]),
    "spaces": (with_address(" b:1"), ["' b'", "without spaces"]),
    "two addresses in one": (with_address("b,c:1"), ["'b,c'"]),
    "the same twice": (with_address("a:1"), ["worker 0 and worker 1", "'a:1'", "its own port"]),
    "the same in capitals": (with_address("A:1"), ["worker 0 and worker 1"]),
    "the same host by two names": (
        config({"chief": ["localhost:1"], "worker": ["127.0.0.1:1"]}),
        ["chief and worker 0", "same address"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_descriptions(case: str):
    text, words = WRONG[case]
    with pytest.raises(ClusterConfigError) as raised:
        view(text)
    message = str(raised.value)
    assert "TF_CONFIG" in message
    assert all(word in message for word in words), message
    assert len(message) < 700


def test_the_caret_is_under_the_mistake():
    text = '{"cluster": {"worker": ["a:1" "b:1"]}, "task": {"type": "worker", "index": 0}}'
    with pytest.raises(ClusterConfigError) as raised:
        view(text)
    _, line, caret = str(raised.value).splitlines()[:3]
    assert line[caret.index("^") :].startswith('"b:1"]')


def test_many_workers_do_not_fill_the_screen():
    many = [f"host{i}:1" for i in range(1000)]
    for text in (
        json.dumps({"cluster": many}),
        json.dumps({"cluster": {"worker": many}}),
        config({"worker": many}, index=1000),
        config({"worker": many}, "chief"),
        config({"chief": many}),
        config({"worker": many[:1], "ps": many[1:]}),
    ):
        with pytest.raises(ClusterConfigError) as raised:
            view(text)
        assert len(str(raised.value)) < 700


@pytest.mark.parametrize(
    ("resolver", "words"),
    [
        (
            lambda: resolvers.SimpleClusterResolver(rx.train.ClusterSpec(WORKERS)),
            ["SimpleClusterResolver", "Set task_type and task_id"],
        ),
        (
            lambda: resolvers.SimpleClusterResolver(
                rx.train.ClusterSpec(WORKERS), task_type="worker", task_id=5
            ),
            ["SimpleClusterResolver: this process is worker 5"],
        ),
    ],
)
def test_other_resolvers_are_named(resolver: Any, words: list[str]):
    with pytest.raises(ClusterConfigError) as raised:
        checked_cluster(resolver())
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize("cluster", [None, [], {"worker": "a:1"}, {"worker": [None]}])
def test_a_resolver_that_returns_something_else(cluster: Any):
    class Odd(resolvers.ClusterResolver):
        _task_type, _task_id = "worker", 0

        def cluster_spec(self):
            return cluster

        def master(self, task_type=None, task_id=None, rpc_layer=None):
            return ""

    with pytest.raises(ClusterConfigError, match="^Odd: "):
        checked_cluster(Odd())


def test_something_that_is_no_resolver():
    with pytest.raises(TypeError, match="SimpleClusterResolver"):
        checked_cluster(rx.train.ClusterSpec(WORKERS))  # type: ignore[arg-type]


# --- addresses ------------------------------------------------------------------------------------


@given(st.from_regex(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", fullmatch=True), st.integers(1, 65535))
def test_names_and_ports_are_taken_apart(host: str, port: int):
    assert split_address(f"{host}:{port}") == (host, port)


@given(st.ip_addresses(v=6).filter(lambda ip: not ip.is_link_local), st.integers(1, 65535))
def test_ipv6_addresses_are_taken_apart(ip: Any, port: int):
    assert split_address(f"[{ip}]:{port}") == (str(ip), port)


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%eth0"])
def test_addresses_that_hold_for_one_cable_are_refused(host: str):
    with pytest.raises(ClusterConfigError, match="link-local.*Write a name"):
        split_address(f"[{host}]:2222")


@given(st.text(max_size=20))
def test_any_other_text_is_an_error_that_shows_it(text: str):
    try:
        host, port = split_address(text)
    except ClusterConfigError as error:
        assert repr(text) in str(error)
    else:
        assert (
            host
            and 1 <= port <= 65535
            and text in (f"{host}:{port}", f"[{host}]:{port}")
            or (text.rpartition(":")[2].lstrip("0") == str(port))
        )


@given(st.text(max_size=60) | st.builds(lambda at: config()[:at], st.integers(0, 80)))
def test_no_text_in_tf_config_escapes(text: str):
    if "\0" in text:
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    try:
        view(text)
    except ClusterConfigError as error:
        assert str(error)
