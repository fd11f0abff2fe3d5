"""The queue of a coordinator: functions go to workers that are free; what was lost is tried again.

Each worker has two threads here, so that it has its next function when it has finished one.
"""

from __future__ import annotations

import collections
import itertools
import pickle
import threading
import time
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

from replicax._src._errors import WorkerLostError, add_note
from replicax._src._warnings import warn
from replicax._src.parameter_servers._coordinator_view import CoordinatorView
from replicax._src.parameter_servers._packing import known_optimizer, numbers, packed, unpacked
from replicax._src.parameter_servers._remote_value import RemoteValue, cancelled
from replicax._src.parameter_servers._servers import ActorHandle, connected_ray, lost_errors
from replicax._src.parameter_servers._staleness import Staleness, StalenessLimit
from replicax._src.parameter_servers._worker import Call, Ending, Outcome
from replicax._src.strategies import Strategy

_QUEUED = 256 * 1024  # functions that wait; TensorFlow's number
_AT_ONCE = 2  # messages that a worker has been sent, so that it always has the next one
_IN_A_MESSAGE = 16  # functions
_SECONDS_OF_A_MESSAGE = 0.02  # that the functions usually take
_ATTEMPTS = 20  # workers that may be lost while one function runs
_SUSPICIOUS = 3  # of them
_GIVEN_UP = 3  # workers that a function may stand still on
_WATCHED_EVERY = 1.0  # seconds
_STILL = 60.0  # seconds without any progress, after which `join` says what runs
_STARTED_WITHIN = 180.0  # seconds, for a worker that was lost
_CLOSED_WITHIN = 5.0  # seconds
_GRACE = 2.0  # seconds, for functions that run when another one has failed


@final
class Closure:
    """A function that was scheduled.

    Attributes:
      kept: what references in it lead to.
    """

    def __init__(
        self,
        token: str,
        function: int,
        code: bytes,
        arguments: bytes,
        value: RemoteValue,
        kept: Sequence[object] = (),
    ):
        self.token = token
        self.function = function
        self.code = code
        self.arguments = arguments
        self.value = value
        self.kept = kept
        self.attempts = 0
        self.given_up = 0  # attempts that took too long
        self.round = 0  # how many errors had been raised when it began
        self.optimizers: dict[int, bytes] = {}


@final
class _Lane:
    """One worker."""

    def __init__(self, index: int, actor: ActorHandle):
        self.index = index
        self.actor = actor
        self.lock = threading.RLock()
        self.known: set[int] = set()  # the functions that it has
        self.gone: collections.deque[int] = collections.deque()  # objects that it is to forget
        numbers.tell(self.gone)
        self.is_down = False  # lost, and being started again
        self.is_gone = False  # for long
        self.made = 0  # values of its own, of those that all workers are to have
        self.lives = 0


@final
class _Running:
    """A function that a worker has been sent."""

    def __init__(self, closure: Closure, worker: int):
        self.closure = closure
        self.worker = worker
        self.since = time.monotonic()


