"""Parsing examples: shapes, defaults, unusual forms, and every error."""

from typing import Any

import numpy as np
import pytest

from replicax._src._arrays import STRING
from replicax._src.records import (
    Example,
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Records,
    SparseTensor,
    VarLenFeature,
    parse_example,
    parse_single_example,
    to_dense,
)
from tests.records.wire import (
    entry,
    example,
    feature,
    field,
    floats,
    packed_floats,
    record,
    unpacked_floats,
    varint,
)

TWO = FixedLenFeature([2], "float32")
TWO_OR = FixedLenFeature([2], "float32", [7, 8])


def plain(value: Any) -> Any:
    """Lists instead of arrays."""
    if isinstance(value, SparseTensor):
        return tuple(part.tolist() for part in value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def parse(native: bool, serialized: Any, **features: Any) -> dict[str, Any]:
    parsed = parse_example(serialized, features, native=native)
    for name, value in parsed.items():
        values = value.values if isinstance(value, SparseTensor) else value
        assert values.dtype == features[name].dtype
    return {name: plain(value) for name, value in parsed.items()}


def test_one_of_each(native: bool):
    records = [example(f=[1.5, -2.5], i=[-1, 2**63 - 1], s=[b"", b"abc"]) for _ in range(3)]
    found = parse_example(
        records,
        {
            "f": FixedLenFeature([2], "float32"),
            "i": FixedLenFeature([1, 2], "int64"),
            "s": FixedLenFeature([2, 1], bytes),
        },
        native=native,
    )
    assert found["f"].dtype == np.float32 and found["f"].tolist() == [[1.5, -2.5]] * 3
    assert found["i"].dtype == np.int64 and found["i"].tolist() == [[[-1, 2**63 - 1]]] * 3
    assert found["s"].dtype == STRING and found["s"].tolist() == [[[b""], [b"abc"]]] * 3
    assert list(found) == ["f", "i", "s"]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_any_number_of_records(native: bool, count: int):
    records = [example(x=[float(i), 0.5], n=[i * 100]) for i in range(count)]
    found = parse(native, records, x=TWO, n=FixedLenFeature([], "int64"))
    assert found == {
        "x": [[float(i), 0.5] for i in range(count)],
        "n": [i * 100 for i in range(count)],
    }


def test_forms_of_serialized(native: bool):
    contents = [example(x=[1.0, 2.0]), example(x=[3.0, 4.0])]
    objects = np.empty(2, object)
    objects[:] = contents
    records = Records.from_list(contents)
    shuffled = Records(b"junk" + bytes(records.buffer), records.starts + 4, records.lengths)
    arrays = Records(records.bytes_of_buffer, records.starts, records.lengths)
    for serialized in (contents, tuple(contents), objects, records, shuffled, arrays):
        assert parse(native, serialized, x=TWO) == {"x": [[1, 2], [3, 4]]}
    assert parse(native, shuffled.select([1, 1, 0]), x=TWO) == {"x": [[3, 4], [3, 4], [1, 2]]}


def test_arrays_can_be_changed(native: bool):
    found = parse_example([example(x=[1.0, 2.0], n=[1])], {"x": TWO}, native=native)
    found["x"][0] = 5


def test_features_that_are_not_asked_for(native: bool):
    records = [example(x=[1.0, 2.0], other=[b"z" * i]) for i in (1, 1, 200, 1, 3, 1, 1, 1, 1, 1)]
    assert parse(native, records, x=TWO) == {"x": [[1, 2]] * 10}


def test_features_in_different_orders(native: bool):
    x, y = entry(b"x", packed_floats(1, 2)), entry(b"y", packed_floats(3))
    other = entry(b"abc", packed_floats(3))
    records = [record(x, y), record(y, x), record(y, x, other), record(other, x, y)] * 9
    found = parse(native, records, x=TWO, y=FixedLenFeature([], float))
    assert found == {"x": [[1, 2]] * 36, "y": [3] * 36}


def test_missing_features_and_defaults(native: bool):
    records = [example(x=[1.0, 2.0]), example(), b"", example(x=Feature())]
    assert parse(native, records, x=TWO_OR) == {"x": [[1, 2], [7, 8], [7, 8], [7, 8]]}
    strings = [example(s=[b"a"]), example()]
    found = parse(native, strings, s=FixedLenFeature([], bytes, "none"))
    assert found == {"s": [b"a", b"none"]}


def test_sparse(native: bool):
    records = [example(x=[1.0, 2.0, 3.0]), example(), example(x=feature([])), example(x=[5.0])]
    found = parse_example(records, {"x": VarLenFeature("float32")}, native=native)
    indices = [[0, 0], [0, 1], [0, 2], [3, 0]]
    assert plain(found["x"]) == (indices, [1, 2, 3, 5], [4, 3])
    assert to_dense(found["x"], -1).tolist() == [[1, 2, 3], [-1] * 3, [-1] * 3, [5, -1, -1]]
    found = parse(native, [example(), example()], x=VarLenFeature(int))
    assert found == {"x": ([], [], [2, 0])}


def test_sparse_strings(native: bool):
    records = [example(s=[b"a", b""]), example(), example(s=[b"c" * 300])]
    found = parse_example(records, {"s": VarLenFeature(str)}, native=native)["s"]
    assert plain(found) == ([[0, 0], [0, 1], [2, 0]], [b"a", b"", b"c" * 300], [3, 2])
    assert to_dense(found).tolist() == [[b"a", b""], [b"", b""], [b"c" * 300, b""]]
    assert to_dense(found, "no")[1].tolist() == [b"no", b"no"]


def test_padded(native: bool):
    records = [example(x=[1, 2, 3, 4]), example(), example(x=[5, 6])]
    rows = FixedLenSequenceFeature([2], int, allow_missing=True)
    padded = FixedLenSequenceFeature([], int, allow_missing=True, default_value=-1)
    zeros = [[0, 0], [0, 0]]
    expected = [[[1, 2], [3, 4]], zeros, [[5, 6], [0, 0]]]
    assert parse(native, records, x=rows) == {"x": expected}
    assert parse(native, records, x=padded) == {"x": [[1, 2, 3, 4], [-1] * 4, [5, 6, -1, -1]]}
    assert parse_example([], {"x": rows}, native=native)["x"].shape == (0, 0, 2)


def test_all_integers(native: bool):
    values = [0, 1, 127, 128, -1, 2**31, 2**63 - 1, -(2**63), *(1 << b for b in range(63))]
    records = [example(n=values), example(n=values[::-1])]
    found = parse(native, records, n=FixedLenFeature([len(values)], int))
    assert found == {"n": [values, values[::-1]]}


def test_single(native: bool):
    serialized = example(x=[1.0, 2.0], n=[3], s=[b"a"], many=[4, 5])
    found = parse_single_example(
        serialized,
        {
            "x": TWO,
            "n": FixedLenFeature([], int),
            "s": FixedLenFeature([], bytes),
            "many": VarLenFeature(int),
            "rows": FixedLenSequenceFeature([2], int, allow_missing=True),
            "default": TWO_OR,
            "nothing": FixedLenFeature([], int, 9),
        },
        native=native,
    )
    assert {name: plain(value) for name, value in found.items()} == {
        "x": [1, 2],
        "n": 3,
        "s": b"a",
        "many": ([[0], [1]], [4, 5], [2]),
        "rows": [],
        "default": [7, 8],
        "nothing": 9,
    }
    assert found["n"].dtype == np.int64 and type(found["s"]) is bytes
    assert found["rows"].shape == (0, 2)
    found["default"][0] = 1  # a copy: the default stays
    assert parse_single_example(b"", {"x": TWO_OR})["x"].tolist() == [7, 8]
    assert parse_example(serialized, {"x": TWO}, native=native)["x"].tolist() == [1, 2]
    scalar = np.array(serialized, object)
    assert parse_single_example(scalar, {"x": TWO})["x"].tolist() == [1, 2]  # type: ignore[arg-type]


# Forms that are allowed and never written by TensorFlow, and what protobuf makes of them.
ODD: dict[str, tuple[bytes, list[float]]] = {
    "unpacked": (record(entry(b"x", unpacked_floats(1, 2))), [1, 2]),
    "two pieces": (
        record(entry(b"x", field(2, field(1, floats(1)) + field(1, floats(2))))),
        [1, 2],
    ),
    "packed and unpacked": (
        record(entry(b"x", field(2, field(1, floats(1)) + b"\x0d" + floats(2)))),
        [1, 2],
    ),
    "two lists": (record(entry(b"x", packed_floats(1) + packed_floats(2))), [1, 2]),
    "two kinds, the last counts": (
        record(entry(b"x", field(3, field(1, b"\x05")) + packed_floats(1, 2))),
        [1, 2],
    ),
    "twice, the last counts": (
        record(entry(b"x", packed_floats(3)), entry(b"x", packed_floats(1, 2))),
        [1, 2],
    ),
    "twice, the last is odd": (
        record(entry(b"x", packed_floats(3)), entry(b"x", unpacked_floats(1, 2))),
        [1, 2],
    ),
    "twice, the last is empty": (
        record(entry(b"x", packed_floats(3)), entry(b"x", b"")),
        [7, 8],
    ),
    "two messages of features": (
        record(entry(b"x", packed_floats(3))) + record(entry(b"x", packed_floats(1, 2))),
        [1, 2],
    ),
    "value before key": (
        record(field(1, field(2, packed_floats(1, 2)) + field(1, b"x"))),
        [1, 2],
    ),
    "value in two parts": (
        record(field(1, field(1, b"x") + field(2, packed_floats(1)) + field(2, packed_floats(2)))),
        [1, 2],
    ),
    "no value": (record(field(1, field(1, b"x"))), [7, 8]),
    "no key": (record(field(1, field(2, packed_floats(3)))), [7, 8]),
    "unknown field in the example": (
        record(entry(b"x", packed_floats(1, 2))) + field(3, b"?"),
        [1, 2],
    ),
    "unknown field in the feature": (
        record(entry(b"x", field(4, b"?") + packed_floats(1, 2))),
        [1, 2],
    ),
    "only an unknown field": (record(entry(b"x", field(4, b"?"))), [7, 8]),
    "key that is no text": (
        record(entry(b"\xff", packed_floats(3)), entry(b"x", packed_floats(1, 2))),
        [1, 2],
    ),
    "malformed, but not asked for": (
        record(entry(b"y", b"\xff\xff"), entry(b"x", packed_floats(1, 2))),
        [1, 2],
    ),
    "long form of a length": (
        b"\x0a\x93\x80\x00" + entry(b"x", packed_floats(1, 2)),
        [1, 2],
    ),
}


@pytest.mark.parametrize("form", ODD)
def test_unusual_forms(native: bool, form: str):
    odd, expected = ODD[form]
    usual = [example(x=[float(i), 0.5]) for i in range(10)]
    records = [*usual, odd, *usual[:2], odd]
    rows = [[i, 0.5] for i in range(10)]
    found = parse(native, records, x=TWO_OR)
    assert found == {"x": [*rows, expected, *rows[:2], expected]}
    assert parse_single_example(odd, {"x": TWO_OR}, native=native)["x"].tolist() == expected
    if expected == [1, 2]:
        found = parse(native, [odd, usual[3]], x=VarLenFeature("float32"))
        assert found["x"][1] == [1, 2, 3, 0.5]


def test_unpacked_integers(native: bool):
    odd = record(entry(b"n", field(3, b"\x08\x05\x08\xac\x02")))
    found = parse(native, [odd, example(n=[1, 2])], n=FixedLenFeature([2], int))
    assert found == {"n": [[5, 300], [1, 2]]}


def test_lengths_of_many_bytes(native: bool):
    large = [b"a" * 20_000, b"b" * 3_000_000, b"c" * 200]
    records = [example(s=large), example(s=large)]
    assert parse(native, records, s=FixedLenFeature([3], bytes)) == {"s": [large, large]}


def test_names_that_are_not_ascii(native: bool):
    records = [example(**{"größe": [1.0, 2.0], "x" * 300: [3.0]})]
    features: dict[str, Any] = {"größe": TWO, "x" * 300: FixedLenFeature([], float)}
    assert parse(native, records, **features) == {"größe": [[1, 2]], "x" * 300: [3]}


def test_many_features(native: bool):
    names = [f"feature{i}" for i in range(150)]
    records = [example(**{name: [i] for i, name in enumerate(names)}) for _ in range(10)]
    found = parse(native, records, **{name: FixedLenFeature([], int) for name in names})
    assert found == {name: [i] * 10 for i, name in enumerate(names)}


# ---- errors -------------------------------------------------------------------------------------

GOOD = example(x=[1.0, 2.0], y=[1])
BAD: dict[str, tuple[bytes, Any, str]] = {
    "missing": (
        example(y=[1], z=[2]),
        TWO,
        "The feature 'x' is missing in record 2 of the batch, which has 'y', 'z'. Correct the "
        "name, or give FixedLenFeature(shape=(2,), dtype=float32) a `default_value`",
    ),
    "empty record": (b"", TWO, "which has no features"),
    "too many": (
        example(x=[1.0, 2.0, 3.0]),
        TWO,
        "The feature 'x' of record 2 of the batch has 3 values, but shape [2] has 2",
    ),
    "too few, in spite of a default": (example(x=feature([])), TWO_OR, "has 0 values, but shape"),
    "wrong kind": (
        example(x=[1, 2]),
        TWO,
        "The feature 'x' of record 2 of the batch holds values of int64, but float32 was expected",
    ),
    "wrong kind, though empty": (
        example(x=feature([], "int64")),
        VarLenFeature("float32"),
        "holds values of int64, but float32",
    ),
    "wrong kind, unpacked": (
        record(entry(b"x", field(3, b"\x08\x05"))),
        TWO,
        "holds values of int64, but float32",
    ),
    "no whole rows": (
        example(x=[1.0, 2.0, 3.0]),
        FixedLenSequenceFeature([2], float, allow_missing=True),
        "has 3 values, which is no whole number of rows of shape [2] with 2",
    ),
    "no example": (
        b"hello world",
        TWO,
        "record 2 of the batch is not a serialized tf.train.Example",
    ),
    "cut off": (GOOD[:-1], TWO, "record 2 of the batch is not a serialized tf.train.Example"),
    "malformed feature": (
        record(entry(b"x", b"\x12\x05\x0a")),
        TWO,
        "The feature 'x' of record 2 of the batch cannot be read",
    ),
    "half a float": (
        record(entry(b"x", field(2, field(1, bytes(5))))),
        TWO,
        "The feature 'x' of record 2 of the batch cannot be read",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_record_and_feature(native: bool, case: str):
    bad, wanted, words = BAD[case]
    for records in ([GOOD, GOOD, bad], [GOOD, GOOD, bad, *[GOOD] * 10]):
        with pytest.raises(ValueError) as info:
            parse_example(records, {"x": wanted}, native=native)
        assert words in str(info.value)
    with pytest.raises(ValueError) as info:
        parse_single_example(bad, {"x": wanted}, native=native)
    assert words.replace("record 2", "record 0") in str(info.value)


def test_names_of_records_in_errors(native: bool):
    with pytest.raises(ValueError, match=r"record 1 of the batch \('bob'\)"):
        parse_example([GOOD, b""], {"x": TWO}, ["ann", "bob"], native=native)
    with pytest.raises(ValueError, match=r"record 0 of the batch \('eve'\)"):
        parse_single_example(b"", {"x": TWO}, "eve", native=native)
    with pytest.raises(ValueError, match="has 1 names for 2 records"):
        parse_example([GOOD, GOOD], {"x": TWO}, ["ann"], native=native)


@pytest.mark.parametrize(
    "value", [b"\xff" * 9 + b"\x02", b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\x01", b"\x80"]
)
def test_integers_that_are_too_long(native: bool, value: bytes):
    """Where protobuf draws the line is its own business; both ways must draw the same."""
    odd = record(entry(b"n", field(3, field(1, value))))
    wanted = {"n": VarLenFeature(int)}
    try:
        expected = Example.FromString(odd).features.feature["n"].int64_list.value
    except Exception:
        for serialized in ([odd], [example(n=[1]), odd]):
            with pytest.raises(ValueError, match="cannot be read"):
                parse_example(serialized, wanted, native=native)
        with pytest.raises(ValueError, match="cannot be read"):
            parse_single_example(odd, wanted, native=native)
    else:
        found = parse_example([odd], wanted, native=native)["n"].values.tolist()
        assert found == list(expected)
        assert parse_single_example(odd, wanted)["n"].values.tolist() == list(expected)


@pytest.mark.parametrize(
    ("serialized", "error", "words"),
    [
        ("text", TypeError, "Received str"),
        ([GOOD, "text"], TypeError, "index 1"),
        (None, TypeError, "Received NoneType"),
        (np.array([GOOD]), TypeError, "loses zero bytes"),
        (np.array([[GOOD]], object), ValueError, r"one dimension. Received shape \(1, 1\)"),
    ],
)
def test_wrong_serialized(serialized: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        parse_example(serialized, {"x": TWO})


def test_single_takes_one_record():
    with pytest.raises(TypeError, match="For several records use `parse_example`"):
        parse_single_example([GOOD], {"x": TWO})  # type: ignore[arg-type]


def test_varint_of_the_tests():
    assert [varint(n) for n in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"]
