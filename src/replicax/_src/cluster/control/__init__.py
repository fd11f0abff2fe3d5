"""The control plane: how workers meet, what each is doing, and how all learn that one is gone.

It moves words, never tensors: JSON lines over TCP, one connection per worker for the life of the
job. Nothing here knows JAX. The `ControlServer` runs in one thread, of the launcher or, where there
is none, of worker 0; each worker has a `ControlClient` with one thread (used by `Membership`).

For a launcher
--------------

    events = queue.SimpleQueue()
    server = ControlServer(
        workers=4,
        host="127.0.0.1", port=0,     # 0: any free port
        key=secrets.token_hex(8),     # a new one for each generation; hellos without it are refused
        generation=0,
        join_timeout=60.0,            # seconds from the first hello until all must be there
        stall_timeout=60.0,           # None: no watchdog
        owns_processes=True,          # process_ended() will be called for each worker of the job
        on_event=events.put,          # called in the server's thread; must not block
    )
    server.start()                    # OSError if the port is taken
    env.update(server.environment())  # REPLICAX_CONTROL, REPLICAX_JOB, REPLICAX_GENERATION
    ...                               # start the workers; TF_CONFIG says who each one is
    server.process_ended(worker, status)   # once it is reaped; Popen.returncode: -9 = SIGKILL
    server.fail("interrupted")        # tell all workers to leave, with this reason (thread-safe)
    server.status()                   # list of WorkerStatus, by worker (thread-safe)
    server.stop()                     # ends the thread and closes all connections; idempotent

A new generation is a new server: new port, new key. Nothing is shared with the old one.

`on_event` gets `Event(kind, worker, text, details)`, with `kind` an `EventKind`:

  arrived   a worker said hello. details: pid, host, device_count, versions
  started   all are there and agree; they start JAX now. worker is None
  refused   they disagree, are too many or too few: nobody may start. text is the whole reason;
            every worker raises it as an exception of its own. worker is None
  status    a worker's progress changed. details: calls, phase, step, busy (also in server.status())
  failed    a worker reported its own failure. text is one line ("ValueError: bad row");
            details: type, message, traceback (which the worker has printed itself already), status
  lost      a worker's connection or process ended without a word: killed or crashed. text says what
            is known ("was killed by SIGKILL", "closed its connection"); details: status or None
  finished  a worker came to the end of its program. details: calls, status (0, or 42: preempted)
  stalled   the watchdog found no progress. worker is the suspect, or None; text is one line;
            details: report (many lines: step, phase and Python stack of each worker), stacks
  down      comes after refused, failed, lost, stalled or fail(): the job is over, every worker has
            been told and leaves on its own, most within 0.1 s (the failed one runs its atexit
            functions); kill what remains after a second. worker and text are the first cause
  done      all workers have finished. details: status (0, or 42 if any was preempted)

Exactly one of `down` and `done` comes, once, and it is the last that matters. After `done`, the
processes still shut down JAX, and end with their own exit status.

A program that never joins (no strategy) is none of the server's business: if all of its processes
end with status 0, `done` comes; it is an error only if others wait for it.

A closed connection, or `process_ended`, before `done` and without a `failed` message makes a worker
`lost`, also one that has finished and waits for the others. A closed connection is `lost` at once,
or with `owns_processes` after at most 0.2 s, in which `process_ended` can say why.

Exit status of a worker: its own for a failure of its own (1 for an exception, n for sys.exit(n));
`LEFT_STATUS` (1) when it leaves because of another; `RESTART_STATUS` (42) preempted after saving.

For other messages between launchers (several hosts), `MessageLoop` and `dial` of this package do
the sockets, framing and greeting; see `_loop.py`.
"""

from replicax._src.cluster.control._client import ControlClient as ControlClient
from replicax._src.cluster.control._dial import Link as Link
from replicax._src.cluster.control._dial import NobodyThere as NobodyThere
from replicax._src.cluster.control._dial import WrongProgram as WrongProgram
from replicax._src.cluster.control._dial import dial as dial
from replicax._src.cluster.control._framing import FramingError as FramingError
from replicax._src.cluster.control._loop import Connection as Connection
from replicax._src.cluster.control._loop import MessageLoop as MessageLoop
from replicax._src.cluster.control._proof import is_proof as is_proof
from replicax._src.cluster.control._proof import launcher_proof as launcher_proof
from replicax._src.cluster.control._proof import new_challenge as new_challenge
from replicax._src.cluster.control._server import ControlServer as ControlServer
from replicax._src.cluster.control._settings import Settings as Settings
from replicax._src.cluster.control._settings import listening_host as listening_host
from replicax._src.cluster.control._sockets import NotThisMachine as NotThisMachine
from replicax._src.cluster.control._sockets import bind as bind
from replicax._src.cluster.control._sockets import joined as joined
from replicax._src.cluster.control._sockets import process_at_port as process_at_port
from replicax._src.cluster.control._types import RESTART_STATUS as RESTART_STATUS
from replicax._src.cluster.control._types import Event as Event
from replicax._src.cluster.control._types import EventKind as EventKind
from replicax._src.cluster.control._types import Message as Message
from replicax._src.cluster.control._types import how_it_ended as how_it_ended
