"""The chains of `rx.data` and of tf.data, which are written in the same lines."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.input.data import FEATURES, LABEL, PAYLOAD, Data, Rows
from benchmarks.input.streams import Pipeline, Pipelines

WORKERS = 2
SOURCES = ("records FILE", "records DATA", "text FILE", "text DATA", "rows DATA", "half the rows")


class Chains:
    """Data sets of one library.

    Args:
      library: `replicax` or `tensorflow`.
      data: what they read.
      parallel: what `map` gets after the function, where others than workers map.
    """

    def __init__(self, library: Any, data: Data, *parallel: Any):
        self.library, self.data, self.parallel = library, data, parallel
        self.features = {
            FEATURES: library.io.FixedLenFeature([data.d.floats], np.float32),
            LABEL: library.io.FixedLenFeature([], np.int64),
            PAYLOAD: library.io.FixedLenFeature([], library.string),
        }

    def shuffled(self, rows: Rows) -> Any:
        dataset = self.library.data.Dataset.from_tensor_slices(rows.columns)
        return dataset.shuffle(rows.count).repeat()

    def records(self) -> Any:
        return self.library.data.TFRecordDataset(self.data.d.paths(self.data.folder))

    def lines(self) -> Any:
        paths = self.data.e.paths(self.data.folder)
        return self.library.data.TextLineDataset(paths).batch(self.data.e.batch)

    def sampled(self) -> Any:
        """Rows of two data sets, drawn at random until both are read."""
        datasets, half = self.library.data.Dataset, self.data.b.count // 2
        parts = (slice(0, half), slice(half, None))
        halves = [
            datasets.from_tensor_slices(tuple(each[part] for each in self.data.b.columns))
            for part in parts
        ]
        return datasets.sample_from_datasets(halves, [0.5, 0.5], seed=1).batch(self.data.b.batch)

    def bucketed(self) -> Any:
        """Rows of 1 to 59 numbers in batches of similar lengths."""
        return self._rows().bucket_by_sequence_length(self._length, [10, 20, 30, 40], [64] * 5)

    def ragged(self) -> Any:
        """The same rows in batches as they come, filled up, with their lengths."""
        return self._rows().ragged_batch(64).map(self._filled, *self.parallel)

    def _rows(self) -> Any:
        lengths = np.random.default_rng(1).integers(1, 60, self.data.b.count // 8)
        rows = [np.arange(length, dtype=np.int32) for length in lengths]
        signature = self.library.TensorSpec([None], np.int32)
        return self.library.data.Dataset.from_generator(lambda: rows, output_signature=signature)

    def _filled(self, batch: Any) -> Any:
        if isinstance(batch, tuple):  # ours is filled up
            return tuple(batch)
        return batch.to_tensor(), batch.row_lengths()

    def sequences(self) -> Any:
        """Sequence examples of 1 to 59 steps, parsed in batches."""
        train, io = self.library.train, self.library.io
        records = np.empty(self.data.b.count // 32, object)
        lengths = np.random.default_rng(1).integers(1, 60, len(records))
        for index, length in enumerate(lengths.tolist()):
            steps = [
                train.Feature(int64_list=train.Int64List(value=[step])) for step in range(length)
            ]
            lists = {"tokens": train.FeatureList(feature=steps)}
            example = train.SequenceExample(feature_lists=train.FeatureLists(feature_list=lists))
            records[index] = example.SerializeToString()
        features = {"tokens": io.FixedLenSequenceFeature([], np.int64)}

        def parsed(some: Any) -> Any:
            _, found, counts = io.parse_sequence_example(some, sequence_features=features)
            return found["tokens"], counts["tokens"]

        dataset = self.library.data.Dataset.from_tensor_slices(records)
        return dataset.batch(64).map(parsed, *self.parallel)

    def _length(self, row: Any) -> Any:
        return len(row) if isinstance(row, np.ndarray) else self.library.shape(row)[0]

    def parsed(self, some: Any) -> Any:
        return self.library.io.parse_example(some, self.features)

    def parsed_single(self, one: Any) -> Any:
        return self.library.io.parse_single_example(one, self.features)

    def streams(
        self,
        normalise: Callable[[Any, Any], Any],
        host: Callable[[Rows, Any], Pipeline],
        devices: Callable[[Rows, Any], Pipeline],
        files: Callable[[int | None, Any], Pipeline],
    ) -> Pipelines:
        """Returns the pipelines that both libraries have.

        Args:
          normalise: of images and labels.
          host: makes a pipeline of a data set of rows.
          devices: the same, of batches on the devices.
          files: makes a pipeline of a data set of files, which has so many batches; None: whatever
            comes.
        """
        a, b, c, d, e = self.data.a, self.data.b, self.data.c, self.data.d, self.data.e
        shuffled, records, parallel = self.shuffled, self.records, self.parallel

        def normalised() -> Any:
            return shuffled(c).batch(c.batch).map(normalise, *parallel)

        return {
            "a": lambda: host(a, shuffled(a).batch(a.batch)),
            "b": lambda: host(b, shuffled(b).batch(b.batch)),
            "c": lambda: host(c, normalised()),
            "c element": lambda: host(c, shuffled(c).map(normalise, *parallel).batch(c.batch)),
            "a devices": lambda: devices(a, shuffled(a).batch(a.batch)),
            "b devices": lambda: devices(b, shuffled(b).batch(b.batch)),
            "c devices": lambda: devices(c, normalised()),
            "d raw": lambda: files(d.batches, records().batch(d.batch)),
            "d parse": lambda: files(
                d.batches, records().batch(d.batch).map(self.parsed, *parallel)
            ),
            "d parse single": lambda: files(
                d.batches, records().map(self.parsed_single, *parallel).batch(d.batch)
            ),
            "e": lambda: files(e.batches, self.lines()),
            "g sample": lambda: files(b.batches, self.sampled()),
            "g bucket": lambda: files(None, self.bucketed()),
            "g ragged": lambda: files(None, self.ragged()),
            "g sequences": lambda: files(None, self.sequences()),
        }

    def workers(self, distribute: Callable[[Any, int], Pipeline]) -> Pipelines:
        """Returns what a worker reads.

        Args:
          distribute: returns one worker's part of a data set, among so many workers.
        """
        data, library = self.data, self.library
        policies = library.data.experimental.AutoShardPolicy

        def pipeline(dataset: Any, policy: str, workers: int = WORKERS) -> Pipeline:
            options = library.data.Options()
            options.experimental_distribute.auto_shard_policy = policies[policy]
            return distribute(dataset.with_options(options), workers)

        def records() -> Any:
            return self.records().batch(data.d.batch).map(self.parsed, library.data.AUTOTUNE)

        def rows(share: int = 1) -> Any:
            count = data.a.count // share
            columns = tuple(each[:count] for each in data.a.columns)
            dataset = library.data.Dataset.from_tensor_slices(columns)
            return dataset.shuffle(count, seed=1).batch(data.a.batch // share)

        return {
            "records FILE": lambda: pipeline(records(), "FILE"),
            "records DATA": lambda: pipeline(records(), "DATA"),
            "text FILE": lambda: pipeline(self.lines(), "FILE"),
            "text DATA": lambda: pipeline(self.lines(), "DATA"),
            "rows DATA": lambda: pipeline(rows(), "DATA"),
            "half the rows": lambda: pipeline(rows(WORKERS), "DATA", 1),
        }
