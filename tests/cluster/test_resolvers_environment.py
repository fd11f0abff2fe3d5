"""Which cluster the environment describes: by hand, in a Slurm step, in Kubernetes, on a TPU pod.

The settings of docs/clusters.md are taken from that page: a manifest is read as Kubernetes would
read it, and the pods that it describes must find each other.
"""

import re
from collections.abc import Mapping
from typing import Any

import pytest

import replicax as rx
from replicax._src.cluster import checked_cluster, resolver_from_environment
from replicax._src.cluster.resolvers import _slurm
from tests.cluster.questions import environment
from tests.guards import ROOT

resolvers = rx.distribute.cluster_resolver
PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")

TF_CONFIG = {
    "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
}
TPU = {"TPU_WORKER_HOSTNAMES": "t0,t1", "TPU_WORKER_ID": "1"}
LISTED = {"REPLICAX_WORKER_HOSTNAMES": "w-[0-1].train", "JOB_COMPLETION_INDEX": "1"}


def srun(nodes: dict[str, int], first_node: str = "") -> list[dict[str, str]]:
    """Returns what `srun` sets for each task, of those variables that matter here."""
    counts = list(nodes.values())
    job = {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": str(sum(counts)),
        "SLURM_STEP_NUM_TASKS": str(sum(counts)),
        "SLURM_STEP_NODELIST": first_node or ",".join(nodes),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, counts)),
        "SLURM_DISTRIBUTION": "block",
        "CUDA_VISIBLE_DEVICES": "",
    }
    places = [(node, local) for node, count in nodes.items() for local in range(count)]
    return [
        job | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURMD_NODENAME": node}
        for rank, (node, local) in enumerate(places)
    ]


@pytest.fixture(autouse=True)
def nothing_was_set_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_slurm, "_replaced", None)


def found(environ: Mapping[str, str]) -> tuple[str, Any]:
    """Returns the class of the resolver and the view, in an environment."""
    with environment(environ):
        resolver = resolver_from_environment()
        return type(resolver).__name__, checked_cluster(resolver)


# --- which ----------------------------------------------------------------------------------------


def test_the_first_of_four_decides():
    step = srun({"n1": 1, "n2": 1})[1]
    assert found({})[0] == "NoneType"
    assert found(TPU)[0] == "TPUClusterResolver"
    assert found(TPU | LISTED)[1].source == "REPLICAX_WORKER_HOSTNAMES"
    assert found(TPU | LISTED | step)[0] == "SlurmClusterResolver"
    assert found(TPU | LISTED | step | TF_CONFIG)[0] == "TFConfigClusterResolver"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"TF_CONFIG": "{}"},
        srun({"n1": 1})[0],
        # A batch script without srun: a job of four tasks, but this is none of them.
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
        # The pods of an Indexed Job may have nothing to do with each other.
        {"JOB_COMPLETION_INDEX": "3"},
        {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"},
        {"TPU_WORKER_ID": "0"},
        # How to train alone inside a step.
        srun({"n1": 2})[1] | {"TF_CONFIG": "{}"},
    ],
)
def test_one_worker(environ: dict[str, str]):
    assert found(environ)[1] is None


# --- Slurm ----------------------------------------------------------------------------------------


def test_the_tasks_of_a_step_agree():
    step = srun({"n9": 2, "n10": 1}, "n[9-10]")
    views = [found(task)[1] for task in step]
    assert [view.rank for view in views] == [0, 1, 2]
    assert len({view.workers for view in views}) == 1
    hosts = [address.partition(":")[0] for address in views[0].workers]
    assert hosts == [task["SLURMD_NODENAME"] for task in step]


def test_jobs_on_one_node_have_their_own_ports():
    step = srun({"n1": 2})[0]
    ports = set()
    for job in ("4711", "4712", "99999999"):
        ports |= set(found(step | {"SLURM_JOB_ID": job})[1].workers)
    ports |= set(found(step | {"SLURM_STEP_ID": "7"})[1].workers)
    assert len(ports) == 8
    assert all(16384 <= int(address.partition(":")[2]) < 32768 for address in ports)
    assert found(step | {"REPLICAX_PORT": "5000"})[1].workers == ("n1:5000", "n1:5001")


def test_a_broken_step_is_no_silent_single_worker():
    step = srun({"n1": 1, "n2": 1})[0]
    del step["SLURM_STEP_NODELIST"]
    with pytest.raises(rx.errors.ClusterConfigError, match="SLURM_STEP_NODELIST not found"):
        found(step)
    with pytest.raises(rx.errors.ClusterConfigError, match="--distribution=block"):
        found(srun({"n1": 2, "n2": 2})[1] | {"SLURMD_NODENAME": "n2"})


