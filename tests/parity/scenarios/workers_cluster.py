"""What a worker knows of the cluster, of its place in it and of its duties."""

from __future__ import annotations

from typing import Any

from .._layout import LAYOUTS
from .._registry import scenario
from .._worker import InJob

HOST = "nothing runs on replicas"


@scenario(*LAYOUTS, eager_only=HOST)
def replicas(lib: InJob, strategy: Any) -> Any:
    extended = strategy.extended
    return {
        "in sync": strategy.num_replicas_in_sync,
        "worker_devices": len(extended.worker_devices),
        "parameter_devices": len(extended.parameter_devices),
        "a strategy": isinstance(strategy, lib.distribute.Strategy),
    }


@scenario(*LAYOUTS)
def replica_numbers(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        return lib.replica_id(), lib.constant(lib.context().num_replicas_in_sync, "int32")

    ids, counts = lib.run(strategy, replica_fn)
    return {"ids": lib.local(ids), "counts": lib.local(counts)}


@scenario(*LAYOUTS, eager_only=HOST)
def resolver(lib: InJob, strategy: Any) -> Any:
    found = strategy.cluster_resolver
    return {
        "class": type(found).__name__,
        "task_type": found.task_type,
        "task_id": found.task_id,
        "rpc_layer": found.rpc_layer,
        "accelerators": found.num_accelerators().get("GPU", 0),
    }


@scenario(*LAYOUTS, eager_only=HOST)
def cluster_spec(lib: InJob, strategy: Any) -> Any:
    spec = strategy.cluster_resolver.cluster_spec()
    tasks = spec.as_dict()
    return {
        "jobs": sorted(spec.jobs),
        "tasks": {job: spec.num_tasks(job) for job in sorted(spec.jobs)},
        "indices": {job: list(spec.task_indices(job)) for job in sorted(spec.jobs)},
        "dict": {job: len(tasks[job]) for job in sorted(tasks)},
        "addresses": all(
            spec.task_address(job, index) == address
            for job, addresses in tasks.items()
            for index, address in enumerate(addresses)
        ),
        "on loopback": all(
            address.startswith("127.0.0.1:") for job in tasks for address in spec.job_tasks(job)
        ),
    }


@scenario(*LAYOUTS, eager_only=HOST)
def master(lib: InJob, strategy: Any) -> Any:
    found = strategy.cluster_resolver
    address = found.cluster_spec().task_address("worker", 0)
    return {
        "a task": found.master("worker", 0).replace(address, "ADDRESS"),
        "with a protocol": found.master("worker", 0, "grpc").replace(address, "ADDRESS"),
    }


@scenario(*LAYOUTS, eager_only=HOST)
def duties(lib: InJob, strategy: Any) -> Any:
    extended = strategy.extended
    return {
        "should_checkpoint": extended.should_checkpoint,
        "should_save_summary": extended.should_save_summary,
        "should_init": extended.experimental_should_init,
        "between_graph": extended.experimental_between_graph,
        "static_shapes": extended.experimental_require_static_shapes,
    }


@scenario(*LAYOUTS, eager_only=HOST)
def contexts(lib: InJob, strategy: Any) -> Any:
    seen = {"before": [lib.distribute.has_strategy(), lib.distribute.in_cross_replica_context()]}
    with strategy.scope():
        seen["inside"] = [
            lib.distribute.has_strategy(),
            lib.distribute.in_cross_replica_context(),
            lib.distribute.get_strategy() is strategy,
        ]
    seen["after"] = [lib.distribute.has_strategy(), lib.distribute.in_cross_replica_context()]
    return seen


@scenario(*LAYOUTS)
def contexts_in_replicas(lib: InJob, strategy: Any) -> Any:
    seen = []

    def replica_fn() -> Any:
        seen.append(
            {
                "cross": lib.distribute.in_cross_replica_context(),
                "strategy": lib.distribute.get_strategy() is strategy,
                "replicas": lib.context().num_replicas_in_sync,
            }
        )
        return lib.replica_id()

    lib.run(strategy, replica_fn)
    return seen[0]


@scenario(*LAYOUTS, eager_only=HOST, case=("8", "9", "replicas"))
def local_batch_sizes(lib: InJob, strategy: Any, case: str) -> Any:
    """What a worker of a data set function computes from its context."""
    size = strategy.num_replicas_in_sync if case == "replicas" else int(case)
    seen = []

    def make(context: Any) -> Any:
        seen.append(lib.outcome(lambda: context.get_per_replica_batch_size(size)))
        return lib.data.Dataset.range(4).batch(2)

    strategy.distribute_datasets_from_function(make)
    return seen
