"""`Plan`: what one compiled function needs on devices that are not here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from replicax._src import _html
from replicax._src.planning._hlo import Tensor
from replicax._src.planning._table import amount, labelled, seconds

_KINDS = (
    ("parameters", "parameters"),
    ("optimizer", "optimizer state"),
    ("variables", "other variables"),
    ("input", "input"),
    ("working", "gradients and activations"),
    ("program", "program"),
)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Collectives of one kind, over the same links.

    Attributes:
      kind: "all-reduce", "reduce-scatter", "all-gather", ...
      times: how often they happen in one call.
      bytes: of the whole arrays that are summed, gathered or taken apart, in all of these.
      links: what they go over: "within a host", "between hosts" or "links between chips".
      group: how many devices exchange with each other.
      seconds: at the published speed of the links, if nothing runs beside; None if not known.
    """

    kind: str
    times: int
    bytes: int
    links: str
    group: int
    seconds: float | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a function would need. Print it, look at it in a notebook, or take `to_json()`.

    Attributes:
      name: of the function.
      on: the name of the plan, such as "v5e:16x16".
      devices: how many there are.
      hosts: how many of these have them.
      replicas: how many there are.
      logical_devices: of each replica.
      memory: bytes on each device by kind: "parameters", "optimizer" (state of optimizers, and
        other copies of the parameters), "variables" (all others), "input", "working" (gradients,
        activations and results), "program".
      peak: bytes on each device when most is needed.
      available: what each device has; None if not known.
      exchanges: what the devices exchange.
      flops: operations on each device in one call, as the compiler counts them; None if it does
        not.
      compiler_seconds: how long a call takes, as the compiler estimates; None if it does not.
      compute_seconds: the least time for the operations, by the published peak.
      memory_seconds: the least time for what is read and written, by the published bandwidth.
      compile_seconds: how long it took to compile.
      largest: the largest tensors that the program makes.
      problem: the compiler's words, if it found that the program does not fit.
      mark: the same for the same program, of several hosts; "" of one.
    """

    name: str
    on: str
    devices: int
    hosts: int
    replicas: int
    logical_devices: int
    memory: dict[str, int]
    peak: int
    available: int | None
    exchanges: list[Exchange]
    flops: float | None
    compiler_seconds: float | None
    compute_seconds: float | None
    memory_seconds: float | None
    compile_seconds: float
    largest: list[Tensor]
    problem: str | None = None
    mark: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether each device has room for it; None if its memory is not known."""
        if self.problem is not None:
            return False
        return None if self.available is None else self.peak <= self.available

    @property
    def exchange_seconds(self) -> float | None:
        """The least time for what is exchanged, if nothing runs beside; None if not known."""
        found = [each.seconds for each in self.exchanges]
        return None if None in found else sum(each or 0.0 for each in found)

    @property
    def step_seconds(self) -> float | None:
        """The least time of a call, by published peaks: the longest of its three parts."""
        parts = [self.compute_seconds, self.memory_seconds, self.exchange_seconds]
        known = [each for each in parts if each is not None]
        return max(known) if self.compute_seconds is not None else None

    def to_json(self) -> str:
        """Returns all of it as a JSON object."""
        return json.dumps(self.as_dict(), indent=2)

    def as_dict(self) -> dict[str, Any]:
        """Returns the same as dictionaries and lists."""
        return {
            **dataclasses.asdict(self),
            "fits": self.fits,
            "exchange_seconds": self.exchange_seconds,
            "step_seconds": self.step_seconds,
        }

    def verdict(self) -> str:
        """Returns whether it fits, in a few words."""
        if self.available is None:
            return "not known: it is not published what these devices have"
        if self.fits:
            return f"yes, {amount(self.available - self.peak)} are left"
        return f"NO, {amount(self.peak - self.available)} too much"

    def _rows(self) -> Iterator[tuple[str, str]]:
        each = f"{self.logical_devices} device(s) each"
        yield "devices", f"{self.devices} ({self.on}) on {self.hosts} host(s)"
        yield "replicas", f"{self.replicas} of {each}"
        yield "fits", self.verdict()
        has = "" if self.available is None else f" of {amount(self.available)}"
        yield "memory on each", f"{amount(self.peak)}{has}"
        for key, label in _KINDS:
            yield f"  {label}", amount(self.memory.get(key, 0))
        for index, exchange in enumerate(self.exchanges):
            time = "" if exchange.seconds is None else f", {seconds(exchange.seconds)}"
            yield (
                "" if index else "exchanges",
                f"{exchange.kind}, {exchange.times} time(s) over {exchange.group} devices "
                f"{exchange.links}: {amount(exchange.bytes)}{time}",
            )
        if not self.exchanges:
            yield "exchanges", "none"
        if self.flops is not None:
            yield "operations", f"{amount(self.flops, 'flop')} on each device"
        if self.compiler_seconds is not None:
            yield "time (estimate)", f"{seconds(self.compiler_seconds)}, says the compiler"
        if self.step_seconds is not None:
            parts = [
                ("operations", self.compute_seconds),
                ("memory", self.memory_seconds),
                ("exchanges", self.exchange_seconds),
            ]
            text = ", ".join(f"{what} {seconds(t)}" for what, t in parts if t is not None)
            yield (
                "time (estimate)",
                f"at least {seconds(self.step_seconds)}, by data sheets: {text}",
            )
        yield "compiled in", seconds(self.compile_seconds)
        for index, tensor in enumerate(self.largest):
            where = f" at {tensor.line}" if tensor.line else ""
            label = "" if index else "largest tensors"
            yield label, f"{amount(tensor.bytes)}: {tensor.shape} of {tensor.operation}{where}"
        if self.problem is not None:
            yield "the compiler says", self.problem

    @property
    def _title(self) -> str:
        return f"plan of {self.name!r} on {self.on}"

    def __str__(self) -> str:
        return labelled(self._title, list(self._rows()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.table(self._title, ("", ""), list(self._rows()))
