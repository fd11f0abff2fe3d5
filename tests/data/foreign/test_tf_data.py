"""Pipelines of tf.data: of its stand-in, and of TensorFlow where it is installed."""

import collections
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.data import stand_ins
from tests.data.foreign.sources import batches, from_source, installed, on_host_iterator, rest_after
from tests.pipelines import POLICY, elements, on_host, shares

# ------------------------------------------------------------------ tf.data


@pytest.fixture(params=["stand-in", "installed"])
def tf_pipeline(request: pytest.FixtureRequest, libraries: dict[str, Any]) -> Any:
    """Makes a tf.data.Dataset of batches of 2 rows of a dict of numbers and texts."""

    def stand_in(size: int, policy: str = "AUTO") -> Any:
        spec = {
            "x": stand_ins.TensorSpec((None, 2), "float32"),
            "s": stand_ins.TensorSpec((None,), "string"),
        }
        rows = range(size)
        found = [
            {
                "s": np.array([str(i).encode() for i in rows[first : first + 2]], object),
                "x": np.array([[i, i] for i in rows[first : first + 2]], np.float32),
            }
            for first in range(0, size, 2)
        ]
        return stand_ins.DatasetV2(found, spec, policy)

    if request.param == "stand-in":
        return stand_in
    tf = installed(libraries, "tensorflow")

    def real(size: int, policy: str = "AUTO") -> Any:
        x = np.array([[i, i] for i in range(size)], np.float32)
        rows = {"x": x, "s": [str(i) for i in range(size)]}
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = getattr(
            tf.data.experimental.AutoShardPolicy, policy
        )
        return tf.data.Dataset.from_tensor_slices(rows).batch(2).with_options(options)

    return real


def test_a_tf_data_pipeline(tf_pipeline: Any):
    dataset = from_source(tf_pipeline(5))
    assert dataset.element_spec == {
        "x": rx.TensorSpec([None, 2], np.float32),
        "s": rx.TensorSpec([None], rx.string),
    }
    assert dataset.cardinality() == len(dataset) == 3
    assert elements(dataset)[1:] == [
        {"x": [[2, 2], [3, 3]], "s": [b"2", b"3"]},
        {"x": [[4, 4]], "s": [b"4"]},
    ]
    assert elements(dataset) == elements(dataset)
    with on_host_iterator(tf_pipeline(5), 2) as iterator:
        *_, last = iterator
    assert shares(last["x"]) == [[[4, 4]], []]
    assert shares(last["s"]) == [[b"4"], []]


def test_a_tf_data_pipeline_continues(tf_pipeline: Any):
    one, other = rest_after(lambda: from_source(tf_pipeline(9)), 3)
    assert one == other
    assert len(one) == 2
    everything = from_source(tf_pipeline(4)).skip(5)  # more than there are
    assert elements(everything) == []
    again = from_source(tf_pipeline(4)).repeat(2)
    assert elements(again.skip(3)) == elements(again)[3:]


def test_the_shard_policy_of_a_tf_data_pipeline_is_kept(tf_pipeline: Any):
    for name, policy in [("AUTO", POLICY.DATA), ("OFF", POLICY.OFF), ("DATA", POLICY.DATA)]:
        dataset = on_host(tf_pipeline(4, name), 2)
        assert f"policy: {policy.name} (" in str(dataset)


def test_skipping_is_left_to_tf_data():
    source = stand_ins.DatasetV2(batches(2, 2, 2), stand_ins.TensorSpec((None,), "int32"))
    assert elements(from_source(source).skip(2)) == [[4, 5]]
    assert source.skipped == 2


def test_what_is_no_array_in_tf_data_is_refused():
    ragged = {"r": (stand_ins.RaggedTensorSpec((None, None), "int32"),)}
    with pytest.raises(TypeError, match=r"element\['r'\]\[0\] .* RaggedTensorSpec.*to_tensor\(\)"):
        from_source(stand_ins.DatasetV2([], ragged))


def test_what_is_no_array_in_the_tf_data_that_is_installed_is_refused(libraries: dict[str, Any]):
    tf = installed(libraries, "tensorflow")
    data, rows = tf.data.Dataset, tf.ragged.constant([[1], [2, 3]])
    for source, match in [
        (data.from_tensor_slices(rows).batch(2), r"RaggedTensorSpec.*to_tensor"),
        (data.from_tensor_slices(tf.sparse.eye(3)).batch(2), r"SparseTensorSpec.*to_dense"),
        (data.range(4).window(2), r"DatasetSpec.*flat_map"),
    ]:
        with pytest.raises(TypeError, match=match):
            from_source(source)


def test_pipelines_of_the_tf_data_that_is_installed(libraries: dict[str, Any]):
    tf = installed(libraries, "tensorflow")
    x = np.arange(6, dtype=np.float32)
    Pair = collections.namedtuple("Pair", "a b")
    pairs = from_source(tf.data.Dataset.from_tensor_slices(Pair(x, {"c": x})).batch(4))
    assert elements(pairs)[1] == Pair([4, 5], {"c": [4, 5]})
    half = from_source(tf.data.Dataset.from_tensor_slices(tf.cast(x, tf.bfloat16)).batch(4))
    assert half.element_spec.dtype == jnp.bfloat16
    assert [batch.astype(np.float32).tolist() for batch in half] == [[0, 1, 2, 3], [4, 5]]
    fixed = from_source(tf.data.Dataset.range(5).batch(2, drop_remainder=True))
    assert fixed.element_spec == rx.TensorSpec([2], np.int64) or fixed.element_spec.shape == (2,)
    endless = from_source(tf.data.Dataset.range(3).batch(2).repeat())
    assert endless.cardinality() == rx.data.INFINITE_CARDINALITY
    kept = from_source(tf.data.Dataset.range(9).filter(lambda i: i % 2 == 0).batch(2))
    assert kept.cardinality() == rx.data.UNKNOWN_CARDINALITY
    assert elements(kept) == [[0, 2], [4, 6], [8]]
    with pytest.raises(TypeError, match="from_tensor_slices"):
        from_source(tf.constant(x))
