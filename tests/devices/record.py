"""Records TensorFlow's topologies and device assignments, into `recorded/device_assignments.json`.

Run it with an interpreter that has TensorFlow: `python -m tests.devices.record`. The questions are
recorded with the answers, so that the tests need nothing of this file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "device_assignments.json"

# The shape of the mesh, and that of the chips of one host.
SLICES: dict[str, tuple[list[int], list[int]]] = {
    "one core": ([1, 1, 1, 1], [1, 1, 1]),
    "v3-8": ([2, 2, 1, 2], [2, 2, 1]),
    "v3-32": ([4, 4, 1, 2], [2, 2, 1]),
    "v4-8": ([2, 2, 1, 1], [2, 2, 1]),
    "v4-16": ([2, 2, 2, 1], [2, 2, 1]),
    "v4-64": ([2, 4, 4, 1], [2, 2, 1]),
    "v4-128": ([4, 4, 4, 1], [2, 2, 1]),
    "v5e-8": ([2, 4, 1, 1], [2, 4, 1]),
    "deep": ([1, 4, 4, 2], [1, 4, 1]),
    "odd": ([3, 2, 3, 2], [3, 2, 1]),
}
# Without one host.
DEGRADED = {"v3-32 less host 2": ("v3-32", 2), "v4-16 less host 0": ("v4-16", 0)}

MODES = ["AUTO", "RING", "MESH"]
STRIDES = [[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [2, 2, 1, 1], [1, 1, 1, 2]]


def coordinates(mesh: list[int], host: list[int]) -> list[list[list[int]]]:
    """The devices of each host as TPUs are numbered: cores, then chips along x, y and z."""

    def chips(sizes: list[int]) -> list[list[int]]:
        return [[x, y, z] for z, y, x in itertools.product(*map(range, reversed(sizes)))]

    hosts = chips([size // part for size, part in zip(mesh, host)])
    return [
        [
            [*(h * part + c for h, part, c in zip(at, host, chip)), core]
            for chip in chips(host)
            for core in range(mesh[3])
        ]
        for at in hosts
    ]


def shapes(mesh: list[int]) -> Iterator[list[int]]:
    """Blocks whose sides divide those of the mesh, and two that do not fit."""
    sides = [[n for n in (1, 2, 3, 4) if size % n == 0] for size in mesh]
    yield from (list(shape) for shape in itertools.product(*sides))
    yield [*mesh[:3], mesh[3] + 1]
    yield [mesh[0] + 1, *mesh[1:]]


def questions(mesh: list[int]) -> Iterator[list[Any]]:
    """What to ask: the arguments of `DeviceAssignment.build` after the topology."""
    for number, (shape, stride) in enumerate(itertools.product(shapes(mesh), STRIDES)):
        fit = 1
        for size, side, step in zip(mesh, shape, stride):
            fit *= size // (side * step) * step
        if stride != STRIDES[0] and (fit == 0 or number % 3):
            continue  # most strides do not fit, and a part of the others is enough
        for replicas in sorted({max(fit, 1), max(fit // 2, 1), fit + 1, min(3, fit + 1)}):
            if replicas != fit:
                yield [shape, stride, replicas, MODES[number % 3]]
            else:
                yield [shape, stride, replicas, "AUTO"]
                yield [shape, stride, replicas, "MESH" if number % 2 else "RING"]


def written(assignment: list[list[list[int]]]) -> list[str]:
    """A line for each replica, with the digits of its cores' coordinates: "0000 0001"."""
    return [" ".join("".join(map(str, core)) for core in replica) for replica in assignment]


def main() -> None:
    import tensorflow as tf  # type: ignore[import-not-found]

    tpu = tf.tpu.experimental
    meshes = {name: (mesh, coordinates(mesh, host)) for name, (mesh, host) in SLICES.items()}
    for name, (whole, lost) in DEGRADED.items():
        mesh, devices = meshes[whole]
        meshes[name] = mesh, [each for host, each in enumerate(devices) if host != lost]

    topologies, described = {}, {}
    for name, (mesh, devices) in meshes.items():
        topology = tpu.Topology(mesh_shape=mesh, device_coordinates=devices)
        topologies[name] = topology
        corner = [size - 1 for size in mesh]
        described[name] = {
            "mesh_shape": mesh,
            "device_coordinates": devices,
            "serialized": topology.serialized().hex(),
            "missing_devices": topology.missing_devices.tolist(),
            "corner": [
                int(topology.task_ordinal_at_coordinates(corner)),
                int(topology.tpu_device_ordinal_at_coordinates(corner)),
                topology.cpu_device_name_at_coordinates(corner),
                topology.tpu_device_name_at_coordinates(corner, job="worker"),
            ],
        }

    answers = []
    for name, (mesh, _) in meshes.items():
        for arguments in questions(mesh):
            answer: dict[str, Any] = {"topology": name, "arguments": arguments, "cores": None}
            answers.append(answer)
            mode = tpu.DeviceOrderMode[arguments[-1]]
            try:
                built = tpu.DeviceAssignment.build(topologies[name], *arguments[:-1], mode)
            except (ValueError, AssertionError):
                continue
            last = built.num_replicas - 1, built.num_cores_per_replica - 1
            task = int(built.topology.task_ordinal_at_coordinates(built.coordinates(*last)))
            answer["cores"] = written(built.core_assignment.tolist())
            answer["last"] = [
                int(built.tpu_ordinal(*last)),
                built.host_device(*last),
                built.tpu_device(*last, job="worker"),
                built.lookup_replicas(task, last[1]),
            ]
    entries = [f"{_json(name)}: {_json(each)}" for name, each in described.items()]
    topology_lines, answer_lines = ",\n".join(entries), ",\n".join(map(_json, answers))
    text = (
        f'{{\n"tensorflow": "{tf.__version__}",\n"topologies": {{\n{topology_lines}\n}},\n'
        f'"assignments": [\n{answer_lines}\n]\n}}\n'
    )
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(text, encoding="utf-8")
    print(f"{len(answers)} assignments of TensorFlow {tf.__version__} in {RECORDED}")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
