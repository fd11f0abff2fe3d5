"""What a checkpoint holds, by name, as `objects.json` describes it: read, and looked at closely.

A file with the right checksum may still have been made by somebody else. Whoever uses the objects
relies on their form, so that whatever has another form is refused here, before anything is set.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from replicax._src._arrays import is_number
from replicax._src.checkpoints._graph import Kind
from replicax._src.checkpoints._leaf import number_from_json, state_from_json
from replicax._src.checkpoints._manifest import damaged, open_regular
from replicax._src.checkpoints._names import OBJECTS


def read_objects(path: str) -> tuple[list[dict[str, Any]], str | None]:
    """Returns the objects of the checkpoint at `path`, the root first, and whose names they have.

    Raises:
      DamagedCheckpointError: they are not of the form that a save gives them.
    """
    try:
        with open(open_regular(path, OBJECTS), "rb") as file:
            content = json.load(file)
        objects, spelling = content["objects"], content.get("spelling")
    except FileNotFoundError:
        raise damaged(path, f"the file {OBJECTS} is missing") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise damaged(path, f"{OBJECTS} has no list of objects") from None
    if not isinstance(objects, list) or not objects:
        raise damaged(path, f"{OBJECTS} has no list of objects")
    for check in (_has_a_name, _has_sound_links, _has_a_sound_value):
        for index, each in enumerate(objects):
            if not check(each, objects):
                raise damaged(path, f"object {index} in {OBJECTS} is not of a checkpoint's form")
    if spelling is not None and not isinstance(spelling, str):
        raise damaged(path, f"{OBJECTS} has no sound 'spelling'")
    return objects, spelling


def _has_a_name(each: object, objects: list[Any]) -> bool:
    if not isinstance(each, dict) or not isinstance(each.get("path"), str):
        return False
    return each.get("kind") in tuple(Kind)


def _has_sound_links(each: dict[str, Any], objects: list[dict[str, Any]]) -> bool:
    children, slots = each.get("children", {}), each.get("slots", [])
    return (
        isinstance(children, dict)
        and all(_is_below(child, len(objects)) for child in children.values())
        and isinstance(slots, list)
        and all(_is_slot(slot, objects) for slot in slots)
    )


def _is_slot(slot: object, objects: list[dict[str, Any]]) -> bool:
    if not isinstance(slot, list) or len(slot) != 4:
        return False
    owner, position, label, node = slot
    return (
        (owner is None or _is_below(owner, len(objects)))
        and (position is None or _is_below(position, 1 << 63))
        and isinstance(label, str)
        and _is_below(node, len(objects))
        and objects[node]["kind"] == Kind.VARIABLE
    )


def _has_a_sound_value(each: dict[str, Any], objects: list[dict[str, Any]]) -> bool:
    kind = each["kind"]
    try:
        if kind in (Kind.VARIABLE, Kind.ARRAY):
            return _is_array(each)
        if kind == Kind.NUMBER:
            return is_number(number_from_json(each["value"]))
        if kind == Kind.STATE:
            return isinstance(each["states"], list) and bool(state_from_json(each["states"]))
    except Exception:  # whatever base64, NumPy and the rest of them find wrong
        return False
    return True


def _is_array(each: dict[str, Any]) -> bool:
    dtype, keys = each["dtype"], each["keys"]
    if dtype == "key":
        has_dtype = isinstance(keys, str)
    else:
        has_dtype = isinstance(dtype, str) and np.dtype(dtype) is not None and keys is None
    shape = each["shape"]
    return (
        has_dtype
        and _are_counts(shape)
        and _are_counts(each.get("copies", []))
        and ("parts" not in each or _are_parts(each["parts"], shape[0] if shape else 1))
    )


def _are_parts(parts: object, rows: int) -> bool:
    """Returns whether it says of each part which server wrote it, and with which row it begins."""
    if not isinstance(parts, list) or not parts or not all(map(_are_counts, parts)):
        return False
    if any(len(part) != 2 for part in parts):
        return False
    starts = [start for _, start in parts]
    return starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < max(1, rows)


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(_is_below(count, 1 << 63) for count in value)


def _is_below(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit
