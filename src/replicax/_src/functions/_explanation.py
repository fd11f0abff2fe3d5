"""What a compiled function does, in plain words: `fn.explain`, and why it was traced again."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from replicax._src import _html, _jax_internals
from replicax._src._warnings import warn
from replicax._src.functions._agreement import KINDS, is_collective
from replicax._src.functions._arguments import Arguments
from replicax._src.planning import Plan, amount, labelled
from replicax._src.variable import Variable


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between replicas.

    Attributes:
      kind: "all-reduce", "all-gather", ...
      tensors: how many of the program's arrays travel in it, fused.
      bytes: what each replica contributes.
      times: how often it happens in one call; 0 if that is not known before (a while loop).
    """

    kind: str
    tensors: int
    bytes: int
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Report:
    """What is known of one program.

    Attributes:
      devices: the devices, by name, one for each replica.
      collectives: what crosses the replicas in one call.
      flops: floating-point operations on each device, as the compiler counts them, or None.
      peak_bytes: the most memory that a call needs on each device, or None.
      donated: names of the variables that are updated in place.
      donated_bytes: their size on each device.
      elsewhere: names of those that get their new value from the program, on other devices.
      read: names of the variables that are only read.
      variables: all of these.
      plan: on planned devices, what it needs there.
    """

    devices: tuple[str, ...]
    collectives: list[Collective]
    flops: float | None
    peak_bytes: int | None
    donated: list[str]
    donated_bytes: int
    elsewhere: list[str]
    read: list[str]
    variables: list[Variable]
    plan: Plan | None = None


class Explanation:
    """The report that `fn.explain(...)` returns. Print it, or show it in a notebook."""

    def __init__(self, name: str, report: Report | None, how: str, retraces: Retraces):
        self._name = name
        self._how = how
        self._traces = retraces.count
        self._reason = retraces.reason
        self.report = report

    @property
    def collectives(self) -> list[Collective]:
        """What crosses the replicas in one call."""
        return [] if self.report is None else self.report.collectives

    @property
    def plan(self) -> Plan:
        """What the program needs on planned devices.

        Raises:
          ValueError: it is for devices that are here, or is no program.
        """
        if self._plan is None:
            raise ValueError(
                f"There is no plan of {self._name!r}: it runs {self._how}, on devices that are "
                "here. Write explain(..., on='v5e:16x16'), or make the strategy on "
                "rx.config.planned_devices(...)."
            )
        return self._plan

    @property
    def _plan(self) -> Plan | None:
        return None if self.report is None else self.report.plan

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "runs", self._how
        report = self.report
        if report is not None:
            yield "replicas", f"{len(report.devices)}: {', '.join(report.devices)}"
            for index, (each, count) in enumerate(collections.Counter(report.collectives).items()):
                yield "collectives" if index == 0 else "", _in_words(each, count)
            if not report.collectives:
                yield "collectives", "none"
            if report.flops is not None:
                yield "operations", f"{amount(report.flops, 'flop')} per device"
            if report.peak_bytes is not None:
                yield "peak memory", f"{amount(report.peak_bytes)} per device"
            donated = (
                f"{len(report.donated)} variable(s), {amount(report.donated_bytes)} per device"
            )
            yield "updated in place", donated + _listed(report.donated)
            if report.elsewhere:
                text = f"{len(report.elsewhere)} variable(s)" + _listed(report.elsewhere)
                yield "updated elsewhere", text
            yield "only read", f"{len(report.read)} variable(s)" + _listed(report.read)
        yield "traced", f"{self._traces} time(s). {self._reason}"

    def __str__(self) -> str:
        if self._plan is not None:
            return str(self._plan)
        return labelled(f"rx.function {self._name!r}", list(self._rows()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if self._plan is not None:
            return self._plan._repr_html_()
        return _html.table(f"rx.function {self._name!r}", ("", ""), list(self._rows()))


def _in_words(each: Collective, count: int) -> str:
    times = "in a loop of unknown length" if each.times == 0 else f"{count * each.times} time(s)"
    fused = f"{each.tensors} arrays fused, " if each.tensors > 1 else ""
    return f"{each.kind}, {times}: {fused}{amount(each.bytes)} per replica"


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    more = f", and {len(names) - 6} more" if len(names) > 6 else ""
    return ": " + ", ".join(names[:6]) + more


def collectives_of(jaxpr: Any, times: int = 1) -> list[Collective]:
    """Returns the collectives of a traced program and of the loops and branches in it."""
    found: list[Collective] = []
    fused = {
        id(equation.outvars[0]): len(equation.invars)
        for equation in jaxpr.eqns
        if equation.primitive.name == "concatenate"
    }
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if is_collective(equation):
            for operand in equation.invars:
                size = math.prod(operand.aval.shape) * operand.aval.dtype.itemsize
                tensors = fused.get(id(operand), 1)
                found.append(Collective(KINDS[name], tensors, size, times))
        inner_times = times
        if name == "scan":
            inner_times = times * equation.params["length"]
        elif name == "while":
            inner_times = 0
        for inner in _jax_internals.subprograms(equation.params):
            found += collectives_of(inner, inner_times)
    return found


class Retraces:
    """What made a function be traced, call by call."""

    _WARN_EVERY = 12

    def __init__(self) -> None:
        self.count = 0
        self._last: Any = None
        self.reason = "It has not been traced yet."

    def note(self, name: str, arguments: Arguments, where: object, settings: object) -> None:
        self.count += 1
        self.reason = self._difference(arguments, where, settings)
        self._last = (arguments.structure, list(arguments.looks), where, settings)
        if self.count % self._WARN_EVERY == 0:
            warn(
                f"rx.function {name!r} was traced {self.count} times. {self.reason} Python "
                "numbers and objects among the arguments are constants: pass numbers that change "
                "as arrays, jnp.asarray(x); pad arrays to one shape, or drop the remainder. "
                "Shares of a batch have few sizes if the batches have."
            )

    def _difference(self, arguments: Arguments, where: object, settings: object) -> str:
        if self._last is None:
            return "It was called for the first time."
        structure, looks, last_where, last_settings = self._last
        if structure != arguments.structure or len(looks) != len(arguments.looks):
            return "The number or the nesting of the arguments changed."
        changes = [
            f"argument {index} changed from {_said(old)} to {_said(new)}"
            for index, (old, new) in enumerate(zip(looks, arguments.looks))
            if old != new
        ]
        if where != last_where:
            changes.append("it was called under another strategy or in another context")
        if settings != last_settings:
            changes.append("JAX's settings changed")
        if not changes:
            return "The first call made variables; later calls use them."
        text = "; ".join(changes)
        return text[0].upper() + text[1:] + "."


def _said(look: object) -> str:
    return repr(look[1]) if isinstance(look, tuple) and len(look) == 2 else repr(look)