@final
class Dispatcher:
    """Runs functions on the workers of a cluster."""

    def __init__(
        self,
        strategy: Strategy,
        view: CoordinatorView,
        workers: list[ActorHandle],
        strategy_id: str,
        max_staleness: int | None = None,
        function_timeout: float | None = None,
    ):
        self.staleness = Staleness()
        self.max_staleness = max_staleness
        self.function_timeout = function_timeout
        self._is_one_at_a_time = max_staleness is not None or function_timeout is not None
        self._limit = StalenessLimit(max_staleness)
        self.lost_workers = 0
        self._strategy = weakref.ref(strategy)
        self._view = view
        self._strategy_id = strategy_id
        self._lanes = [_Lane(index, actor) for index, actor in enumerate(workers)]
        self._changed = threading.Condition()
        self._queue: collections.deque[Closure] = collections.deque()
        self._running: dict[str, _Running] = {}  # by token
        self._round = 0  # how many errors were raised
        self._error: BaseException | None = None
        self._is_closed = threading.Event()
        self._makers: list[tuple[int, bytes]] = []
        self._seconds: dict[int, float] = {}  # that functions usually take, by their numbers
        self._building = threading.Lock()
        self._threads = [
            threading.Thread(
                target=self._serve, args=(lane,), name=f"rx.worker-{lane.index}", daemon=True
            )
            for lane in self._lanes
            for _ in range(1 if self._is_one_at_a_time else _AT_ONCE)
        ]
        self._threads.append(threading.Thread(target=self._watch, name="rx.servers", daemon=True))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads; functions that have not begun do not run."""
        self._is_closed.set()
        with self._changed:
            self._cancel()
            self._changed.notify_all()
        deadline = time.monotonic() + _CLOSED_WITHIN  # for functions that run
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------------ the coordinator's side

    def put(self, closure: Closure) -> None:
        """Lets a function run when a worker is free. Raises the error of an earlier one."""
        with self._changed:
            self._raise_error()
            while (
                len(self._queue) >= _QUEUED and self._error is None and not self._is_closed.is_set()
            ):
                self._changed.wait()
            self._raise_error()
            if self._is_closed.is_set():
                raise RuntimeError(
                    "This coordinator was closed, and runs no functions. Make another one, "
                    "ClusterCoordinator(strategy)."
                )
            self._queue.append(closure)
            self._changed.notify_all()

    def add_maker(self, number: int, code: bytes) -> None:
        """Lets each worker make a value of its own, before its next function."""
        self._makers.append((number, code))

    def join(self) -> None:
        """Waits until all functions have run. Raises the first error of one."""
        with self._changed:
            while True:
                self._raise_error()
                if not self._running and not self._queue and self._error is None:
                    return
                if not self._changed.wait(timeout=_STILL):
                    self._tell_who_is_waited_for()

    def _tell_who_is_waited_for(self) -> None:
        """Warns of functions that take long: perhaps a worker stands still."""
        now = time.monotonic()
        texts = [
            f"{each.closure.value!r} on worker {each.worker}, for {now - each.since:.0f} s"
            for each in self._running.values()
            if now - each.since >= _STILL
        ]
        if texts:
            warn(f"coordinator.join() waits for functions that are not done: {'; '.join(texts)}.")

    def is_done(self) -> bool:
        """Returns whether all functions have run. Raises the first error of one."""
        with self._changed:
            self._raise_error()
            return not self._running and not self._queue

    def _raise_error(self) -> None:
        """Raises the error, when the functions that were running then have had time to end."""
        if self._error is None:
            return
        deadline = time.monotonic() + _GRACE
        while self._running and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(timeout=left)
        error, self._error = self._error, None
        if error is not None:  # no other thread has raised it meanwhile
            self._round += 1
            raise error

    def _cancel(self) -> None:
        while self._queue:
            closure = self._queue.popleft()
            closure.value.fail(cancelled(repr(closure.value)))

    def _fail(self, error: BaseException, round_: int | None = None) -> None:
        """Takes note of an error, unless it is of a function from before the last one."""
        with self._changed:
            if round_ is not None and round_ != self._round:
                return
            if self._error is None:
                self._error = error
            self._cancel()
            self._changed.notify_all()

    # ------------------------------------------------------------------ the workers' side

    def _serve(self, lane: _Lane) -> None:
        while self._serve_next(lane):
            pass  # nothing of functions that have run is kept here

    def _serve_next(self, lane: _Lane) -> bool:
        """Sends a worker what it runs next; returns whether there was something."""
        closures = self._take(lane)
        if not closures:
            return False
        lost, revives = None, False
        left = list(closures)  # those that have not ended
        try:
            lost = self._try(lane, left)
        except BaseException as error:  # such as that the cluster is gone
            for closure in left:
                closure.value.fail(error)
            self._fail(error, closures[0].round)
            left.clear()
        finally:
            with self._changed:
                for closure in closures:
                    del self._running[closure.token]
                    self._limit.end(closure.token)
                for closure in reversed(left):
                    self._give_back(closure)
                if lost == lane.lives and not lane.is_down:  # else another thread revives it
                    lane.is_down = revives = True
                self._changed.notify_all()
        if lost is not None and revives:
            self._revive(lane, lost)
        return True

    def _take(self, lane: _Lane) -> list[Closure]:
        """Returns the functions that a worker is sent next; none at the end."""
        with self._changed:
            while not self._is_closed.is_set():
                if self._queue and not lane.is_down and self._limit.admits(self._queue[0].function):
                    taken = [self._queue.popleft() for _ in range(self._count())]
                    for closure in taken:
                        closure.round = self._round
                        self._running[closure.token] = _Running(closure, lane.index)
                        self._limit.begin(closure.token, closure.function)
                    return taken
                self._changed.wait(timeout=60)
            return []

    def _count(self) -> int:
        """Returns how many functions go in one message: several, if they are short and many."""
        if self._is_one_at_a_time:
            return 1
        most = min(_IN_A_MESSAGE, len(self._queue) // (_AT_ONCE * len(self._lanes)))
        count, seconds = 0, 0.0
        for closure in itertools.islice(self._queue, most):
            seconds += self._seconds.get(closure.function, _SECONDS_OF_A_MESSAGE)
            if seconds > _SECONDS_OF_A_MESSAGE or closure.attempts:
                break  # also one whose worker was lost: perhaps it is the reason
            count += 1
        return max(1, count)

    def _give_back(self, closure: Closure) -> None:
        """Lets a function run elsewhere: it is the next one."""
        with self._changed:
            if self._is_wanted(closure):
                self._queue.appendleft(closure)
                self._changed.notify()
            else:
                closure.value.fail(cancelled(repr(closure.value)))

    def _is_wanted(self, closure: Closure) -> bool:
        """Returns whether a function is still to run: no error was seen since it was taken."""
        is_current = self._error is None and closure.round == self._round
        return is_current and not self._is_closed.is_set()

    def _try(self, lane: _Lane, left: list[Closure]) -> int | None:
        """Sends functions to a worker, until they have ended there or the worker is lost.

        Args:
          lane: the worker.
          left: the functions. Those that end are taken away.

        Returns:
          Which start of the worker was lost, or None.
        """
        ray = connected_ray()
        while left:
            lives = lane.lives
            try:
                outcomes, large = self._call(ray, lane, left)
            except lost_errors(ray) as error:
                for closure in left:
                    closure.attempts += 1
                self._tell_who_is_lost(left[0], str(error).splitlines()[0])
                return lives
            except ray.exceptions.GetTimeoutError:
                self._give_up(ray, lane, left[0])
                return lives
            ended = [
                self._end(lane, lives, closure, outcome, large)
                for closure, outcome in zip(left, outcomes, strict=False)
            ]
            left[:] = [
                closure
                for index, closure in enumerate(left)
                if index >= len(ended) or not ended[index]
            ]
            with self._changed:
                if not left or not self._is_wanted(left[0]):
                    return None
        return None

    def _tell_who_is_lost(self, closure: Closure, reason: str) -> None:
        """Warns of a function that was lost with several workers: perhaps it ends them."""
        text = f"{closure.value!r} was sent to {closure.attempts} workers that were lost"
        if closure.attempts >= _ATTEMPTS:
            raise WorkerLostError(
                f"{text}, and is not tried again. The last one: {reason}"
            ) from None
        if closure.attempts == _SUSPICIOUS:
            warn(
                f"{text}; it runs again elsewhere, {_ATTEMPTS} times at most. If it is the reason, "
                f"look for memory that it needs, or code that ends its process. The last one: "
                f"{reason}"
            )

    def _give_up(self, ray: ModuleType, lane: _Lane, closure: Closure) -> None:
        """Ends a worker on which a function stands still, and lets Ray start it again."""
        ray.kill(lane.actor, no_restart=False)
        closure.attempts += 1
        closure.given_up += 1
        text = (
            f"{closure.value!r} did not end within {self.function_timeout:g} s on worker "
            f"{lane.index}, the function_timeout of the coordinator. The worker was ended, and is "
            "started again"
        )
        if closure.given_up >= _GIVEN_UP:
            raise WorkerLostError(
                f"{text}. That was the function's attempt {closure.given_up}; it is not tried "
                "again. If it only needs longer, also to compile, give a larger function_timeout."
            )
        warn(f"{text}; the function runs again elsewhere.")

    def _end(
        self, lane: _Lane, lives: int, closure: Closure, outcome: Outcome, large: object
    ) -> bool:
        """Does what follows from how a function ended. Returns whether it need not run again."""
        match outcome.ending:
            case Ending.DONE:
                self.staleness.add(outcome.staleness)
                with self._changed:
                    self._limit.made(closure.function, len(outcome.staleness))
                    before = self._seconds.get(closure.function, outcome.seconds)
                    self._seconds[closure.function] = 0.8 * before + 0.2 * outcome.seconds
                closure.value.set(outcome.detail, large)
                return True
            case Ending.FAILED:
                error = as_error(outcome, lane.index)
                closure.value.fail(error)
                self._fail(error, closure.round)
                return True
            case Ending.NEEDS_CODE:
                lane.known.discard(closure.function)
            case Ending.NEEDS_VALUES:
                self._started_again(lane, lives)
            case Ending.NEEDS_BUILD:
                closure.optimizers |= self._built(*outcome.detail)
            case Ending.SERVER_LOST:
                error = self._server_lost(*outcome.detail)
                if error is not None:
                    closure.value.fail(error)
                    self._fail(error, closure.round)
                    return True
            case Ending.NOT_RUN:
                pass
        return False

    def _call(
        self, ray: ModuleType, lane: _Lane, closures: Sequence[Closure]
    ) -> tuple[list[Outcome], Any]:
        """Sends functions to a worker. Returns how they ended, and where large results are."""
        lives = list(self._view.servers.lives)
        with lane.lock:
            gone = [lane.gone.popleft() for _ in range(len(lane.gone))]
            lane.known.difference_update(gone)
            for number in gone:
                self._seconds.pop(number, None)
                self._limit.forget(number)
            for number, code in self._makers[lane.made :]:
                ray.get(lane.actor.create.remote(number, code, lives))
                lane.made += 1
            calls: list[Call] = []
            for closure in closures:
                code = None if closure.function in lane.known else closure.code
                lane.known.add(closure.function)
                arguments = closure.arguments
                calls.append(
                    Call(closure.token, closure.function, code, arguments, closure.optimizers)
                )
            outcomes, large = lane.actor.run.options(num_returns=2).remote(calls, lives, gone)
        return ray.get(outcomes, timeout=self.function_timeout), large

    def _revive(self, lane: _Lane, lives: int) -> None:
        """Waits until a worker that was lost has been started again."""
        try:
            self._await_start(lane)
        except Exception as error:  # such as that the cluster is gone
            self._fail(error)
        self._started_again(lane, lives)
        with self._changed:
            lane.is_down = lane.is_gone = False
            self._changed.notify_all()

    def _await_start(self, lane: _Lane) -> None:
        limit = time.monotonic() + _STARTED_WITHIN
        while not self._is_closed.is_set():
            ray = connected_ray()
            try:
                ray.get(lane.actor.ready.remote(), timeout=_WATCHED_EVERY)
                return
            except (*lost_errors(ray), ray.exceptions.GetTimeoutError) as error:
                if time.monotonic() > limit:
                    self._tell_who_is_gone(lane, str(error))
                self._is_closed.wait(0.05)

    def _tell_who_is_gone(self, lane: _Lane, reason: str) -> None:
        """Warns that a worker is not started again; if there is no other one, that is an error."""
        text = (
            f"Worker {lane.index} was lost, and is not started again: "
            f"{reason.strip().splitlines()[-1] if reason.strip() else 'Ray has no room for it'}"
        )
        if not lane.is_gone:
            lane.is_gone = True
            warn(f"{text}. Functions run on other workers; Ray goes on trying.")
        if self._queue and all(each.is_gone for each in self._lanes):
            self._fail(WorkerLostError(f"{text}. There is no other worker."))

    def _started_again(self, lane: _Lane, lives: int) -> None:
        """Takes note that a worker has nothing of what its earlier process had."""
        with lane.lock:
            if lane.lives == lives:
                lane.known.clear()
                lane.made = 0
                lane.lives += 1
                self.lost_workers += 1

    def _built(self, number: int, structure: bytes) -> dict[int, bytes]:
        """Makes the state of an optimizer that has none yet; returns what the worker is told."""
        optimizer: Any = numbers.find(number)
        strategy = self._strategy()
        assert strategy is not None  # the coordinator holds it
        with self._building:
            if known_optimizer(optimizer) is None:
                with strategy.scope():
                    optimizer.build(unpacked(structure))
        return {number: packed(known_optimizer(optimizer), self._strategy_id, "The optimizer")}

    # ------------------------------------------------------------------ lost servers

    def _server_lost(
        self, server: int, keys: list[int] | None, reason: str, life: int
    ) -> BaseException | None:
        """Returns an error, or None if the server only had to be told of the optimizers."""
        if keys is None:
            self._view.server_gone(server, life)
        elif not keys:
            time.sleep(0.05)
            return None
        return self._view.unavailable(server, keys or (), reason or "it was started again")

    def _watch(self) -> None:
        """Looks whether all servers are there, also when no function asks them."""
        while not self._is_closed.wait(_WATCHED_EVERY):
            try:
                error = self._view.look_after_servers()
            except Exception:  # the cluster itself is gone, which functions notice
                continue
            if error is not None:
                self._fail(error)


def as_error(outcome: Outcome, worker: int) -> BaseException:
    """Returns the exception of a function, with a note that says where it was raised."""
    data, text = outcome.detail
    error: BaseException
    if data is None:
        error = RuntimeError(text.strip().splitlines()[-1])
    else:
        error = pickle.loads(data)
    add_note(error, f"Raised in a function on worker {worker}:\n{text}")
    return error
