"""What a scenario may ask of the worker that plays it, on top of the `Library`.

`_worker_of_tensorflow.py` and `_worker_of_replicax.py` make one for their
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._layout import Layout
from ._library import Library
from ._observation import Observation, Seen
from ._pipelines import write_records, write_text


class InJob(Library):
    """A library inside one worker of a job."""

    worker: int
    layout: Layout
    job_strategy: Any
    version: str

    def strategy(self, label: str) -> Any:
        """Returns the strategy of all workers, for the layout that plays."""
        return self.job_strategy

    def by_replica(self, values: Sequence[Any], dtype: str = "float32") -> Any:
        """Returns a distributed value: of `values`, each replica gets the one with its number."""
        return self.per_replica(self.job_strategy, values, dtype)

    def local(self, value: Any) -> Observation:
        """Describes what each replica of this worker has of a value, wrapped or not."""
        return [self.observe(item) for item in self.job_strategy.experimental_local_results(value)]

    def same_everywhere(self, value: Any) -> Observation:
        """Describes a value of which all replicas of this worker have the same."""
        first, *others = self.local(value)
        return first if all(other == first for other in others) else Seen(differ=[first, *others])

    def context(self) -> Any:
        """Returns the current replica context."""
        return self.distribute.get_replica_context()

    def text_files(self, name: str, files: Sequence[Sequence[str]]) -> list[str]:
        """Writes files of lines where all workers find them, and returns their names."""
        return self._shared(name, lambda folder: write_text(folder, files))

    def record_files(self, name: str, files: Sequence[Sequence[str]]) -> list[str]:
        """Writes TFRecord files where all workers find them, and returns their names."""
        return self._shared(name, lambda folder: write_records(self, folder, files))

    def _shared(self, name: str, write: Any) -> list[str]:
        # The workers of a job share a folder. Each writes its own files, of the same contents, and
        # puts them into place at once: whoever reads at that moment reads the same.
        own, shared = Path(f"{name}-{self.worker}"), Path.cwd() / name
        own.mkdir(exist_ok=True)
        shared.mkdir(exist_ok=True)
        written = [Path(file) for file in write(own)]
        return [str(file.replace(shared / file.name)) for file in written]
