"""Training under a real Slurm of two nodes, on one machine: `python scripts/slurm_two_nodes.py`.

It needs root and Debian's `slurm-wlm` and `munge`. Slurm runs in namespaces of its own (processes,
network, mounts), with a folder of its own, so that nothing of this machine is touched, and nothing
is left when this script ends, however it ends. In it run 2 and 4 tasks, a job that is told to end
(`scancel --signal=TERM`), saves, is queued again and goes on, and a job of which a task is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.multi_worker.programs.audit import Audit  # noqa: E402
from tests.multi_worker.programs.faults import Fault, write_plan  # noqa: E402

NODES = {"n1": "10.88.0.1", "n2": "10.88.0.2"}
PROGRAMS = ("unshare", "ip", "munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
ROWS, EPOCHS = 120, 2
SECONDS = 180.0

CONFIGURATION = """
ClusterName=two
SlurmctldHost=box({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort=26817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname=box NodeAddr={n1} Port=26818 CPUs=4
NodeName=n2 NodeHostname=box NodeAddr={n2} Port=26819 CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""

# As in docs/clusters.md.
BATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --requeue
#SBATCH --open-mode=append
srun --distribution=block --kill-on-bad-exit=0 {command}
status=$?
echo "srun has left with $status"
if [ "$status" -eq 42 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
"""


def main() -> int:
    """Makes the namespaces, and runs everything inside."""
    if os.geteuid() != 0:
        raise SystemExit("it needs root")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)}. apt-get install slurm-wlm munge iproute2")
    with tempfile.TemporaryDirectory(prefix="replicax-slurm-") as folder:
        # All processes in there are killed with the first of them, and that one with this script.
        kinds = ("--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
        inside = [sys.executable, __file__, "--inside", folder]
        return subprocess.run(["unshare", *kinds, *inside]).returncode


class Slurm:
    """Two nodes and a controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "JAX_PLATFORMS": "cpu",
        }

    def start(self) -> None:
        """Starts everything, and waits until both nodes are idle."""
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        configuration = CONFIGURATION.format(folder=self.folder, address=NODES["n1"], **NODES)
        (self.folder / "slurm.conf").write_text(configuration)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        names = ("socket", "pid-file", "log-file", "seed-file")
        files = [f"--{name}={self.folder}/munge.{name.removesuffix('-file')}" for name in names]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *files)
        wait_for(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        wait_for(
            lambda: self.run("sinfo", "-h", "-o", "%T %D")[1].split() == ["idle", "2"], "nodes"
        )

    def _daemon(self, *command: str) -> None:
        log = open(self.folder / f"{command[0]}-{command[-1].rpartition('/')[2]}.out", "wb")
        subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def run(self, *command: str) -> tuple[int, str]:
        """Runs a command to its end."""
        done = subprocess.run(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout

    def training(self, name: str, *faults: Fault) -> tuple[Path, list[str]]:
        """Returns the folder of a new run, and the command of its workers."""
        folder = self.folder / name
        write_plan(folder, list(faults))
        train = ROOT / "tests" / "multi_worker" / "programs" / "train.py"
        return folder, [sys.executable, str(train), str(folder), "--seed=3", "--handler"]


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Waits for something that nobody tells of."""
    end = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"waited {SECONDS:g} s in vain for {what}")
        time.sleep(0.1)


def trains(slurm: Slurm, tasks: int) -> str:
    """Tasks on both nodes train together."""
    folder, command = slurm.training(f"tasks-{tasks}")
    status, said = slurm.run("srun", "-N2", f"-n{tasks}", "-l", *command)
    assert status == 0, said
    audit = Audit(folder)
    audit.check(ROWS, EPOCHS)
    assert {line["workers"] for line in audit.starts[0]} == {tasks}
    said = slurm.run("srun", "-N2", f"-n{tasks}", "printenv", "SLURMD_NODENAME")[1]
    hosts = sorted(word for word in said.split() if word in NODES)
    assert len(hosts) == tasks, said
    return f"trained to the end, tasks on {' '.join(hosts)}"


def is_queued_again(slurm: Slurm) -> str:
    """A job that is told to end saves, is queued again, and goes on from there."""
    folder, command = slurm.training("requeue", Fault("await-term", 0, 8))
    script = slurm.folder / "job.sh"
    script.write_text(BATCH.format(command=" ".join(command)))
    output = slurm.folder / "requeue.out"
    status, said = slurm.run("sbatch", "--parsable", f"--output={output}", str(script))
    assert status == 0, said
    job = said.strip().partition(";")[0]
    wait_for(lambda: output.exists() and "awaits SIGTERM" in output.read_text(), "step 8")
    told = time.monotonic()
    assert slurm.run("scancel", "--signal=TERM", job)[0] == 0
    wait_for(lambda: "srun has left with 42" in output.read_text(), f"42:\n{output.read_text()}")
    saved = time.monotonic() - told
    wait_for(lambda: _state(slurm, job) == "PENDING", "the queue")
    when = slurm.run("squeue", "-h", "-j", job, "-o", "%S")[1].strip()
    delay = datetime.fromisoformat(when) - datetime.now()
    wait_for(lambda: _starts_now(slurm, job), "the second run")
    wait_for(lambda: "srun has left with 0" in output.read_text(), "the end of the second run")
    lines = output.read_text().splitlines()
    restored = [line for line in lines if line.startswith("restored")]
    assert restored[:2] == ["restored 0"] * 2 and restored[-1] != "restored 0", lines
    return (
        f"saved and left with 42 after {saved:.1f} s; queued again, to start {delay.seconds} s "
        f"later; told to start at once, went on: {restored[-1]}"
    )


def _state(slurm: Slurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-j", job, "-o", "%T")[1].strip()


def _starts_now(slurm: Slurm, job: str) -> bool:
    # Refused while the nodes still complete the first run.
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    return _state(slurm, job) != "PENDING"


def notices_a_kill(slurm: Slurm) -> str:
    """A task is killed; the others leave, and say why."""
    folder, command = slurm.training("kill", Fault("kill", 1, 8))
    options = ("--kill-on-bad-exit=0", "-N2", "-n2", "-l")
    status, said = slurm.run("srun", *options, *command)
    took = time.time() - max(path.stat().st_mtime for path in folder.glob("fault-*.json"))
    assert status != 0
    assert "0: replicax: worker 1" in said, said
    why = next(line for line in said.splitlines() if line.startswith("0: replicax: worker 1"))
    status_again, said = slurm.run("srun", *options, *command)
    restored = next(line[3:] for line in said.splitlines() if line.startswith("0: restored"))
    # The save of step 6 may have been under way still.
    assert status_again == 0 and restored in ("restored 6", "restored 3"), said
    return f"status {status} after {took:.1f} s ({why[3:]}); another step went on: {restored}"


def inside(folder: Path) -> int:
    """In the namespaces: a machine of its own, with two more addresses."""
    names = "".join(f"{address} {name}\n" for name, address in NODES.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{NODES['n1']} box\n{names}")
    commands = [
        f"mount --bind {folder}/hosts /etc/hosts",
        "hostname box",
        "ip link set lo up",
        *(f"ip address add {address}/32 dev lo" for address in NODES.values()),
    ]
    for command in commands:
        subprocess.run(command.split(), check=True)
    slurm = Slurm(folder)
    slurm.start()
    print(slurm.run("sinfo", "--version")[1].strip(), "with two nodes")
    for name, trial in (
        ("2 tasks", lambda: trains(slurm, 2)),
        ("4 tasks", lambda: trains(slurm, 4)),
        ("scancel --signal=TERM", lambda: is_queued_again(slurm)),
        ("a task killed", lambda: notices_a_kill(slurm)),
    ):
        began = time.monotonic()
        print(f"{name}: {trial()} ({time.monotonic() - began:.0f} s in all)", flush=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(inside(Path(sys.argv[2])) if sys.argv[1:2] == ["--inside"] else main())
