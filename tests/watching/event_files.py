"""Reads back what was written for TensorBoard: its files are TFRecord files of `Event` messages."""

from pathlib import Path
from typing import Any, NamedTuple

from tensorboardX.proto import event_pb2

import replicax as rx


class Written(NamedTuple):
    """One summary of a file."""

    name: str
    step: int
    value: Any
    """A number, the fields of a histogram or image, or a text."""
    description: str


def events_in(folder: Path) -> list[Written]:
    """All summaries of a folder, in their order."""
    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        records = [bytes(record) for record in rx.data.TFRecordDataset(str(path))]
        events = [_parsed(record) for record in records]
        assert events[0].file_version == "brain.Event:2"
        found += [_written(event, value) for event in events[1:] for value in event.summary.value]
    return found


def scalars_in(folder: Path) -> list[tuple[str, int, float]]:
    return [(each.name, each.step, each.value) for each in events_in(folder)]


def _parsed(record: bytes) -> Any:
    messages: Any = event_pb2  # whose classes are made at run time
    return messages.Event.FromString(record)


def _written(event: Any, value: Any) -> Written:
    assert event.wall_time > 1_500_000_000
    kind = value.WhichOneof("value")
    content = getattr(value, kind)
    if kind == "tensor":
        content = content.float_val[0] if content.float_val else content.string_val[0].decode()
    return Written(value.tag, event.step, content, value.metadata.summary_description)
