"""The features check themselves when they are built."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from replicax._src._arrays import STRING
from replicax._src.records import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseTensor,
    VarLenFeature,
    parse_example,
    to_dense,
)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", "float32"),
        (np.float32, "float32"),
        (jnp.float32, "float32"),
        (np.dtype("int64"), "int64"),
        (jnp.int64, "int64"),
        (float, "float32"),
        (int, "int64"),
        ("string", STRING),
        (str, STRING),
        (bytes, STRING),
        (STRING, STRING),
    ],
)
def test_dtypes(dtype: Any, expected: Any):
    assert FixedLenFeature([], dtype).dtype == VarLenFeature(dtype).dtype == np.dtype(expected)


@pytest.mark.parametrize("dtype", [None, "int32", np.float64, bool, "text", [1], complex])
def test_dtypes_that_no_example_has(dtype: Any):
    with pytest.raises(ValueError, match="VarLenFeature is float32, int64 or rx.string.*Received"):
        VarLenFeature(dtype)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([], ()), ((2, 3), (2, 3)), (3, (3,)), (np.array([4]), (4,)), ([0], (0,))],
)
def test_shapes(shape: Any, expected: tuple[int, ...]):
    assert FixedLenFeature(shape, "int64").shape == expected


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"\[None\] has None in it.*FixedLenSequenceFeature"):
        FixedLenFeature([None], "int64")
    with pytest.raises(ValueError, match="0 or more. Received"):
        FixedLenFeature([-1], "int64")
    with pytest.raises(TypeError, match="is a list of sizes.*'abc'"):
        FixedLenFeature("abc", "int64")
    with pytest.raises(ValueError, match="has no values"):
        FixedLenSequenceFeature([0], "int64", allow_missing=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "expected"),
    [
        ([], "float32", 3, 3.0),
        ([2], "float32", [1, 2.5], [1.0, 2.5]),
        ([2, 2], "int64", [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ([2, 1], "int64", [[1], [2]], [[1], [2]]),
        ([], bytes, "text", b"text"),
        ([2], bytes, [b"a", "b"], [b"a", b"b"]),
        ([2], "int64", np.array([5, 6]), [5, 6]),
        ([0], "int64", np.zeros(0, np.int64), []),
    ],
)
def test_defaults(shape: Any, dtype: Any, default: Any, expected: Any):
    row = FixedLenFeature(shape, dtype, default).default_row
    assert row is not None and row.tolist() == expected and row.shape == tuple(shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "error", "words"),
    [
        ([2], "float32", 7.0, ValueError, r"default_value=7.0 has 1 values, but shape \[2\] has 2"),
        ([], "int64", 3.5, TypeError, "dtype int64 cannot be 3.5"),
        ([], "int64", "a", TypeError, "dtype int64 cannot be 'a'"),
        ([], bytes, 3, TypeError, "dtype string cannot be 3"),
    ],
)
def test_wrong_defaults(shape: Any, dtype: Any, default: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        FixedLenFeature(shape, dtype, default)


def test_padding_is_one_value():
    assert FixedLenSequenceFeature([2], "int64", True).padding == 0
    assert FixedLenSequenceFeature([2], bytes, True).padding == b""
    assert FixedLenSequenceFeature([2], "int64", True, -1).padding == -1
    with pytest.raises(ValueError, match="give a single value"):
        FixedLenSequenceFeature([2], "int64", True, [1, 2])


def test_equality_and_repr():
    assert FixedLenFeature([2], float, np.array([1.0, 2.0])) == FixedLenFeature(
        (2,), "float32", [1, 2]
    )
    assert FixedLenFeature([2], float) != FixedLenFeature([2], int)
    assert hash(VarLenFeature(str)) == hash(VarLenFeature(bytes))
    assert repr(VarLenFeature(str)) == "VarLenFeature(dtype=string)"
    assert (
        repr(FixedLenFeature([], int, 3))
        == "FixedLenFeature(shape=(), dtype=int64, default_value=3)"
    )


@pytest.mark.parametrize(
    ("features", "error", "words"),
    [
        ({}, ValueError, "`features` is empty"),
        (FixedLenFeature([], int), TypeError, "is a dict from the name of each feature"),
        ({"x": int}, TypeError, "The feature 'x' must be an rx.io.FixedLenFeature"),
        ({3: VarLenFeature(int)}, TypeError, "names of features are `str`. Received 3"),
        ({"x": FixedLenSequenceFeature([], int)}, ValueError, "without `allow_missing=True`"),
    ],
)
def test_wrong_collections_of_features(features: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        parse_example([], features)


def test_no_values_are_a_default_of_every_dtype():
    for dtype in ("int64", "float32", "string"):
        feature = FixedLenFeature([0], dtype, [])
        assert feature.default_row is not None and feature.default_row.shape == (0,)
        assert parse_example([b"", b""], {"a": feature})["a"].shape == (2, 0)


@pytest.mark.parametrize("shape", [[2**62], [2**31, 2**31], [0, 2**70], [2**80]])
def test_a_shape_of_more_values_than_an_array_has(shape: list[int]):
    with pytest.raises(ValueError, match="more values than an array can have.*check its sizes"):
        FixedLenFeature(shape, "int64")


def test_lists_in_a_sparse_tensor_become_arrays():
    sparse = SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 3])
    assert [each.dtype for each in sparse] == [np.int64, np.float32, np.int64]
    assert to_dense(sparse).tolist() == [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]
    words = SparseTensor([[1]], ["a"], [2])
    assert to_dense(words).tolist() == [b"", b"a"]
    assert SparseTensor([], [], [2, 2]).indices.shape == (0, 2)
    assert SparseTensor([[0]], [2**40], [1]).values.dtype == np.int64
    with pytest.raises(ValueError, match="2 indices for 1 values"):
        SparseTensor([[0], [1]], [1.0], [2])
