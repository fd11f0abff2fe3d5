"""Messages on the wire: one line of JSON each, after a greeting that tells ours from strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, final

from replicax._src.cluster.control._types import Message

# The first line in both directions; the listener's goes on with a challenge. It carries no secret,
# and makes an HTTP server answer at once.
GREETING = b"replicax-control 2"
# What is read of a connection before its greeting, and of a member of the job.
GREETING_LIMIT = 64
MESSAGE_LIMIT = 16 << 20
# What a worker takes from the server, which joins the messages of all into one.
ANSWER_LIMIT = 4 << 30


class FramingError(ValueError):
    """What came is not a message of ours."""


def encode(message: Message) -> bytes:
    """Returns the line for a message; TypeError or ValueError if it is not made of JSON types."""
    return json.dumps(message, separators=(",", ":"), allow_nan=True).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Returns the message of a line."""
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FramingError(f"not JSON: {line[:60]!r}") from error
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise FramingError(f"not a message: {line[:60]!r}")
    return message


@final
class LineBuffer:
    """Cuts what arrives into lines, none longer than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that `data` completes, without their ends.

        Each may change `limit` for those after it.
        """
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._append(end)
            line = bytes(self._rest)
            self._rest.clear()
            yield line.rstrip(b"\r")
        self._append(rest)

    @property
    def rest(self) -> bytes:
        """What has come of a line that has no end yet."""
        return bytes(self._rest)

    def _append(self, data: bytes) -> None:
        if len(self._rest) + len(data) > self.limit:
            raise FramingError(f"a line of more than {self.limit} bytes")
        self._rest += data
