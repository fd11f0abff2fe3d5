"""`ConfigProto`: what programs for TensorFlow 1 say about sessions, for those without TensorFlow.

Messages of protocol buffers with TensorFlow's names and numbers, so that the bytes of either can be
read by the other, and in a pool of their own, so that both can be loaded. Protobuf is imported when
the first one is made. Fields that are not listed here are kept when bytes are read.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

# The fields of each message: name, number and type. A type that is listed here is a message, and
# "[]" stands for a repeated field, "{}" for a map from the type before it.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "ConfigProto": (
        ("device_count", 1, "string{}int32"),
        ("intra_op_parallelism_threads", 2, "int32"),
        ("placement_period", 3, "int32"),
        ("device_filters", 4, "string[]"),
        ("inter_op_parallelism_threads", 5, "int32"),
        ("gpu_options", 6, "GPUOptions"),
        ("allow_soft_placement", 7, "bool"),
        ("log_device_placement", 8, "bool"),
        ("use_per_session_threads", 9, "bool"),
        ("graph_options", 10, "GraphOptions"),
        ("operation_timeout_in_ms", 11, "int64"),
        ("cluster_def", 14, "ClusterDef"),
        ("isolate_session_state", 15, "bool"),
        ("experimental", 16, "Experimental"),
        ("share_cluster_devices_in_session", 17, "bool"),
    ),
    "GPUOptions": (
        ("per_process_gpu_memory_fraction", 1, "double"),
        ("allocator_type", 2, "string"),
        ("deferred_deletion_bytes", 3, "int64"),
        ("allow_growth", 4, "bool"),
        ("visible_device_list", 5, "string"),
        ("polling_active_delay_usecs", 6, "int32"),
        ("polling_inactive_delay_msecs", 7, "int32"),
        ("force_gpu_compatible", 8, "bool"),
    ),
    "GraphOptions": (
        ("enable_recv_scheduling", 2, "bool"),
        ("optimizer_options", 3, "OptimizerOptions"),
        ("build_cost_model", 4, "int64"),
        ("infer_shapes", 5, "bool"),
        ("place_pruned_graph", 6, "bool"),
        ("enable_bfloat16_sendrecv", 7, "bool"),
        ("timeline_step", 8, "int32"),
        ("build_cost_model_after", 9, "int64"),
        ("rewrite_options", 10, "RewriterConfig"),
    ),
    "OptimizerOptions": (
        ("do_common_subexpression_elimination", 1, "bool"),
        ("do_constant_folding", 2, "bool"),
        ("opt_level", 3, "int32"),
        ("do_function_inlining", 4, "bool"),
        ("global_jit_level", 5, "int32"),
        ("max_folded_constant_in_bytes", 6, "int64"),
    ),
    "RewriterConfig": (
        ("layout_optimizer", 1, "int32"),
        ("disable_model_pruning", 2, "bool"),
        ("constant_folding", 3, "int32"),
        ("memory_optimization", 4, "int32"),
        ("arithmetic_optimization", 7, "int32"),
        ("dependency_optimization", 8, "int32"),
        ("loop_optimization", 9, "int32"),
        ("function_optimization", 10, "int32"),
        ("debug_stripper", 11, "int32"),
        ("shape_optimization", 13, "int32"),
        ("remapping", 14, "int32"),
        ("scoped_allocator_optimization", 15, "int32"),
        ("scoped_allocator_opts", 16, "ScopedAllocatorOptions"),
        ("pin_to_host_optimization", 18, "int32"),
        ("disable_meta_optimizer", 19, "bool"),
        ("auto_mixed_precision", 23, "int32"),
    ),
    "ScopedAllocatorOptions": (("enable_op", 1, "string[]"),),
    "ClusterDef": (("job", 1, "JobDef[]"),),
    "JobDef": (("name", 1, "string"), ("tasks", 2, "int32{}string")),
    "Experimental": (
        ("collective_group_leader", 1, "string"),
        ("executor_type", 3, "string"),
        ("recv_buf_max_chunk", 4, "int32"),
        ("use_numa_affinity", 5, "bool"),
        ("collective_deterministic_sequential_execution", 6, "bool"),
        ("collective_nccl", 7, "bool"),
    ),
}
_PACKAGE = "replicax.v1"


@functools.cache
def _classes() -> dict[str, Any]:
    """The protobuf class of each message, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="replicax/config.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _describe(message, *field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


def _describe(message: Any, name: str, number: int, what: str) -> None:
    """Adds a field to the description of a message."""
    field = message.field.add(name=name, number=number)
    key, is_map, value = what.partition("{}")
    if is_map:  # to protobuf, a list of entries of a type that is made for it
        entry_name = name.title().replace("_", "") + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _describe(entry, "key", 1, key)
        _describe(entry, "value", 2, value)
        what = f"{message.name}.{entry_name}[]"
    repeated, what = what.endswith("[]"), what.removesuffix("[]")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if hasattr(field, f"TYPE_{what.upper()}"):
        field.type = getattr(field, f"TYPE_{what.upper()}")
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{what}"


class _Message(type):
    """Makes a class stand for a protobuf class that is built when it is first used."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        return _classes()[cls.__name__](*args, **fields)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_classes()[cls.__name__], name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _classes()[cls.__name__])


class _Fields(metaclass=_Message):
    """The base of all: a type checker is not told which fields and methods messages have."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class ConfigProto(_Fields):
    """What a program says about its sessions: kept, copied and handed on, and read by nobody here.

    >>> config = ConfigProto(allow_soft_placement=True)
    >>> config.gpu_options.allow_growth = True
    >>> config
    gpu_options {
      allow_growth: true
    }
    allow_soft_placement: true
    """


class GPUOptions(_Fields):
    """The `gpu_options` of a `ConfigProto`: `GPUOptions(allow_growth=True)`."""


class GraphOptions(_Fields):
    """The `graph_options` of a `ConfigProto`."""


class OptimizerOptions(_Fields):
    """The `optimizer_options` of `GraphOptions`, and the numbers of its levels."""

    L1, L0 = 0, -1
    DEFAULT, OFF, ON_1, ON_2 = 0, -1, 1, 2
