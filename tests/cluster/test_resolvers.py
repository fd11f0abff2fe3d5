"""Resolvers answer as TensorFlow's do; and where they do not, on purpose."""

import ast
import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import replicax as rx
from replicax._src import cluster
from tests.cluster.questions import QUESTIONS, answer

resolvers = rx.distribute.cluster_resolver
RECORDED = json.loads(
    (Path(__file__).parent / "recorded" / "resolvers.json").read_text(encoding="utf-8")
)
SOURCE = Path(inspect.getfile(cluster)).parent


def test_all_questions_are_recorded():
    assert QUESTIONS.keys() == RECORDED.keys()


@pytest.mark.parametrize("group", sorted({name.split(":")[0] for name in QUESTIONS}))
def test_answers_are_those_of_tensorflow(group: str):
    names = [name for name in QUESTIONS if name.split(":")[0] == group]
    assert {name: answer(rx, name) for name in names} == {name: RECORDED[name] for name in names}


def test_jax_is_not_loaded_at_the_top_of_a_file():
    """A description is read, and found to be wrong, before JAX starts anything."""
    for path in [*SOURCE.glob("resolvers/*.py"), SOURCE / "_view.py", SOURCE / "_spec.py"]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "jax" not in [name.name for name in node.names], path


# --- the base class -------------------------------------------------------------------------------


class Own(resolvers.ClusterResolver):
    """What a user may write, without a constructor."""

    def cluster_spec(self):
        return rx.train.ClusterSpec({"worker": ["a:1", "b:1"]})

    def master(self, task_type=None, task_id=None, rpc_layer=None):
        return "a:1"


def test_a_resolver_of_the_users_own():
    own = Own()
    assert (own.task_type, own.task_id, own.rpc_layer, own.environment) == (None, None, None, "")
    own.task_type, own.task_id, own.rpc_layer = "worker", 1, "grpc"
    assert (own.task_type, own.task_id, own.rpc_layer) == ("worker", 1, "grpc")


def test_cpus_are_no_accelerators():
    own = Own()
    own.task_type, own.task_id = "worker", 0
    assert own.num_accelerators() == {}
    assert own.num_accelerators("worker", 1) == {} == own.num_accelerators("worker", 7)


def test_accelerators_are_counted_by_worker(monkeypatch: pytest.MonkeyPatch):
    import jax

    def device(platform: str, process: int) -> Any:
        return SimpleNamespace(platform=platform, process_index=process)

    local = [device("cpu", 0), device("gpu", 0), device("cuda", 0)]
    monkeypatch.setattr(jax, "local_devices", lambda: local)
    monkeypatch.setattr(jax, "devices", lambda: [*local, device("tpu", 1)])
    own = Own()
    own.task_type, own.task_id = "worker", 0
    assert own.num_accelerators() == {"GPU": 2} == own.num_accelerators("worker", 0)
    assert own.num_accelerators("worker", 1) == {"TPU": 1}


# --- unions ---------------------------------------------------------------------------------------


def test_a_task_id_of_zero_overrides():
    """In TensorFlow 0 is taken for "not given"."""
    spec = rx.train.ClusterSpec({"worker": ["a:1", "b:1"]})
    first = resolvers.SimpleClusterResolver(spec, task_type="worker", task_id=1)
    assert resolvers.UnionResolver(first, task_id=0).task_id == 0


# --- Kubernetes -----------------------------------------------------------------------------------


def pod(name: str, phase: str = "Running", **ips: str) -> Any:
    return SimpleNamespace(
        metadata=SimpleNamespace(name=name), status=SimpleNamespace(phase=phase, **ips)
    )


class Pods:
    """A client with pods by label."""

    def __init__(self, **pods: list[Any]) -> None:
        self._pods = pods

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        return SimpleNamespace(items=self._pods[label_selector])


