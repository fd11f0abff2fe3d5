"""Compiling for devices that are not here, and reading what the compiler says."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import math
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from replicax._src._jax_cache import without_cache
from replicax._src._typing import Device
from replicax._src.devices import PlannedDevices, for_libtpu, supposed, unsuited_libtpu
from replicax._src.planning._hlo import Collective, HloProgram
from replicax._src.planning._plan import Exchange, Plan

_LARGEST = 5


class Argument(NamedTuple):
    """What a program takes: its kind, as in `Plan.memory`, its name and its look."""

    kind: str
    name: str
    look: jax.ShapeDtypeStruct


def bytes_on_each(array: jax.ShapeDtypeStruct) -> int:
    """Returns the size of an array on each of its devices."""
    shape = array.shape if array.sharding is None else array.sharding.shard_shape(array.shape)
    return math.prod(shape) * getattr(array.dtype, "itemsize", 8)


def compiled_plan(
    name: str,
    lowered: Any,
    arguments: Sequence[Argument],
    plan: PlannedDevices,
    devices: Sequence[Device],
    logical_devices: int,
) -> Plan:
    """Compiles a program for planned devices, and says what it needs.

    Args:
      name: of the function.
      lowered: what `jax.jit(...).lower(...)` gave.
      arguments: of the program.
      plan: the devices.
      devices: those of them that the program is for, in its order.
      logical_devices: how many each replica has.
    """
    memory: dict[str, int] = dict.fromkeys(
        ("parameters", "optimizer", "variables", "input", "working", "program"), 0
    )
    for each in arguments:
        memory[each.kind] += bytes_on_each(each.look)
    state = sum(memory.values())
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if plan.hardware.platform != "cpu":
            stack.enter_context(without_cache())
        if plan.hardware.platform == "tpu":
            stack.enter_context(for_libtpu())
        compiled, problem = (None, None) if supposed().only_lowered else _compiled(lowered)
    taken = time.perf_counter() - begun
    hosts_of = [plan.host_of(device) for device in devices]
    peak = state
    costs: dict[str, float] = {}
    exchanges, largest = [], []
    if compiled is not None:
        peak = _peak(compiled, memory) or state
        found = compiled.cost_analysis()
        costs = found if isinstance(found, dict) else {}
        text = HloProgram(_text(compiled, plan))
        exchanges = _exchanges(text.collectives(), hosts_of, plan)
        largest = text.largest(_LARGEST)
    elif problem is not None:
        peak = _needed(problem) or state
        memory["working"] = max(peak - state, 0)
    hardware = plan.hardware
    hosts = len(set(hosts_of))
    flops, estimate = costs.get("flops"), costs.get("optimal_seconds")
    return Plan(
        name=name,
        on=plan.name,
        devices=len(devices),
        hosts=hosts,
        replicas=len(devices) // logical_devices,
        logical_devices=logical_devices,
        memory=memory,
        peak=peak,
        available=hardware.memory,
        exchanges=exchanges,
        flops=flops,
        compiler_seconds=estimate if estimate and estimate > 0 else None,
        compute_seconds=_ratio(flops, hardware.flops),
        memory_seconds=_ratio(costs.get("bytes accessed"), hardware.bandwidth),
        compile_seconds=taken,
        largest=largest,
        problem=problem,
        mark=_mark(lowered) if hosts > 1 else "",
    )


def _peak(compiled: Any, memory: dict[str, int]) -> int | None:
    """Returns the memory that a compiled program needs, and adds its own parts to `memory`."""
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    memory["working"] = (
        stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    )
    memory["program"] = stats.generated_code_size_in_bytes
    return stats.argument_size_in_bytes + memory["working"] + memory["program"]


def _mark(lowered: Any) -> str:
    """Returns a text that is the same for the same program."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]


def _compiled(lowered: Any) -> tuple[Any, str | None]:
    """Returns the compiled program, or why it does not fit."""
    try:
        return lowered.compile(), None
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            raise
        return None, text.splitlines()[0]


def _text(compiled: Any, plan: PlannedDevices) -> str:
    """Returns the compiled program as text, which jaxlib writes from what the compiler gave it."""
    try:
        return compiled.as_text()
    except jax.errors.JaxRuntimeError as error:
        if plan.hardware.platform != "tpu":
            raise
        raise unsuited_libtpu(plan.name, error) from error


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _needed(problem: str) -> int | None:
    """Returns how much memory a program needs that the compiler found too large."""
    found = re.search(r"[Uu]sed ([\d.]+)([KMGT]?) of|\(([\d.]+)([KMGT]?)\) exceeds", problem)
    if found is None:
        return None
    number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(float(number) * _UNITS[unit])


def _ratio(amount: float | None, speed: float | None) -> float | None:
    return None if amount is None or speed is None else amount / speed


def _exchanges(
    collectives: Sequence[Collective], hosts: Sequence[int], plan: PlannedDevices
) -> list[Exchange]:
    """Collectives of one kind and over the same links, added up."""
    totals: dict[tuple[str, str, int], list[int]] = collections.defaultdict(lambda: [0, 0])
    for each in collectives:
        groups = each.groups or (tuple(range(len(hosts))),)
        within = all(len({hosts[number] for number in group}) == 1 for group in groups)
        links = "within a host" if within else "between hosts"
        if plan.hardware.platform == "tpu":
            links = "over the links between chips"
        total = totals[each.kind, links, len(groups[0])]
        total[0] += each.times
        total[1] += each.times * each.bytes
    hardware = plan.hardware
    found: list[Exchange] = []
    for (kind, links, group), (times, size) in sorted(totals.items(), key=lambda item: -item[1][1]):
        speed = hardware.network if links == "between hosts" else hardware.link
        rounds = 2 if kind == "all-reduce" else 1
        share = 1.0 if kind == "collective-permute" else rounds * (group - 1) / group
        found.append(Exchange(kind, times, size, links, group, _ratio(share * size, speed)))
    return found
