"""Into how many parts variables are cut: as TensorFlow 2.21's partitioners do."""

import json
from pathlib import Path

import pytest

import replicax as rx

partitioners = rx.distribute.experimental.partitioners
RECORDED = json.loads(
    (Path(__file__).parent / "recorded" / "facts.json").read_text(encoding="utf-8")
)
KINDS = {
    "fixed 2 of (10,3)": (partitioners.FixedShardsPartitioner(2), (10, 3), 0),
    "fixed 2 of (10,3) axis 1": (partitioners.FixedShardsPartitioner(2), (10, 3), 1),
    "fixed 3 of (1,3)": (partitioners.FixedShardsPartitioner(3), (1, 3), 0),
    "min 4 max_shards 10 (6,1)": (partitioners.MinSizePartitioner(4, 10), (6, 1), 0),
    "min default (1000,100)": (partitioners.MinSizePartitioner(), (1000, 100), 0),
    "min default max 2 (100000,100)": (
        partitioners.MinSizePartitioner(max_shards=2),
        (100000, 100),
        0,
    ),
    "min 256k max 8 (100000,100)": (
        partitioners.MinSizePartitioner(256 << 10, 8),
        (100000, 100),
        0,
    ),
    "max 4 (6,1)": (partitioners.MaxSizePartitioner(4), (6, 1), 0),
    "max 20 (6,1)": (partitioners.MaxSizePartitioner(20), (6, 1), 0),
    "max 1024 (6,1)": (partitioners.MaxSizePartitioner(1024), (6, 1), 0),
    "max 4 max_shards 2 (6,1)": (partitioners.MaxSizePartitioner(4, max_shards=2), (6, 1), 0),
    "max 8 (6,3)": (partitioners.MaxSizePartitioner(8), (6, 3), 0),
    "max 100 (1000,7)": (partitioners.MaxSizePartitioner(100), (1000, 7), 0),
}


@pytest.mark.parametrize("name", KINDS)
def test_as_tensorflow(name: str):
    partitioner, shape, axis = KINDS[name]
    assert partitioner(shape, "float32", axis=axis) == RECORDED["partitioners"][name]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: partitioners.MinSizePartitioner(min_shard_bytes=0), "min_shard_bytes"),
        (lambda: partitioners.MinSizePartitioner(max_shards=0), "max_shards"),
        (lambda: partitioners.MinSizePartitioner(bytes_per_string=0), "bytes_per_string"),
        (lambda: partitioners.MaxSizePartitioner(max_shard_bytes=0), "max_shard_bytes"),
        (lambda: partitioners.FixedShardsPartitioner(0), "num_shards"),
    ],
)
def test_sizes_are_positive(make, name: str):
    with pytest.raises(ValueError, match=f"`{name}` must be positive; got 0"):
        make()


def test_numbers_are_integers():
    with pytest.raises(TypeError, match="`num_shards` must be an integer; got 2.5"):
        partitioners.FixedShardsPartitioner(2.5)  # pyright: ignore[reportArgumentType]