def test_kubernetes_pods_are_numbered_by_name():
    client = Pods(
        w=[
            pod("w-10", pod_ip="10.0.0.10", host_ip="1.1.1.1"),
            pod("w-2", pod_ip="10.0.0.2", host_ip="1.1.1.1"),
        ],
        v=[pod("v", pod_ip="fd00::1")],
        p=[pod("p", host_ip="1.1.1.3")],
    )
    resolver = resolvers.KubernetesClusterResolver(
        {"worker": ["w", "v"], "ps": ["p"]}, override_client=client
    )
    assert resolver.cluster_spec().as_dict() == {
        "worker": ["10.0.0.2:8470", "10.0.0.10:8470", "[fd00::1]:8470"],
        "ps": ["1.1.1.3:8470"],
    }
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None, None, "grpc")
    assert resolver.master() == ""
    resolver.task_type, resolver.task_id = "worker", 1
    assert resolver.master() == "grpc://10.0.0.10:8470"
    assert resolver.master("ps", 0, "http") == "http://1.1.1.3:8470"


def test_kubernetes_pods_must_run():
    client = Pods(**{"job-name=tensorflow": [pod("w-0", "Pending", pod_ip="1.1.1.1")]})
    resolver = resolvers.KubernetesClusterResolver(override_client=client)
    with pytest.raises(RuntimeError, match='Pod "w-0" is not running; phase: "Pending"'):
        resolver.cluster_spec()


def test_kubernetes_is_asked_where_the_program_runs(monkeypatch: pytest.MonkeyPatch):
    loaded = []
    config = SimpleNamespace(
        load_incluster_config=lambda: loaded.append("within"),
        load_kube_config=lambda: loaded.append("off"),
    )
    client = Pods(**{"job-name=tensorflow": [pod("w-0", pod_ip="1.1.1.1")]})
    monkeypatch.setitem(sys.modules, "kubernetes", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "kubernetes.config", config)
    monkeypatch.setitem(sys.modules, "kubernetes.client", SimpleNamespace(CoreV1Api=lambda: client))
    resolver = resolvers.KubernetesClusterResolver()
    assert resolver.cluster_spec().as_dict() == {"worker": ["1.1.1.1:8470"]}
    resolvers.KubernetesClusterResolver(
        executable_location=resolvers.KubernetesExecutableLocation.OFF_CLUSTER
    )
    assert loaded == ["within", "off"]
    with pytest.raises(ValueError, match="WITHIN_CLUSTER or OFF_CLUSTER"):
        resolvers.KubernetesClusterResolver(executable_location="here")  # type: ignore[arg-type]


def test_kubernetes_package_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ImportError, match="pip install kubernetes"):
        resolvers.KubernetesClusterResolver()


# --- Compute Engine -------------------------------------------------------------------------------


class Engine:
    """The Compute Engine API, with two pages of instances."""

    _pages = [
        {"items": [{"instance": "https://x/zones/z/instances/b"}]},
        {"items": [{"instance": "https://x/zones/z/instances/a"}]},
        {},
    ]
    _ips = {"a": "10.0.0.1", "b": "10.0.0.2"}

    def instanceGroups(self):
        return self

    def instances(self):
        return self

    def listInstances(self, **wanted: Any):
        assert wanted == {
            "project": "p",
            "zone": "z",
            "instanceGroup": "g",
            "body": {"instanceState": "RUNNING"},
            "orderBy": "name",
        }
        return self._page(0)

    def listInstances_next(self, previous_request: Any, previous_response: Any):
        number = previous_request.number + 1
        return self._page(number) if number < len(self._pages) else None

    def _page(self, number: int):
        return SimpleNamespace(number=number, execute=lambda: self._pages[number])

    def get(self, project: str, zone: str, instance: str):
        found = {"networkInterfaces": [{"networkIP": self._ips[instance]}]}
        return SimpleNamespace(execute=lambda: found)


def test_compute_engine_instances():
    resolver = resolvers.GCEClusterResolver("p", "z", "g", 8470, task_id=1, service=Engine())
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470", "10.0.0.2:8470"]}
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 1, "grpc")
    assert resolver.master() == "grpc://10.0.0.2:8470"
    assert resolver.master("worker", 0, "http") == "http://10.0.0.1:8470"
    resolver.task_id = 0
    assert resolver.task_id == 0
    with pytest.raises(RuntimeError, match="cannot reset the task_type"):
        resolver.task_type = "ps"


def test_compute_engine_package_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "googleapiclient", None)
    with pytest.raises(ImportError, match="pip install google-api-python-client"):
        resolvers.GCEClusterResolver("p", "z", "g", 8470)


