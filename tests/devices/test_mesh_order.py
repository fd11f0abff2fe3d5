"""The order in which programs are told to the other workers is that in which they are launched."""

from __future__ import annotations

import threading
from collections.abc import Callable

import jax

from replicax._src.devices import Beginning, ReplicaDevices, ReplicaMesh, replica_mesh


class Notes:
    """Stands in for the other workers."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.told: list[str] = []
        self._meanwhile = meanwhile

    def before_call(self, what: str) -> None:
        self.told.append(what)
        if what == "first":
            self._meanwhile()

    def require_same(self, topic: str, what: str, content: str = "") -> bool:
        return True

    def begin_together(self, mesh: ReplicaMesh, beginning: Beginning, what: str) -> None:
        beginning.begin(beginning.value)

    def await_beginning(self, beginning: Beginning) -> None:
        pass

    def settle_beginnings(self) -> None:
        pass

    def name_of(self, worker: int) -> str:
        return f"worker {worker}"


def test_another_thread_cannot_come_between_telling_and_launching():
    launched: list[str] = []

    def program(what: str) -> list[None]:
        launched.append(what)
        return [None]

    def call(what: str) -> None:
        mesh.call(program, [], what, what=what)

    other = threading.Thread(target=call, args=("second",), daemon=True)

    def meanwhile() -> None:
        other.start()
        other.join(0.3)  # it could end here only if it overtook

    notes = Notes(meanwhile)
    here = jax.devices()[:1]
    mesh = replica_mesh(ReplicaDevices([[each] for each in here], coworkers=notes))
    call("first")
    other.join(60)
    assert notes.told == launched == ["first", "second"]
