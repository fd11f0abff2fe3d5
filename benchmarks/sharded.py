"""What do sharded state and logical devices save, and what do they cost?

Three questions, on virtual CPU devices:

- state: the bytes on each device after steps with Adam under `MirroredStrategy`, where nothing is
  cut over the replicas, the optimizer's state is, and everything is (`rx.distribute.StateLayout`);
  and the most that a step needs on a device, as the compiler says.
- steps: such a step in an `rx.function`, in median milliseconds, beside the same by hand in JAX,
  written twice: `jax.jit` with sharding annotations, and `jax.shard_map` with `psum_scatter` and
  `all_gather`. The goal is for the ratio to the faster one.
- logical: a step of a convolutional net whose images are split over the four logical devices of a
  replica, beside `jax.jit` with sharding annotations over the same devices.

Variants take turns, and ratios are medians over the turns, so that a busy machine slows them all.
Before any time is taken, all must compute the same losses. Run with `--help` for the options.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from _report import Section, machine_facts, print_sections, write_sections
from _sharded_layouts import CUT, LAYOUTS, WAYS
from _sharded_logical import LOGICAL_DEVICES, SPLIT_WAYS
from _sharded_memory import bytes_on_devices, most_added
from _sharded_models import CONVS, TRANSFORMERS
from _sharded_programs import Variant
from _sharded_tables import LOGICAL, SHARDED_STEPS, STATE
from _step_models import CLOCKS, Model, initial_weights
from _tables import section_of
from step import (
    CHECKED_STEPS,
    TOLERANCES,
    check_equal,
    counts_for,
    median_ratio,
    note,
    take_turns,
    timed,
)

SECTIONS = ("state", "steps", "logical")


# What variants hold, and how long they take


class Sizes(NamedTuple):
    """Bytes on one device: the arrays between steps, and the most that a step needs."""

    held: int
    peak: int


class Built(NamedTuple):
    """Variants that compute the same losses, and their sizes."""

    variants: dict[str, Variant]
    sizes: dict[str, Sizes]


def build(kinds: Mapping[str, Callable[..., Variant]], what: str, keep: bool, *given: Any) -> Built:
    """Makes the variants of one case, and raises if their losses differ.

    Args:
      kinds: how each is made.
      what: the case, in words.
      keep: whether they are wanted afterwards; if not, each is dropped before the next is made.
      given: what they are made from.
    """
    built = Built({}, {})
    losses: dict[str, list[float]] = {}
    for name, kind in kinds.items():
        note(f"{what}: {name}")
        before = bytes_on_devices()
        variant = kind(*given)
        losses[name] = [float(variant.step()) for _ in range(CHECKED_STEPS)]
        built.sizes[name] = Sizes(most_added(before), variant.compiled_peak())
        if keep:
            built.variants[name] = variant
        del variant
    for name, found in losses.items():
        where = f"the losses of {name} ({what})"
        check_equal(where, found, losses["annotated"], TOLERANCES["float32"])
    return built


class Times(NamedTuple):
    """Median milliseconds of each variant, and the medians of the turns' ratios of ours to them."""

    ms: dict[str, float]
    ratios: dict[str, float]

    @property
    def over_faster(self) -> float:
        """The ratio to the faster of those by hand."""
        return self.ratios[min(self.ratios, key=self.ms.__getitem__)]


def measure_times(built: Built, options: argparse.Namespace) -> Times:
    turns = {name: timed(each.step, options.clock) for name, each in built.variants.items()}
    seconds = take_turns(turns, counts_for(turns, options), options.rounds)
    ours = seconds["replicax"]
    return Times(
        {name: 1e3 * statistics.median(times) for name, times in seconds.items()},
        {name: median_ratio(ours, times) for name, times in seconds.items() if times is not ours},
    )


# State cut over replicas


class State(NamedTuple):
    """The state in one layout; sizes are bytes on one device."""

    layout: str
    replicas: int
    parameters: int  # how many
    held: int
    expected: int
    peak: int
    annotated_peak: int
    mapped_peak: int


class Step(NamedTuple):
    """A step in one layout: median milliseconds, and medians of the turns' ratios."""

    layout: str
    replicas: int
    replicax: float
    annotated: float
    mapped: float
    over_annotated: float
    over_mapped: float
    over_faster: float