# --- listed hosts ---------------------------------------------------------------------------------


def test_listed_hosts():
    name, view = found(LISTED)
    assert view.workers == ("w-0.train:8888", "w-1.train:8888") and view.rank == 1
    assert found(LISTED | {"REPLICAX_WORKER_ID": "0"})[1].rank == 0  # before JOB_COMPLETION_INDEX
    assert found(LISTED | {"REPLICAX_PORT": "99"})[1].workers[0] == "w-0.train:99"
    listed = {"REPLICAX_WORKER_HOSTNAMES": "a:1, b, [::1]:3", "REPLICAX_WORKER_ID": "2"}
    with pytest.raises(rx.errors.ClusterConfigError, match="Invalid hostlist"):
        found(listed)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"REPLICAX_WORKER_HOSTNAMES": "a,b"}, ["REPLICAX_WORKER_ID", "0 for the first"]),
        (LISTED | {"JOB_COMPLETION_INDEX": "2"}, ["JOB_COMPLETION_INDEX is 2", "2 workers"]),
        (LISTED | {"JOB_COMPLETION_INDEX": ""}, ["JOB_COMPLETION_INDEX", "''"]),
        (LISTED | {"REPLICAX_WORKER_HOSTNAMES": "w-[0-"}, ["REPLICAX_WORKER_HOSTNAMES", "w-[0-"]),
        (LISTED | {"REPLICAX_WORKER_HOSTNAMES": "a:1,a:1"}, ["same address", "a:1"]),
        (LISTED | {"REPLICAX_PORT": "x"}, ["REPLICAX_PORT", "'x'"]),
    ],
)
def test_wrong_lists(environ: dict[str, str], words: list[str]):
    with pytest.raises(rx.errors.ClusterConfigError) as raised:
        found(environ)
    assert all(word in str(raised.value) for word in words), str(raised.value)


# --- the page -------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_page_names_every_variable():
    source = ROOT / "src" / "replicax" / "_src" / "cluster" / "resolvers"
    text = "".join((source / name).read_text() for name in ("_environment.py", "_tpu.py"))
    ours = set(re.findall(r"\b(?:REPLICAX|TPU|MEGASCALE|JOB)_[A-Z_]+\b", text))
    assert {name for name in ours if name not in PAGE} == set()


def manifests() -> list[list[dict[str, Any]]]:
    yaml = pytest.importorskip("yaml")
    return [list(yaml.safe_load_all(text)) for text in blocks("yaml")]


def pods(job: dict[str, Any]) -> list[dict[str, str]]:
    """Returns the environment of each pod of an Indexed Job, as Kubernetes makes it."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    return [pod_environment(container["env"], i) for i in range(job["spec"]["completions"])]


def pod_environment(variables: list[dict[str, Any]], index: int) -> dict[str, str]:
    environ: dict[str, str] = {}
    for each in variables:
        if "valueFrom" in each:
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            environ[each["name"]] = str(index)
        else:  # $(NAME) stands for a variable that came before
            value = each["value"]
            for name in re.findall(r"\$\((\w+)\)", value):
                value = value.replace(f"$({name})", environ[name])
            environ[each["name"]] = value
    environ.setdefault("JOB_COMPLETION_INDEX", str(index))  # added at the end
    return environ


def test_the_manifests_are_jobs_with_a_service():
    for service, job in manifests():
        assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert (job["kind"], job["spec"]["completionMode"]) == ("Job", "Indexed")
        assert job["spec"]["completions"] == job["spec"]["parallelism"] > 1
        pod = job["spec"]["template"]["spec"]
        assert pod["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}


def test_the_pods_of_the_manifests_find_each_other():
    assert len(manifests()) == 2
    for service, job in manifests():
        views = [found(environ)[1] for environ in pods(job)]
        assert [view.rank for view in views] == list(range(job["spec"]["completions"]))
        assert len({view.workers for view in views}) == 1
        # The names that Kubernetes gives the pods of an Indexed Job with a subdomain.
        assert [address.partition(":")[0] for address in views[0].workers] == [
            f"{job['metadata']['name']}-{i}.{service['metadata']['name']}"
            for i in range(len(views))
        ]


def test_the_batch_script_starts_one_task_for_each_place():
    (script,) = (text for text in blocks("bash") if "#SBATCH" in text)
    nodes, tasks = (
        int(re.search(rf"#SBATCH --{name}=(\d+)", script)[1])  # type: ignore[index]
        for name in ("nodes", "ntasks-per-node")
    )
    step = srun({f"n{i}": tasks for i in range(1, nodes + 1)}, f"n[1-{nodes}]")
    assert [found(task)[1].rank for task in step] == list(range(nodes * tasks))
    assert "srun" in script and "--distribution=block" in script