# --- TPU ------------------------------------------------------------------------------------------


@pytest.fixture
def no_tpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HOSTNAMES", "ID"):
        monkeypatch.delenv(f"TPU_WORKER_{name}", raising=False)
    for name in ("TPU_NAME", "MEGASCALE_NUM_SLICES", "REPLICAX_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("tpu", ["", None, "local"])
def test_one_tpu_host_is_no_cluster(tpu: str | None, no_tpu: pytest.MonkeyPatch):
    resolver = resolvers.TPUClusterResolver(tpu=tpu)
    assert resolver.cluster_spec() == {} and resolver.master() == "" == resolver.get_master()
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)
    assert resolver.get_job_name() == "worker" and resolver.environment == ""
    assert resolver.get_coordination_service_leader() == "/job:worker/task:0"
    assert resolver.num_accelerators() == {"TPU": 0}
    assert isinstance(resolvers.TPUClusterResolver.connect(tpu), resolvers.TPUClusterResolver)


def test_other_devices_stand_in_for_tpus(no_tpu: pytest.MonkeyPatch):
    import jax

    facts = resolvers.TPUClusterResolver("").get_tpu_system_metadata()
    assert facts.num_cores == len(facts.devices) == jax.device_count()
    assert (facts.num_hosts, facts.num_of_cores_per_host) == (1, jax.local_device_count())


def test_a_tpu_pod(no_tpu: pytest.MonkeyPatch):
    no_tpu.setenv("TPU_WORKER_HOSTNAMES", "t0, t1:99,t2")
    no_tpu.setenv("TPU_WORKER_ID", "2")
    resolver = resolvers.TPUClusterResolver()
    assert resolver.cluster_spec().as_dict() == {"worker": ["t0:8888", "t1:99", "t2:8888"]}
    assert (resolver.task_type, resolver.task_id) == ("worker", 2)
    assert resolver.master() == "grpc://t2:8888" and resolver.master("worker", 1) == "grpc://t1:99"
    assert resolvers.TPUClusterResolver("local").cluster_spec() == {}
    assert resolvers.TPUClusterResolver("my-tpu").task_id == 2
    coordinated = resolvers.TPUClusterResolver(coordinator_address="c:1")
    assert coordinated.cluster_spec().as_dict()["coordinator"] == ["c:1"]


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        ({"tpu": "grpc://1.2.3.4:8470"}, {}, ["another machine", "tpu=''"]),
        ({"tpu": "my-tpu"}, {}, ["'my-tpu'", "runs on the TPU's hosts"]),
        ({"tpu": "my-tpu"}, {"TPU_NAME": "other", "TPU_WORKER_ID": "0"}, ["'my-tpu'"]),
        ({"coordinator_name": "c"}, {}, ["coordinator_address"]),
        ({}, {"TPU_WORKER_HOSTNAMES": "a,b"}, ["2 hosts", "TPU_WORKER_ID is not set"]),
        ({}, {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "2"}, ["is 2", "0 to 1"]),
        ({}, {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "x"}, ["TPU_WORKER_ID", "'x'"]),
        ({}, {"TPU_WORKER_HOSTNAMES": "a,,b", "TPU_WORKER_ID": "0"}, ["empty name", "'a,,b'"]),
        (
            {},
            {
                "TPU_WORKER_HOSTNAMES": "a,b",
                "TPU_WORKER_ID": "0",
                "MEGASCALE_NUM_SLICES": "2",
            },
            ["one slice", "TF_CONFIG"],
        ),
        (
            {},
            {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0", "REPLICAX_PORT": "many"},
            ["REPLICAX_PORT", "'many'"],
        ),
    ],
)
def test_wrong_tpus(
    arguments: dict[str, Any],
    environ: dict[str, str],
    words: list[str],
    no_tpu: pytest.MonkeyPatch,
):
    for name, value in environ.items():
        no_tpu.setenv(name, value)
    with pytest.raises(rx.errors.ClusterConfigError) as raised:
        resolvers.TPUClusterResolver(**arguments)
    assert all(word in str(raised.value) for word in words), str(raised.value)
