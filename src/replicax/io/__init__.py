"""`rx.io`: files, TFRecords and the examples in them, and images, without TensorFlow."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src.files import read_file as read_file
from replicax._src.files import write_file as write_file
from replicax._src.records import FixedLenFeature as FixedLenFeature
from replicax._src.records import FixedLenSequenceFeature as FixedLenSequenceFeature
from replicax._src.records import PaddedRows as PaddedRows
from replicax._src.records import RaggedFeature as RaggedFeature
from replicax._src.records import SparseTensor as SparseTensor
from replicax._src.records import TFRecordOptions as TFRecordOptions
from replicax._src.records import TFRecordWriter as TFRecordWriter
from replicax._src.records import VarLenFeature as VarLenFeature
from replicax._src.records import parse_example as parse_example
from replicax._src.records import parse_sequence_example as parse_sequence_example
from replicax._src.records import parse_single_example as parse_single_example
from replicax._src.records import parse_single_sequence_example as parse_single_sequence_example
from replicax._src.records import to_dense as to_dense
from replicax.io import gfile as gfile

if _TYPE_CHECKING:
    from replicax._src.images import decode_bmp as decode_bmp
    from replicax._src.images import decode_gif as decode_gif
    from replicax._src.images import decode_image as decode_image
    from replicax._src.images import decode_jpeg as decode_jpeg
    from replicax._src.images import decode_png as decode_png
    from replicax._src.images import encode_jpeg as encode_jpeg
    from replicax._src.images import encode_png as encode_png
    from replicax._src.images import is_jpeg as is_jpeg
else:
    __all__, __getattr__, __dir__ = _load_on_demand(
        __name__,
        {
            "replicax._src.images": "decode_bmp decode_gif decode_image decode_jpeg decode_png "
            "encode_jpeg encode_png is_jpeg",
        },
    )
