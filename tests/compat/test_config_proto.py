"""`update_config_proto`, with a configuration of ours and with any message like TensorFlow's."""

import copy
import importlib.util
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from tests.compat.older_strategies import OLDER, distribute
from tests.old_names import with_old_names
from tests.under_test import cpus

pytestmark = with_old_names
ConfigProto = rx.compat.v1.ConfigProto

# What TensorFlow's strategies set, and print.
ISOLATED = "isolate_session_state: true\n"
COLLECTIVE = """graph_options {
  rewrite_options {
    scoped_allocator_optimization: 1
    scoped_allocator_opts {
      enable_op: "CollectiveReduce"
    }
  }
}
"""
SET = {
    "one_device": "",
    "mirrored_1": ISOLATED,
    "mirrored_2": ISOLATED,
    "mirrored_3": ISOLATED,
    "central_storage_2": ISOLATED,
    "multi_worker_alone": COLLECTIVE,
    "tpu": ISOLATED,
}


@pytest.mark.parametrize("name", OLDER)
def test_a_copy_is_adapted(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = ConfigProto()
    updated = OLDER[name]().update_config_proto(config)
    assert str(updated) == SET[name]
    assert updated is not config and config == ConfigProto()


def test_what_was_set_stays():
    config = ConfigProto(
        allow_soft_placement=True,
        device_count={"GPU": 2},
        gpu_options=rx.compat.v1.GPUOptions(allow_growth=True),
        graph_options=rx.compat.v1.GraphOptions(
            optimizer_options=rx.compat.v1.OptimizerOptions(
                global_jit_level=rx.compat.v1.OptimizerOptions.ON_1
            )
        ),
    )
    config.inter_op_parallelism_threads = 4
    updated = distribute.MirroredStrategy(cpus(2)).update_config_proto(config)
    assert updated.isolate_session_state and not config.isolate_session_state
    updated.isolate_session_state = False
    assert updated == config and isinstance(updated, ConfigProto)
    updated.gpu_options.allow_growth = False
    assert config.gpu_options.allow_growth


def test_it_can_be_pickled():
    config = ConfigProto(device_count={"GPU": 2})
    config.cluster_def.job.add(name="worker").tasks[0] = "a:1"
    for each in (config, config.cluster_def.job[0]):
        copied = pickle.loads(pickle.dumps(each))
        assert copied == each and copied is not each
    assert isinstance(pickle.loads(pickle.dumps(config)), ConfigProto)


def test_nccl_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    strategy = distribute.experimental.MultiWorkerMirroredStrategy("nccl")
    assert strategy.update_config_proto(ConfigProto()).experimental.collective_nccl


def test_hosts_of_a_tpu_are_named():
    config = ConfigProto()
    config.cluster_def.job.add(name="stale")

    class Hosts(distribute.cluster_resolver.TPUClusterResolver):
        def cluster_spec(self) -> Any:
            return rx.train.ClusterSpec({"worker": ["a:8470", "b:8470"]})

    strategy: Any = distribute.experimental.TPUStrategy()
    strategy.extended._cluster_resolver = Hosts("")
    (job,) = strategy.update_config_proto(config).cluster_def.job
    assert job.name == "worker" and dict(job.tasks) == {0: "a:8470", 1: "b:8470"}


class Message:
    """A message of somebody else, as far as a strategy looks at it."""

    def __init__(self) -> None:
        self.isolate_session_state = False
        self.kept = [1]


def test_any_message_with_the_fields_will_do():
    message = Message()
    updated: Any = distribute.MirroredStrategy(cpus(2)).update_config_proto(message)
    assert updated.isolate_session_state and not message.isolate_session_state
    assert updated.kept == [1] and updated.kept is not message.kept


def test_a_message_of_tensorflow():
    """In a process of its own; needs TensorFlow, which most of the time is not there."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    program = (
        "import tensorflow as tf, replicax as rx\n"
        "config = tf.compat.v1.ConfigProto(allow_soft_placement=True)\n"
        "strategy = rx.compat.v1.distribute.MirroredStrategy()\n"
        "updated = strategy.update_config_proto(config)\n"
        "assert type(updated) is type(config)\n"
        "assert updated.isolate_session_state and not config.isolate_session_state\n"
        "ours = rx.compat.v1.ConfigProto.FromString(updated.SerializeToString())\n"
        "assert str(ours) == str(updated)\n"
    )
    environment = {"PYTHONPATH": str(Path(rx.__file__).parent.parent), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=500, check=True)


@pytest.mark.parametrize("wrong", [None, {}, 3, ConfigProto, "config"], ids=str)
def test_other_things_are_refused(wrong: Any):
    strategy = distribute.MirroredStrategy(cpus(2))
    with pytest.raises(TypeError, match=r"rx\.compat\.v1\.ConfigProto\(\)"):
        strategy.update_config_proto(wrong)


def test_bytes_of_fields_that_are_not_known_are_kept():
    # Field 18 of TensorFlow's message, and 7: allow_soft_placement.
    written = bytes([18 << 3 & 0x7F | 0x80 | 2, 18 >> 4, 2, 0x20, 1]) + bytes([7 << 3, 1])
    config = ConfigProto.FromString(written)
    assert config.allow_soft_placement
    again = copy.deepcopy(config).SerializeToString()
    assert sorted(again) == sorted(written)


def test_protobuf_is_loaded_by_the_first_message_only():
    program = (
        "import sys, json, replicax as rx\n"
        "before = 'google.protobuf' in sys.modules\n"
        "rx.compat.v1.ConfigProto()\n"
        "print(json.dumps([before, 'google.protobuf' in sys.modules]))\n"
    )
    environment = {
        "PYTHONPATH": str(Path(rx.__file__).parent.parent),
        "JAX_PLATFORMS": "cpu",
        "PATH": "",
    }
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        timeout=500,
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(run.stdout) == [False, True]
