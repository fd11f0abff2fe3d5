"""`replicax plan`: what it says of a script, and that nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import replicax as rx
from replicax._src.cli._examinations import Diagnosis, examine_plans
from replicax._src.cli._plan import _bytes
from replicax._src.cli.main import main
from tests.cli.launches import environment
from tests.forks import interpreter

SCRIPT = """
import os, pathlib, subprocess, sys, tempfile, threading
import h5py
import jax, jax.numpy as jnp, numpy as np, optax
import replicax as rx

print("words of the script")
os.makedirs("logs", exist_ok=True)
pathlib.Path("logs/losses.txt").write_text("begun")
rx.io.gfile.makedirs("logs/more")
with tempfile.NamedTemporaryFile(delete=False) as file:
    file.write(b"new")
os.replace(file.name, "mine.txt")
os.symlink(file.name, "link")
with h5py.File("mine.txt", "w") as weights:
    weights["kernel"] = np.zeros(3)
np.savez("arrays.npz", np.zeros(3))
list(rx.data.Dataset.range(3).cache("cached"))
subprocess.run([sys.executable, "-c", "open('from_another', 'w')"])
threading.Thread(target=threading.Event().wait).start()  # never ends
assert sys.argv[1:] in ([], ["--layers", "2"])
strategy = rx.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
ROWS = 8 * strategy.num_replicas_in_sync
with strategy.scope():
    kernel = rx.Variable(jax.random.normal(jax.random.key(0), (512, 512)), name="kernel")
    optimizer = rx.Optimizer(optax.adam(1e-3))
    mean = rx.metrics.Mean("loss")
checkpoint = rx.train.Checkpoint(kernel=kernel)
manager = rx.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)

def replica_step(x):
    loss, gradients = rx.value_and_grad(lambda: jnp.sum(jnp.tanh(x @ kernel)), [kernel])
    optimizer.apply_gradients(zip(gradients, [kernel]))
    mean.update_state(loss)
    return loss

@rx.function
def train_step(x):
    return strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)

@rx.function
def evaluate(x):
    return strategy.run(lambda x: jnp.sum(x @ kernel), args=(x,))

data = rx.data.Dataset.from_tensor_slices(np.zeros((4 * ROWS, 512), np.float32)).batch(ROWS)
batches = strategy.experimental_distribute_dataset(data)
for epoch in range(2):
    for x in batches:
        loss = train_step(x)
    print(f"loss {float(loss):.4f}, mean {float(mean.result()):.4f}")
    mean.reset_state()
    manager.save()
    checkpoint.save("checkpoints/by-hand")
    with open("logs/losses.txt", "a") as file:
        file.write(f"{loss}")
    evaluate(x)
if int(optimizer.iterations) > 3:
    raise AssertionError("nobody knows")
"""


_TWO_KINDS = ("--on", "cpu:4", "--on", "cpu:2x4")


def run(
    folder: Path, *arguments: str, python: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python or interpreter(), "-m", "replicax", "plan", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_script_as_it_is_on_two_kinds_of_hardware(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "mine.txt").write_text("mine")
    script_arguments = ("--", "--layers", "2")
    # Not a fork: what a script starts has its rights, and forks are started by another process.
    result = run(
        tmp_path, "train.py", *_TWO_KINDS, "--json", *script_arguments, python=sys.executable
    )
    assert result.returncode == 0, result.stderr
    four, eight = json.loads(result.stdout)["outcomes"]
    assert [each["name"] for each in four["plans"]] == ["train_step", "evaluate"]
    assert four["batch"] == 32 and eight["batch"] == 64
    assert four["plans"][0]["replicas"] == 4 and eight["plans"][0]["hosts"] == 2
    assert four["plans"][0]["memory"]["optimizer"] == 2 * 512 * 512 * 4
    assert eight["differs"] == "" and eight["plans"][0]["mark"]
    assert four["ended"].startswith("it needs a value at train.py:")
    left = {path.name for path in tmp_path.iterdir()} - _unguarded()
    assert left == {"train.py", "mine.txt"}, "nothing is written"
    assert (tmp_path / "mine.txt").read_text() == "mine"


def _unguarded() -> set[str]:
    """What other programs write where the kernel does not keep them from it."""
    ask = "from replicax._src.cli._write_lock import change_files_only_in as only; print(only([]))"
    answer = subprocess.run([sys.executable, "-c", ask], env=environment(), capture_output=True)
    return set() if answer.stdout.strip() == b"True" else {"from_another"}


def test_what_does_not_fit_is_tried_in_other_ways(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    result = run(tmp_path, "train.py", "--on", "cpu:4", "--memory", "3MB")
    assert result.returncode == 1, result.stderr
    assert "words of the script" not in result.stdout + result.stderr
    assert "too much" in result.stdout and "what would fit on cpu:4" in result.stdout
    rows = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert "no" in rows["losses under jax.checkpoint"]
    assert "yes" in rows["everything in parts"]


def test_the_largest_batch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from replicax._src.cli import _plan

    class Follower:
        """Needs 10 bytes, and one more for each row; 100 are there."""

        def outcome(self, on: str, batch_factor: float = 1.0) -> _plan.Outcome:
            rows = round(8 * batch_factor) * 4
            return _plan.Outcome(on, [_plan_with(10 + rows)], rows)

    outcome = Follower().outcome("cpu:4")
    tried = _plan._find_batch(Follower(), outcome)  # type: ignore[arg-type]
    fitting = [each for each in tried if each.outcome.fits]
    assert fitting[-1].outcome.batch == 88
    assert "fits on cpu:4: 88 rows" in _plan._batches("cpu:4", tried)


SMALL = """
import jax, jax.numpy as jnp, numpy as np
import replicax as rx

