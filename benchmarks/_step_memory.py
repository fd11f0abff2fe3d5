"""The memory of one variant of a step, in a process of its own.

`step.py` starts this file and asks {"model", "variant", "devices", "steps", "gpu"}; it answers with
the bytes of all live arrays after 2 steps and after `steps`, and with the most that the step needs
at one time, on one device: on the CPU what the compiler says, on a GPU what the allocator saw.
"""

import gc
import json
import math
import sys
from typing import Any

import jax
from _child import Child, answers_only
from _step_models import MODELS
from _step_variants import VARIANTS, Variant, launch_many


def live_bytes() -> int:
    """Over all devices; arrays that the garbage collector would free are not live."""
    gc.collect()
    return sum(_device_bytes(array) for array in jax.live_arrays())


def _device_bytes(array: jax.Array) -> int:
    part = array.sharding.shard_shape(array.shape)
    return math.prod(part) * array.dtype.itemsize * len(array.sharding.device_set)


def compiled_peak(variant: Variant) -> int:
    """Arguments, results and scratch space of the step's program on one device."""
    client = jax.devices()[0].client
    found = [
        program.get_compiled_memory_stats()
        for program in client.live_executables()
        if program.hlo_modules()[0].name.removeprefix("jit_") == variant.program
    ]
    # The first call of a function may have had a program of its own.
    stats = found[-1]
    return (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
    )


def measured(request: dict[str, Any]) -> dict[str, int]:
    if request["gpu"]:
        devices = jax.devices("gpu")[: request["devices"]]
    else:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", request["devices"])
        devices = jax.devices()
    variant = VARIANTS[request["variant"]](MODELS[request["model"]], devices)
    live = []
    for steps in (2, request["steps"] - 2):
        launch_many(variant.step, steps)
        live.append(live_bytes())
    if request["gpu"]:
        peak = devices[0].memory_stats()["peak_bytes_in_use"]
    else:
        peak = compiled_peak(variant)
    return {"early": live[0], "late": live[1], "peak": peak}


def measure_memory(model: str, variant: str, devices: int, steps: int, gpu: bool) -> dict[str, int]:
    """Asks a new process."""
    with Child("_step_memory.py") as child:
        return child.ask(model=model, variant=variant, devices=devices, steps=steps, gpu=gpu)


def main() -> None:
    answer = answers_only()
    for line in sys.stdin:
        answer(**measured(json.loads(line)))


if __name__ == "__main__":
    main()
