"""Messages on the wire: one line of JSON each, after a greeting that tells ours from strangers."""

from __future__ import annotations

import json
from typing import Any

from replicax.cluster.control._types import Message

# The first line in both directions. It carries no secret, and makes an HTTP server answer at once.
GREETING = b"replicax-control 1"
# A hello holds the addresses of the whole cluster; nobody else has business with longer ones.
HELLO_LIMIT = 1 << 20
MESSAGE_LIMIT = 16 << 20
# What a worker takes from the server, who joins the messages of all into one.
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


class LineBuffer:
    """Cuts what arrives into lines, none longer than `limit` bytes."""

    def __init__(self, limit: int = HELLO_LIMIT) -> None:
        self.limit = limit
        self._rest = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Returns the lines that `data` completes, without their ends."""
        self._rest += data
        if b"\n" not in data:
            self._check(len(self._rest))
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._check(len(line))
        self._check(len(rest))
        return [line.rstrip(b"\r") for line in lines]

    @property
    def rest(self) -> bytes:
        """What has come of a line that has no end yet."""
        return bytes(self._rest)

    def _check(self, length: int) -> None:
        if length > self.limit:
            raise FramingError(f"a line of more than {self.limit} bytes")
