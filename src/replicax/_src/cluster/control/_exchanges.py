"""Exchanges: the n-th one of a topic is complete when every worker has put something in."""

from __future__ import annotations

from typing import Any

Key = tuple[str, int]


class Exchanges:
    """What has been put into the exchanges that are not complete."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open: dict[Key, dict[int, Any]] = {}
        self._gone: set[int] = set()

    def put(self, key: Key, worker: int, payload: Any) -> list[Any] | None:
        """Adds a worker's part; returns all parts by worker if that was the last one."""
        parts = self._open.setdefault(key, {})
        parts[worker] = payload
        if len(parts) < self._workers:
            return None
        del self._open[key]
        return [parts[each] for each in range(self._workers)]

    def missing(self, key: Key) -> list[int]:
        """Who has put nothing in yet."""
        parts = self._open.get(key, {})
        return [worker for worker in range(self._workers) if worker not in parts]

    def never_completed(self, key: Key) -> list[int]:
        """Who has left without its part, so that the others would wait for nothing."""
        return [worker for worker in self.missing(key) if worker in self._gone]

    def leave(self, worker: int) -> list[tuple[Key, list[int]]]:
        """Notes that a worker puts nothing in any more.

        Returns:
          The exchanges that can never be complete now, each with those who wait in it.
        """
        self._gone.add(worker)
        return [(key, sorted(parts)) for key, parts in self._open.items() if worker not in parts]
