"""Where a row of a batch came from: which record of which file."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.under_test import cpus

FILES, RECORDS = 4, 20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of records that have the number of the file, and their own in it."""
    folder = tmp_path_factory.mktemp("files")
    for file in range(FILES):
        with rx.io.TFRecordWriter(folder / f"part-{file}.tfrecord") as writer:
            for number in range(RECORDS):
                writer.write(np.array([file, number], np.float32).tobytes())
    return [str(folder / f"part-{file}.tfrecord") for file in range(FILES)]


def parse(record: bytes) -> Any:
    return np.frombuffer(record, "<f4")


def interleaved(files: list[str]) -> Any:
    names = rx.data.Dataset.from_tensor_slices(files)
    return names.interleave(rx.data.TFRecordDataset, cycle_length=2)


PIPELINES: dict[str, Callable[[list[str]], Any]] = {
    "in order": lambda files: rx.data.TFRecordDataset(files).map(parse).batch(9),
    "interleaved": lambda files: interleaved(files).map(parse).batch(8).prefetch(2),
    "shuffled": lambda files: interleaved(files).shuffle(30).map(parse).batch(8).repeat(2),
    "a function of batches": lambda files: interleaved(files).map(parse).batch(8).map(np.abs),
}


@pytest.mark.parametrize("which", PIPELINES)
@pytest.mark.parametrize("distributed", [True, False])
def test_the_record_of_a_row(files: list[str], which: str, distributed: bool):
    data = PIPELINES[which](files)
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    iterator = iter(strategy.experimental_distribute_dataset(data) if distributed else data)
    batch: Any = [next(iterator) for _ in range(3)][-1]
    rows = np.concatenate([np.asarray(each) for each in getattr(batch, "values", [batch])])
    found = iterator.whence(3, 5, 2)
    file, number = rows[5].astype(int)
    assert found.text == f"record {number} of part-{file}.tfrecord (records from 0)"
    np.testing.assert_array_equal(found.leaves[0], rows[5])


def test_a_worker_that_reads_files_of_its_own(files: list[str]):
    data = PIPELINES["in order"](files)
    strategy = rx.distribute.MirroredStrategy(cpus(4))
    iterator = iter(strategy.experimental_distribute_dataset(data))
    found = iterator.whence(3, 1, 1, workers=4, worker=2)  # shares of 2, 2, 3 and 2 rows in turn
    assert found.text == "record 5 of part-2.tfrecord (records from 0)"


def test_rows_of_arrays_and_of_nothing_that_is_known():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    x = np.arange(40, dtype=np.float32)

    def first(data: Any) -> str:
        iterator = iter(strategy.experimental_distribute_dataset(data.batch(8)))
        batch: Any = next(iterator)
        assert (expected := float(batch.values[0][2])) == iterator.whence(1, 2, 2).leaves[0]
        return iterator.whence(1, 2, 2).text.replace(f" {expected:.0f} ", " that ")

    assert first(rx.data.Dataset.from_tensor_slices(x).shuffle(40)) == "row that of the arrays"
    spec = rx.TensorSpec((), np.float32)
    assert first(rx.data.Dataset.from_generator(lambda: x, output_signature=spec)) == ""