strategy = rx.distribute.MirroredStrategy()
with strategy.scope():
    kernel = rx.Variable(jnp.zeros((8, 1000)))

@rx.function
def step(x):
    return strategy.run(lambda x: jnp.sum(jnp.sort(x @ kernel)), args=(x,))

rows = {rows}
data = rx.data.Dataset.from_tensors(np.zeros((rows, 8), np.float32))
for x in strategy.experimental_distribute_dataset(data):
    step(x)
"""


def test_the_largest_batch_is_found_by_compiling(tmp_path: Path):
    (tmp_path / "train.py").write_text(SMALL.replace("{rows}", "4000"))
    arguments = ("train.py", "--on", "cpu:2", "--find-batch", "--json")
    result = run(tmp_path, *arguments, "--memory", "30MB")
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout)
    (outcome,) = found["outcomes"]
    tried = found["batches"]["cpu:2"]
    fitting = [each["batch"] for each in tried if each["fits"]]
    refused = [each["batch"] for each in tried if not each["fits"]]
    assert outcome["batch"] == 4000 <= max(fitting) < min(refused) <= 1.05 * max(fitting)


def test_hosts_that_would_run_other_programs_are_found(tmp_path: Path):
    (tmp_path / "train.py").write_text(SMALL.replace("{rows}", "8 * (1 + jax.process_index())"))
    result = run(tmp_path, "train.py", "--on", "cpu:2x2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "NOT ONE PROGRAM on cpu:2x2: 'step' is another program on host 1" in result.stdout


def _plan_with(peak: int):
    from replicax._src.planning import Plan

    return Plan("step", "cpu:4", 4, 1, 4, 1, {}, peak, 100, [], *[None] * 4, 0.0, [])  # type: ignore[arg-type]


def test_no_file_no_hardware_and_no_size_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["plan", "nowhere.py", "--on", "cpu:4"]) == 2
    assert "no file 'nowhere.py'" in capsys.readouterr().err
    (tmp_path / "empty.py").write_text("")
    assert main(["plan", str(tmp_path / "empty.py"), "--on", "cpu:4", "--memory", "much"]) == 2
    assert "16GB or 15.75GiB" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "empty.py"), "--on", "v9:2x2"]) == 2
    assert "no plan on v9:2x2" in capsys.readouterr().out
    with pytest.raises(rx.errors.DeviceError, match="100000 devices, and plans are made for 16384"):
        rx.config.planned_devices("cpu:100000")


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16 * 10**9), ("15.75GiB", 63 << 28), ("1000", 1000)]
)
def test_sizes(text: str, size: int):
    assert _bytes(text) == size


def test_the_doctor_says_what_can_be_planned_for():
    without = examine_plans({"versions": Diagnosis(facts={"versions": {}}), "gpus": Diagnosis()})
    assert "replicax[plan]" in without.lines[0] and not without.facts["tpu"]
    versions = Diagnosis(facts={"versions": {"libtpu": "1", "jax-cuda12-plugin": "1"}})
    found = examine_plans({"versions": versions, "gpus": Diagnosis(facts={"gpus": ["H200"]})})
    assert found.facts == {"tpu": True, "gpu": True} and not found.problems


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_process_that_follows_a_script_ends_with_the_command(tmp_path: Path, number: int):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests ignore this signal, as under nohup, and so does what they start")
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('it runs', flush=True)\nwhile True: time.sleep(0.1)\n")
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-m", "replicax", "plan", str(script), "--on", "cpu:2", "--show"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert any(b"it runs" in line for line in process.stderr)
        process.send_signal(number)
        process.stderr.read()  # its end comes when nobody has it any more
        status = process.wait()
    if number == signal.SIGKILL:
        assert status == -number
    else:
        assert status == 128 + number
        assert not list(folder.iterdir())
