"""The compiled executor: one trace of the replica function, for all replicas at once.

It works inside the program that `rx.function` traces (`functions/_trace.py`). The replica function
is called once, with each replica's components as tracers; where replicas meet there is nobody to
wait for, only values that differ from replica to replica.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from replicax._src._typing import Device
from replicax._src.context import EACH, Frame, ReplicaContext, entered, thread_state
from replicax._src.devices import replicas_on
from replicax._src.values import regroup_traced, select_replica

Handler = Callable[[Any], Any]


class SpmdExecutor:
    """Runs replica functions inside a program that is being traced."""

    def run(
        self,
        strategy: Any,
        devices: tuple[Device, ...],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        program = thread_state.program
        program.require_devices(strategy, devices)
        if replicas_on(devices) == 1:
            with entered(Frame(strategy, ReplicaContext(strategy, 0))):
                return fn(*select_replica(0, args), **select_replica(0, kwargs))
        with program.replicas(fn) as provenance:

            def meet(
                key: Hashable, what: str, payload: Any, handler: Handler, keep_same: bool
            ) -> Any:
                program.end_turns()
                is_same = provenance.is_same if keep_same else None
                with entered(Frame(strategy)):
                    result = handler(regroup_traced(payload, is_same=is_same))
                return provenance.handed_out(result)

            context = ReplicaContext(strategy, EACH, meet=meet)
            args, kwargs = provenance.handed_out((args, kwargs))
            with entered(Frame(strategy, context)):
                result = fn(*args, **kwargs)
            return regroup_traced(result, is_same=provenance.is_same)
