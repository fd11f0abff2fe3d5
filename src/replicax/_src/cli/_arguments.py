"""Reads the command line of `replicax launch`: our options, then the script and what is its own."""

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any

from replicax._src._errors import ClusterConfigError
from replicax._src.cli._devices import gpus_for_jax
from replicax._src.cli._options import KEY_VARIABLE, LaunchOptions, Range, Usage
from replicax._src.cluster.control import Settings

_DESCRIPTION = """\
Runs a script in several worker processes that train together: on this host, or with one launcher on
each of several hosts. Every worker gets its position in TF_CONFIG. If one fails, all of them end,
and with --max-restarts they start again and continue from their last checkpoint."""

_EXAMPLES = """\
examples:
  replicax launch train.py --epochs 3              one worker with all devices of this host
  replicax launch --workers 4 train.py             four workers
  replicax launch --workers 2 --devices-per-worker 2 --max-restarts 3 -m project.train
  replicax launch --workers 2:4 --max-restarts 10 train.py
                                                   four workers; continues with as few as two
  replicax launch --nodes 2 --node-rank 0 --coordinator host0:12345 --workers 8 train.py
                                                   on host0; the same with --node-rank 1 on host1
  replicax launch --ray head:6379 --workers 8 --devices-per-worker 1 train.py
                                                   eight workers with a GPU each, on a Ray cluster
  replicax launch --workers 4 --record recording --traps finite train.py
                                                   steps can be run again; a NaN ends the job

exit status: 0 if all workers finish; that of the worker that failed first; 128 + the signal that
killed it; 42 if the launcher was told to end (SIGTERM) and the workers have saved; 130 after
Ctrl-C."""

# The name of an option, what it takes, of which type, and its default; then what is said of it. All
# take a value, which `_split` relies on; --ray may have none.
_OPTIONS = f"""
--workers N str 1
    workers on this host. The default is 1: one worker with all devices of the host. auto: one for
    each GPU, or for each --devices-per-worker of them. MIN:MAX starts with MAX; a worker that is
    killed is left out of the next generation if at least MIN remain, and returns in the one after
    it
--devices-per-worker K int
    devices of each worker: K GPUs, or K virtual devices of the CPU. By default, GPUs are divided
    evenly
--max-restarts R int 0
    how many times to start all workers again after a fault (default: 0)
--stall-timeout S float
    seconds without progress (compiling is progress) after which the workers are ended, and it is
    printed what each was doing. 0: never (default: REPLICAX_STALL_TIMEOUT, or
    {LaunchOptions.stall_timeout:g})
--join-timeout S float
    seconds to wait for all workers and nodes to arrive (default: REPLICAX_JOIN_TIMEOUT, or
    {LaunchOptions.join_timeout:g})
--grace-period S float {LaunchOptions.grace_period:g}
    seconds for the workers to save and leave on SIGTERM (default: %(default)g)
--nodes M str 1
    hosts, each with its own launcher; or MIN:MAX, to continue when some are lost
--node-rank I int 0
    which of the hosts this is, from 0
--coordinator HOST:PORT str
    where the launcher of node 0 listens for the others
--key TEXT str
    the same secret on all nodes: node 0 lets in only launchers that have it (default:
    {KEY_VARIABLE}, which other users of the host cannot see)
--shared-folder DIR str
    a folder that all hosts see, used by this job only: if the first host is lost, the remaining
    launchers choose there which of them leads, and continue
--ray ADDRESS str
    run the workers on Ray, spread over its nodes: at host:port; without an address, at
    RAY_ADDRESS, or on this host. --workers is then the number in the whole job
--log-dir DIR str
    also append the output of each worker to its own file in this folder: worker-0.log and so on
--record DIR str
    record the steps of a program that has an rx.train.CheckpointManager, so that each of the last
    ones can be run again: replicax replay DIR train.py. DIR must be visible to all workers
--traps TRAPS str
    with --record: what ends the job and saves the step; some of finite, bits, bound=1e6,
    copies_every=100, slower_than=10, separated by commas
-m MODULE str
    run a module instead of a script
"""
_TYPES = {"float": float, "int": int, "str": str}
_MORE: dict[str, dict[str, Any]] = {
    "--ray": {"nargs": "?", "const": ""},
    "--traps": {"default": ""},
    "-m": {"dest": "module"},
}


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax launch` to a parser."""
    parser.usage = "replicax launch [options] script.py [arguments of the script]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    for row in re.split(r"\n(?=-)", _OPTIONS.strip()):
        head, _, said = row.partition("\n")
        name, metavar, kind, *default = head.split()
        settings = {"default": _TYPES[kind](*default)} if default else {}
        settings |= {"metavar": metavar, "type": _TYPES[kind], "help": " ".join(said.split())}
        parser.add_argument(name, **settings, **_MORE.get(name, {}))


def launch_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> LaunchOptions:
    """Returns the options; leaves with status 2 and one line of advice if they cannot be right."""
    ours, command = _split(arguments)
    parsed = parser.parse_args(ours)
    try:
        said = Settings.from_environment()
        stall = parsed.stall_timeout
        if stall is None:
            stall = said.stall_timeout or 0.0  # None: turned off
        return LaunchOptions(
            command=command,
            workers=_workers(parsed.workers, parsed.devices_per_worker, parsed.ray),
            devices_per_worker=parsed.devices_per_worker,
            max_restarts=parsed.max_restarts,
            stall_timeout=stall,
            join_timeout=said.join_timeout if parsed.join_timeout is None else parsed.join_timeout,
            grace_period=parsed.grace_period,
            nodes=Range.parse(parsed.nodes, "--nodes"),
            node_rank=parsed.node_rank,
            coordinator=parsed.coordinator,
            key=os.environ.get(KEY_VARIABLE) or None if parsed.key is None else parsed.key,
            shared_folder=parsed.shared_folder,
            log_dir=parsed.log_dir,
            record=parsed.record,
            traps=parsed.traps,
            ray=parsed.ray,
        )
    except (Usage, ClusterConfigError) as error:
        parser.error(str(error))


def _workers(said: str, devices_per_worker: int | None, ray: str | None) -> Range:
    if said != "auto":
        return Range.parse(said, "--workers")
    if ray is not None:
        raise Usage("--workers auto is for the GPUs of this host: with --ray, say how many.")
    count = max(1, len(gpus_for_jax(os.environ)) // max(1, devices_per_worker or 1))
    return Range(count, count)


def _split(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Returns our options, and the command: from the script or `-m` on, all is the script's own."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument in ("-m", "-") or not argument.startswith("-"):
            break
        if argument == "--":
            return list(arguments[:position]), tuple(arguments[position + 1 :])
        takes_the_next = argument not in ("-h", "--help") and "=" not in argument
        if argument == "--ray":
            takes_the_next = _is_address(arguments[position + 1 : position + 2])
        position += 2 if takes_the_next else 1
    return list(arguments[:position]), tuple(arguments[position:])


def _is_address(following: Sequence[str]) -> bool:
    """Returns whether what follows --ray is an address: no option, and not the script."""
    return any(
        text in ("auto", "local") or re.fullmatch(r"[^\s/]+:\d+|ray://.*", text)
        for text in following
    )
