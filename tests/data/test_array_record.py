"""ArrayRecord files, read by index. Against a stand-in, and the package where it is installed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from tests.data import stand_ins
from tests.pipelines import all_workers, elements, flat

ArrayRecordDataset = rx.data.ArrayRecordDataset


@pytest.fixture(params=["stand-in", "installed"])
def write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a file of records, and returns its name."""
    if request.param == "stand-in":
        for name, module in stand_ins.array_record_modules().items():
            monkeypatch.setitem(sys.modules, name, module)

        def stand_in(path: Path, records: list[bytes]) -> str:
            path.write_bytes(b"\n".join(records))
            return str(path)

        return stand_in
    package = pytest.importorskip("array_record.python.array_record_module")

    def real(path: Path, records: list[bytes]) -> str:
        writer = package.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
        return str(path)

    return real


@pytest.fixture
def names(write: Callable[..., str], tmp_path: Path) -> list[str]:
    """Two files, with 7 and 5 records that are numbered through."""
    return [
        write(tmp_path / "a", numbered(range(7))),
        write(tmp_path / "b", numbered(range(7, 12))),
    ]


def numbered(numbers: range) -> list[bytes]:
    return [b"record %d" % number for number in numbers]


def test_records_of_files_one_after_the_other(names: list[str]):
    dataset = ArrayRecordDataset(names)
    assert elements(dataset) == numbered(range(12))
    assert elements(dataset.batch(5)) == [
        numbered(range(5)),
        numbered(range(5, 10)),
        numbered(range(10, 12)),
    ]
    assert len(dataset) == 12
    assert dataset.element_spec == rx.TensorSpec([], rx.string)
    assert elements(ArrayRecordDataset(names[1])) == numbered(range(7, 12))
    assert elements(ArrayRecordDataset(Path(names[1]))) == numbered(range(7, 12))


def test_shuffled_and_continued_by_index(names: list[str]):
    def make() -> Any:
        return ArrayRecordDataset(names).shuffle(12, seed=4).batch(5)

    assert sorted(flat(elements(make()))) == sorted(numbered(range(12)))
    one, other = iter(make()), iter(make())
    next(one)
    other.set_state(one.get_state())
    assert elements(one) == elements(other)


def test_workers_read_only_their_records(
    write: Callable[..., str], names: list[str], monkeypatch: pytest.MonkeyPatch
):
    read: list[int] = []
    monkeypatch.setattr(stand_ins.ArrayRecordDataSource, "read", read)
    found, _ = all_workers(lambda: ArrayRecordDataset(names).batch(4), 1, 2)
    assert found[0] == [[numbered(range(i, i + 2))] for i in (0, 4, 8)]
    assert sorted(flat(found)) == sorted(numbered(range(12)))
    if read:  # the stand-in counts
        assert sorted(read) == list(range(12))


def test_functions_run_for_what_is_used_only(names: list[str]):
    seen: list[bytes] = []

    def keep(record: bytes) -> bytes:
        seen.append(record)
        return record

    assert elements(ArrayRecordDataset(names).map(keep).skip(10)) == numbered(range(10, 12))
    assert seen == numbered(range(10, 12))


def test_missing_files_are_named(names: list[str], tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ArrayRecordDataset([names[0], str(tmp_path / "nowhere")])


def test_damaged_files_are_named(names: list[str], tmp_path: Path):
    path = tmp_path / "bad"
    path.write_bytes(b"damaged\n" * 100)
    with pytest.raises(rx.errors.DataLossError, match="bad' is damaged") as raised:
        ArrayRecordDataset([*names, str(path)])
    assert raised.value.path == str(path)


def test_damage_inside_is_named_with_its_place(
    write: Callable[..., str], names: list[str], tmp_path: Path
):
    path = tmp_path / "bad"
    write(path, [b"fine", b"broken", b"fine"])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"broken", b"broker"))  # the stand-in goes by the text
    if path.stat().st_size < 100:
        path.write_bytes(content)
    dataset = ArrayRecordDataset([names[0], str(path), names[1]])
    assert elements(dataset.take(8))[-1] == b"fine"
    with pytest.raises(rx.errors.DataLossError, match="bad' is damaged.*at byte") as raised:
        elements(dataset.batch(4))
    assert raised.value.path == str(path)
    assert isinstance(raised.value.offset, int)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    with pytest.raises(ImportError, match=r"pip install 'replicax\[arrayrecord\]'"):
        ArrayRecordDataset("file")
