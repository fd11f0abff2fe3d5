"""`ConfigProto`: what programs for TensorFlow 1 say about sessions, for those without TensorFlow.

Messages of protocol buffers with TensorFlow's names and numbers, so that the bytes of either can be
read by the other. Fields that are not listed here are kept when bytes are read. `_protobuf.py`
says what the table means, and makes the messages.
"""

from __future__ import annotations

from replicax._src._protobuf import Message, Messages

_TABLE: dict[str, tuple[tuple[str, int, str], ...]] = {
    "ConfigProto": (
        ("device_count", 1, "map string int32"),
        ("intra_op_parallelism_threads", 2, "one int32"),
        ("placement_period", 3, "one int32"),
        ("device_filters", 4, "repeated string"),
        ("inter_op_parallelism_threads", 5, "one int32"),
        ("gpu_options", 6, "one GPUOptions"),
        ("allow_soft_placement", 7, "one bool"),
        ("log_device_placement", 8, "one bool"),
        ("use_per_session_threads", 9, "one bool"),
        ("graph_options", 10, "one GraphOptions"),
        ("operation_timeout_in_ms", 11, "one int64"),
        ("cluster_def", 14, "one ClusterDef"),
        ("isolate_session_state", 15, "one bool"),
        ("experimental", 16, "one Experimental"),
        ("share_cluster_devices_in_session", 17, "one bool"),
    ),
    "GPUOptions": (
        ("per_process_gpu_memory_fraction", 1, "one double"),
        ("allocator_type", 2, "one string"),
        ("deferred_deletion_bytes", 3, "one int64"),
        ("allow_growth", 4, "one bool"),
        ("visible_device_list", 5, "one string"),
        ("polling_active_delay_usecs", 6, "one int32"),
        ("polling_inactive_delay_msecs", 7, "one int32"),
        ("force_gpu_compatible", 8, "one bool"),
    ),
    "GraphOptions": (
        ("enable_recv_scheduling", 2, "one bool"),
        ("optimizer_options", 3, "one OptimizerOptions"),
        ("build_cost_model", 4, "one int64"),
        ("infer_shapes", 5, "one bool"),
        ("place_pruned_graph", 6, "one bool"),
        ("enable_bfloat16_sendrecv", 7, "one bool"),
        ("timeline_step", 8, "one int32"),
        ("build_cost_model_after", 9, "one int64"),
        ("rewrite_options", 10, "one RewriterConfig"),
    ),
    "OptimizerOptions": (
        ("do_common_subexpression_elimination", 1, "one bool"),
        ("do_constant_folding", 2, "one bool"),
        ("opt_level", 3, "one int32"),
        ("do_function_inlining", 4, "one bool"),
        ("global_jit_level", 5, "one int32"),
        ("max_folded_constant_in_bytes", 6, "one int64"),
    ),
    "RewriterConfig": (
        ("layout_optimizer", 1, "one int32"),
        ("disable_model_pruning", 2, "one bool"),
        ("constant_folding", 3, "one int32"),
        ("memory_optimization", 4, "one int32"),
        ("arithmetic_optimization", 7, "one int32"),
        ("dependency_optimization", 8, "one int32"),
        ("loop_optimization", 9, "one int32"),
        ("function_optimization", 10, "one int32"),
        ("debug_stripper", 11, "one int32"),
        ("shape_optimization", 13, "one int32"),
        ("remapping", 14, "one int32"),
        ("scoped_allocator_optimization", 15, "one int32"),
        ("scoped_allocator_opts", 16, "one ScopedAllocatorOptions"),
        ("pin_to_host_optimization", 18, "one int32"),
        ("disable_meta_optimizer", 19, "one bool"),
        ("auto_mixed_precision", 23, "one int32"),
    ),
    "ScopedAllocatorOptions": (("enable_op", 1, "repeated string"),),
    "ClusterDef": (("job", 1, "repeated JobDef"),),
    "JobDef": (("name", 1, "one string"), ("tasks", 2, "map int32 string")),
    "Experimental": (
        ("collective_group_leader", 1, "one string"),
        ("executor_type", 3, "one string"),
        ("recv_buf_max_chunk", 4, "one int32"),
        ("use_numa_affinity", 5, "one bool"),
        ("collective_deterministic_sequential_execution", 6, "one bool"),
        ("collective_nccl", 7, "one bool"),
    ),
}


class _SessionMessage(Message):
    _messages = Messages("replicax.v1", _TABLE)


class ConfigProto(_SessionMessage):
    """What a program says about its sessions: kept, copied and handed on, and read by nobody here.

    >>> config = ConfigProto(allow_soft_placement=True)
    >>> config.gpu_options.allow_growth = True
    >>> config
    gpu_options {
      allow_growth: true
    }
    allow_soft_placement: true
    """


class GPUOptions(_SessionMessage):
    """The `gpu_options` of a `ConfigProto`: `GPUOptions(allow_growth=True)`."""


class GraphOptions(_SessionMessage):
    """The `graph_options` of a `ConfigProto`."""


class OptimizerOptions(_SessionMessage):
    """The `optimizer_options` of `GraphOptions`, and the numbers of its levels."""

    L1, L0 = 0, -1
    DEFAULT, OFF, ON_1, ON_2 = 0, -1, 1, 2
