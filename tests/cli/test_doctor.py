"""`replicax doctor`: what it finds, what it advises, and that it always comes to an end."""

import io
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from replicax._src.cli import _examinations, _probes
from replicax._src.cli._doctor import PARTS, doctor
from replicax._src.cli._examinations import (
    Diagnosis,
    Part,
    Problem,
    examine_devices,
    examine_versions,
    examine_workers,
)
from replicax._src.cli._network import examine_cluster
from tests.cli.launches import environment
from tests.processes import free_addresses


def test_doctor_finds_this_machine_well():
    result = subprocess.run(
        [sys.executable, "-m", "replicax", "doctor", "--json"],
        env={**environment(), "JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    found = json.loads(result.stdout)
    assert set(found["parts"]) == {part.name for part in PARTS}
    assert found["parts"]["versions"]["versions"]["python"]
    devices = found["parts"]["devices"]
    assert len(devices["devices"]) == 2 and devices["gigabytes_per_second"] > 0
    assert found["parts"]["workers"]["gigabytes_per_second"] > 0
    assert result.returncode == (1 if found["problems"] else 0)


def parts(*examinations: object) -> list[Part]:
    return [
        Part(f"part{number}", lambda _, each=each: each(), 10, "unplug it")  # type: ignore
        for number, each in enumerate(examinations)
    ]


def test_advice_comes_last():
    out = io.StringIO()
    status = doctor(
        parts=parts(
            lambda: Diagnosis(lines=["all is well"]),
            lambda: Diagnosis(lines=["look"], problems=[Problem("it is broken", "Buy a new one.")]),
        ),
        to=out,
    )
    assert status == 1
    assert out.getvalue().splitlines() == [
        "ok  part0       all is well",
        "!!  part1       look",
        "                it is broken",
        "",
        "What is wrong, and how to fix it:",
        "1. part1: it is broken",
        "   Buy a new one.",
    ]


def test_nothing_wrong():
    out = io.StringIO()
    assert doctor(parts=parts(lambda: Diagnosis(lines=["fine"])), to=out) == 0
    assert out.getvalue().endswith("Nothing is wrong.\n")


def test_part_that_hangs_is_named():
    release = threading.Event()

    def hang() -> Diagnosis:
        release.wait(60)
        return Diagnosis()

    out = io.StringIO()
    try:
        part = Part("driver", lambda _: hang(), 0.05, "Reload the driver.")
        assert doctor(as_json=True, parts=[part, *parts(lambda: Diagnosis())], to=out) == 1
    finally:
        release.set()
    found = json.loads(out.getvalue())
    assert found["problems"] == [
        {"part": "driver", "text": "no answer after 0.05 s", "fix": "Reload the driver."}
    ]
    assert found["parts"]["part0"]["ok"]


def test_part_that_breaks_is_named():
    out = io.StringIO()
    assert doctor(parts=parts(lambda: 1 / 0), to=out) == 1
    assert "ZeroDivisionError" in out.getvalue()


def test_device_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_probes, "_DEVICES", "import signal; signal.pause()")
    finding = examine_devices({}, timeout=0.3)
    assert "no end after 0.3 s" in finding.problems[0].text
    assert "nvidia-smi" in finding.problems[0].fix


def test_device_process_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_probes, "_DEVICES", "raise SystemExit('no CUDA driver')")
    assert "no CUDA driver" in examine_devices({}, timeout=500).problems[0].text


def test_worker_process_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch):
    crash = "'gloo broke\\n*** stack trace: ***\\n    @ 0x7f PyObject_Call'"
    program = f"import sys, signal; sys.exit({crash}) if sys.argv[3] == '1' else signal.pause()"
    monkeypatch.setattr(_probes, "_TWO_WORKERS", program)
    assert "gloo broke" in examine_workers(timeout=500).problems[0].text


def test_gpu_that_jax_does_not_see(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(
        _probes,
        "_DEVICES",
        """print('{"platform": "cpu", "devices": [{"platform": "cpu", "kind": "cpu"}]}')""",
    )
    finding = examine_devices({"gpus": Diagnosis(facts={"gpus": ["0, A100"]})}, timeout=500)
    assert 'pip install -U "jax[cuda12]"' in finding.problems[0].fix


def test_versions_that_do_not_belong_together(monkeypatch: pytest.MonkeyPatch):
    versions = {"jax": "0.10.2", "jaxlib": "0.9.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise _examinations.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(_examinations.importlib.metadata, "version", version)
    assert "jax 0.10.2 and jaxlib 0.9.1" in examine_versions({}).problems[0].text


# --- the cluster ----------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch):
    """Sets TF_CONFIG."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TPU_", "REPLICAX_")):
            monkeypatch.delenv(name)

    def set_it(workers: list[str], index: int = 0) -> None:
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))

    return set_it


def test_no_cluster(cluster: object, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    finding = examine_cluster({})
    assert finding.lines == ["none in the environment: one worker"] and not finding.problems


def test_reachable_cluster(cluster):
    with socket.create_server(("127.0.0.1", 0)) as other:
        cluster([*free_addresses(1), f"127.0.0.1:{other.getsockname()[1]}"])
        finding = examine_cluster({})
    assert not finding.problems
    assert "from TF_CONFIG: this is worker 0, of 2 workers" in finding.lines
    assert finding.lines[-2].endswith("this worker, its port is free")
    assert finding.lines[-1].endswith("127.0.0.1, listens")


def test_address_that_is_not_this_host_is_told_of_the_first_worker(
    cluster, monkeypatch: pytest.MonkeyPatch
):
    port = free_addresses(1)[0].rpartition(":")[2]
    cluster([f"203.0.113.1:{port}", f"localhost:{port}"])
    (problem,) = examine_cluster({}).problems
    assert "worker 0 cannot listen at its address: '203.0.113.1' is not" in problem.text
    assert "REPLICAX_LISTEN_HOST" in problem.text and "correct the address" in problem.fix
    monkeypatch.setenv("REPLICAX_LISTEN_HOST", "0.0.0.0")
    assert not examine_cluster({}).problems


def test_port_in_use_names_who_has_it(cluster):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        cluster([f"127.0.0.1:{holder.getsockname()[1]}"])
        finding = examine_cluster({})
    assert "is in use" in finding.problems[0].text
    if sys.platform.startswith("linux"):
        assert f"pid {os.getpid()}" in finding.problems[0].text


def test_unknown_host(cluster):
    cluster(["127.0.0.1:2222", "no-such-host.invalid:2222"], index=0)
    texts = [problem.text for problem in examine_cluster({}).problems]
    assert any("'no-such-host.invalid' of worker 1 cannot be resolved" in text for text in texts)


def test_first_worker_on_its_loopback_is_told(cluster):
    cluster(["127.0.1.1:2222", "no-such-host.invalid:2222"], index=0)
    (problem,) = (each for each in examine_cluster({}).problems if "leads to" in each.text)
    assert "leads to 127.0.1.1 here, where no other host finds it" in problem.text
    assert "/etc/hosts" in problem.fix


def test_malformed_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["host"]}')
    problem = examine_cluster({}).problems[0]
    assert "not understood" in problem.text and "TF_CONFIG" in problem.fix
