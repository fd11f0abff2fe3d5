"""TensorFlow's description of what was saved, in the form that ours has: see `objects.json`.

Since TensorFlow 2 a checkpoint has the objects that were saved and how they are connected, as one
more tensor. Earlier ones have names of variables alone.
"""

from __future__ import annotations

from typing import Any

from replicax._src.checkpoints._graph import Kind
from replicax._src.checkpoints.foreign._bundle import Bundle, Tensor
from replicax._src.checkpoints.foreign._messages import parsed
from replicax._src.checkpoints.foreign._spelling import ITERATIONS, STATE_LISTS

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_VALUE = "VARIABLE_VALUE"

# How TensorFlow 1 names the state of optimizers: after the name of the variable.
_SLOT_NAMES = frozenset(
    "Adam Adam_1 Momentum RMSProp RMSProp_1 Adagrad Adadelta Adadelta_1 Ftrl Ftrl_1 LAMB".split()
)
_STEP = "global_step"
# What Keras's optimizers call all of their state, and the variables that they update.
_STATE, _LEARNT = "_variables _trainable_variables".split()
# Settings of optimizers that TensorFlow keeps in variables, and Optax in Python.
_SETTINGS = frozenset("learning_rate decay beta_1 beta_2 momentum rho epsilon".split())


def objects_of(bundle: Bundle) -> list[dict[str, Any]]:
    """Returns what is in a checkpoint; each variable has the name of its tensor as `tensor`.

    Raises:
      ValueError: the description of the objects is not sound.
    """
    if GRAPH not in bundle.tensors:
        return _by_name(bundle)
    content = bundle.read(GRAPH)
    text = None if content.shape else content.item()
    if not isinstance(text, bytes):
        raise ValueError(f"{GRAPH} is not one text")
    nodes = list(parsed("ObjectGraph", text).nodes)
    if not nodes:
        raise ValueError(f"{GRAPH} has no objects")
    objects: list[dict[str, Any]] = [{"kind": Kind.OBJECT, "path": ""} for _ in nodes]
    for node, each in zip(nodes, objects):
        each["children"] = {child.local_name: child.node_id for child in node.children}
        each["slots"] = [
            [slot.original_variable_node_id, None, slot.slot_name, slot.slot_variable_node_id]
            for slot in node.slot_variables
        ]
        linked = [*each["children"].values(), *(i for s in each["slots"] for i in (s[0], s[3]))]
        if any(not 0 <= index < len(nodes) for index in linked):
            raise ValueError(f"{GRAPH} names objects that it does not have")
    for node, each in zip(nodes, objects[:]):
        for attribute in node.attributes:
            tensor = bundle.tensors.get(attribute.checkpoint_key)
            if tensor is None:
                raise ValueError(f"{GRAPH} names {attribute.checkpoint_key!r}, which is not there")
            if attribute.name == _VALUE:
                each |= _described(tensor, Kind.VARIABLE)
            elif tensor.dtype_name != "string" or tensor.shape:  # settings of Python objects
                each["children"][f".ATTRIBUTES/{attribute.name}"] = len(objects)
                objects.append({"path": "", **_described(tensor, Kind.ARRAY)})
    for each in objects:
        each["slots"] = [
            slot for slot in each.get("slots", ()) if objects[slot[3]]["kind"] == Kind.VARIABLE
        ] + _slots_in_lists(each, objects)
        if each["slots"]:
            _mark_settings(each, objects)
    _name(objects)
    return objects


def _described(tensor: Tensor, kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind,
        "tensor": tensor.name,
        "dtype": tensor.dtype_name,
        "shape": list(tensor.shape),
        "keys": None,
    }


def _slots_in_lists(each: dict[str, Any], objects: list[dict[str, Any]]) -> list[list[Any]]:
    """Returns the state of an optimizer of Keras, which has lists of it beside its variables."""
    children = each.get("children", {})
    lists = {name: children[name] for name in STATE_LISTS if name in children}
    if _STATE not in children and not lists:
        return []
    owners = objects[children[_LEARNT]] if _LEARNT in children else {}
    slots: list[list[Any]] = []
    for name, index in lists.items():
        for position, node in objects[index].get("children", {}).items():
            if position.isdecimal() and objects[node]["kind"] == Kind.VARIABLE:
                owner = owners.get("children", {}).get(position)
                slots.append([owner, int(position), name, node])
    count = next((children[name] for name in ITERATIONS if name in children), None)
    if slots and count is not None and objects[count]["kind"] == Kind.VARIABLE:
        slots.append([None, None, "_iterations", count])
    return slots


def _mark_settings(optimizer: dict[str, Any], objects: list[dict[str, Any]]) -> None:
    """Marks what a program may be without; it is restored where the program has it."""
    for name, index in optimizer["children"].items():
        label = name.removeprefix("_")
        if label in _SETTINGS and objects[index]["kind"] == Kind.VARIABLE:
            objects[index]["is_setting"] = True
            optimizer["slots"].append([None, None, label, index])


def _name(objects: list[dict[str, Any]]) -> None:
    """Gives each object the shortest path to it."""
    queue, known = [0], {0}
    for index in queue:
        for name, child in objects[index].get("children", {}).items():
            if child not in known:
                known.add(child)
                queue.append(child)
                before = objects[index]["path"]
                name = name.replace("/", ".S") if not name.startswith(".ATTR") else name
                objects[child]["path"] = f"{before}/{name}" if before else name
    for each in objects:
        for owner, _, label, node in each.get("slots", ()):
            if not objects[node]["path"]:
                owned_by = "" if owner is None else f"/{objects[owner]['path']}"
                objects[node]["path"] = f"{each['path']}/{label}{owned_by}"
    for index, each in enumerate(objects):
        if "tensor" in each and not each["path"]:
            each["path"] = each["tensor"].removesuffix(SUFFIX) or f"object {index}"


def _by_name(bundle: Bundle) -> list[dict[str, Any]]:
    """Returns the variables of a checkpoint without objects; the root has the optimizers' state."""
    root: dict[str, Any] = {"kind": Kind.OBJECT, "path": "", "children": {}, "slots": []}
    objects = [root]
    numbers: dict[str, int] = {}
    for name, tensor in bundle.tensors.items():
        numbers[name] = root["children"][name] = len(objects)
        objects.append({"path": name, **_described(tensor, Kind.VARIABLE)})
    for name, index in numbers.items():
        owner, _, label = name.rpartition("/")
        if owner in numbers and label in _SLOT_NAMES:
            root["slots"].append([numbers[owner], None, label, index])
    if root["slots"] and _STEP in numbers:
        root["slots"].append([None, None, "_iterations", numbers[_STEP]])
    return objects
