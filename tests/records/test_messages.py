"""`Example` and its parts: protobuf messages that get along with TensorFlow's."""

import subprocess
import sys

import pytest

from replicax._src.records import BytesList, Example, Feature, Features, FloatList, Int64List

# tf.train.Example(...).SerializeToString(), of TensorFlow 2.21.
RECORDED = b"\n\x10\n\x0e\n\x01x\x12\t\x1a\x07\n\x05\x01\xac\x02\xff\x01"


def make() -> Example:
    feature = Feature(int64_list=Int64List(value=[1, 300, 255]))
    return Example(features=Features(feature={"x": feature}))


def test_bytes_are_those_of_tensorflow():
    assert make().SerializeToString() == RECORDED


def test_reading_back():
    read = Example.FromString(RECORDED)
    assert read == make()
    assert list(read.features.feature["x"].int64_list.value) == [1, 300, 255]
    other = Example()
    other.ParseFromString(RECORDED)
    assert other == read


def test_filling_step_by_step():
    example = Example()
    example.features.feature["x"].int64_list.value.extend([1, 300, 255])
    assert example.SerializeToString() == RECORDED


def test_one_kind_of_list():
    feature = Feature(float_list=FloatList(value=[1.0]))
    assert feature.WhichOneof("kind") == "float_list"
    feature.bytes_list.value.append(b"a")
    assert feature.WhichOneof("kind") == "bytes_list"


def test_isinstance():
    assert isinstance(make(), Example) and not isinstance(make(), Feature)
    assert isinstance(make().features, Features)
    assert not isinstance(3, BytesList)


def test_wrong_fields_and_values():
    with pytest.raises(ValueError, match="no_such"):
        Example(no_such=1)
    with pytest.raises(TypeError):
        FloatList(value=["text"])
    with pytest.raises(AttributeError):
        _ = Example.no_such


def test_import_loads_neither_protobuf_nor_crc32c():
    program = (
        "import sys, replicax.io; from replicax._src.records import Example, TFRecordWriter; "
        "print(*[name for name in ('google.protobuf', 'crc32c') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": "src", "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert result.stdout.split() == []


def test_another_message_of_the_same_name_may_exist():
    """As TensorFlow registers in the common pool, under the names that are used here too."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="replicax/example.proto", package="replicax")
    file.message_type.add(name="Example")
    descriptor_pool.Default().Add(file)
    assert make().SerializeToString() == RECORDED