def measure_layout(
    model: Model, layout: str, devices: list[Any], options: argparse.Namespace
) -> tuple[State, Step | None]:
    what, timing = f"{model.title}, cut over replicas: {layout}", "steps" in options.only
    built = build(WAYS, what, timing, model, devices, layout)
    weights, replicas, cut = initial_weights(model), len(devices), CUT[layout]
    size = sum(weight.nbytes for weight in weights)
    sizes = built.sizes
    state = State(
        layout,
        replicas,
        sum(weight.size for weight in weights),
        sizes["replicax"].held,
        round((3 - cut + cut / replicas) * size),
        sizes["replicax"].peak,
        sizes["annotated"].peak,
        sizes["mapped"].peak,
    )
    if not timing:
        return state, None
    note(f"{what}: taking turns")
    times = measure_times(built, options)
    step = Step(
        layout,
        replicas,
        times.ms["replicax"],
        times.ms["annotated"],
        times.ms["mapped"],
        times.ratios["annotated"],
        times.ratios["mapped"],
        times.over_faster,
    )
    return state, step


# Images split over logical devices


class Split(NamedTuple):
    """A step on images that are split: median milliseconds, and bytes on one device."""

    replicas: int
    replicax: float
    annotated: float
    ratio: float
    peak: int
    annotated_peak: int


def measure_split(
    model: Model, replicas: int, devices: list[Any], options: argparse.Namespace
) -> Split:
    what = f"{model.title}, replicas of {LOGICAL_DEVICES} logical devices: {replicas}"
    built = build(SPLIT_WAYS, what, True, model, devices)
    note(f"{what}: taking turns")
    times = measure_times(built, options)
    return Split(
        replicas,
        times.ms["replicax"],
        times.ms["annotated"],
        times.over_faster,
        built.sizes["replicax"].peak,
        built.sizes["annotated"].peak,
    )


# Running


def layout_sections(options: argparse.Namespace) -> dict[str, Section]:
    model = TRANSFORMERS[options.model]
    devices = jax.devices()[: options.replicas]
    found = [measure_layout(model, layout, devices, options) for layout in options.layouts]
    states, steps = [state for state, _ in found], [step for _, step in found if step]
    parameters = states[0].parameters
    case = f"{model.title} (P = {parameters:,}) with Adam, {options.replicas} replicas"
    sections = {}
    if "state" in options.only:
        title = f"State on each device, and the most that a step needs. {case}."
        sections["state"] = section_of(STATE, title, states)
    if steps:
        title = f"Median {unit_of(options)} of a step; the losses of all variants agree. {case}."
        sections["steps"] = section_of(SHARDED_STEPS, title, steps)
    return sections


def logical_section(options: argparse.Namespace) -> Section:
    model = CONVS[options.model]
    rows = [
        measure_split(model, replicas, jax.devices()[: replicas * LOGICAL_DEVICES], options)
        for replicas in options.split_replicas
    ]
    title = (
        f"Median {unit_of(options)} of a step on images split over logical devices; the losses "
        f"agree. {model.title} with Adam."
    )
    return section_of(LOGICAL, title, rows)


def unit_of(options: argparse.Namespace) -> str:
    return "milliseconds" if options.clock == "wall" else "CPU milliseconds"


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="which tables (default: all)")
    parser.add_argument(
        "--model",
        choices=TRANSFORMERS,
        default="large",
        help="its size, and that of the convolutional net; large needs some 25 GB of memory",
    )
    parser.add_argument(
        "--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="by default all"
    )
    parser.add_argument("--replicas", type=int, default=8, help="for state and steps")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu counts the processor time of all threads, which a busy machine disturbs less",
    )
    parser.add_argument("--rounds", type=int, default=21, help="turns that each variant takes")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a turn, about")
    parser.add_argument("--max-steps", type=int, default=200, help="most steps in a turn")
    parser.add_argument("--quick", action="store_true", help="a trial run of a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    options.only = options.only or list(SECTIONS)
    options.split_replicas = [1, 2]
    if options.quick:
        options.model, options.replicas, options.split_replicas = "tiny", 4, [1]
        options.rounds, options.seconds = 2, 0.01
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    jax.config.update("jax_platforms", "cpu")
    split = max(options.split_replicas) * LOGICAL_DEVICES
    jax.config.update("jax_num_cpu_devices", max(options.replicas, split))
    sections: dict[str, Section] = {}
    if "state" in options.only or "steps" in options.only:
        sections |= layout_sections(options)
    if "logical" in options.only:
        sections["logical"] = logical_section(options)
    facts = machine_facts(None)
    print_sections(list(sections.values()), facts, options.markdown)
    write_sections(options.json, list(sections.values()), facts, clock=options.clock)


if __name__ == "__main__":
    main()
