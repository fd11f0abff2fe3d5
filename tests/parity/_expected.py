"""Short spellings of observations, for what `@ours` expects."""

from __future__ import annotations

from typing import Any

ON_READ_IN_CENTRAL_STORAGE = "sync-on-read variables have a copy on each compute device"
"""A reason that several scenarios give."""


def array(value: Any, dtype: str = "float32") -> dict[str, Any]:
    """What `observe` says of an array."""
    return {"kind": "array", "dtype": dtype, "value": value}


def per_replica(*values: Any) -> dict[str, Any]:
    """What `observe` says of a per-replica value of arrays."""
    return {"kind": "PerReplica", "values": [array(value) for value in values]}


def mirrored(value: Any, replicas: int = 2) -> dict[str, Any]:
    """What `observe` says of a mirrored value of arrays."""
    return {"kind": "Mirrored", "values": [array(value)] * replicas}


def mirrored_variable(value: Any, replicas: int = 2) -> dict[str, Any]:
    """What `observe` says of a mirrored variable."""
    return {"kind": "MirroredVariable", "copies": [{"dtype": "float32", "value": value}] * replicas}


def sync_on_read_variable(*copies: Any) -> dict[str, Any]:
    """What `observe` says of a sync-on-read variable."""
    return {
        "kind": "SyncOnReadVariable",
        "copies": [{"dtype": "float32", "value": copy} for copy in copies],
    }


def raises(error: str) -> dict[str, Any]:
    """What `outcome` says of an action that raised."""
    return {"raises": error}
