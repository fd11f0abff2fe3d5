"""Questions about clusters that TensorFlow and replicax must answer alike.

Each is an environment and an expression in `lib`: TensorFlow when `record.py` records the answers,
replicax in the tests. An error is recorded by the builtin class that it is.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class Question(NamedTuple):
    """An expression, and the environment to ask it in."""

    expression: str
    environ: Mapping[str, str] = {}


DENSE = '{"worker": ["a:1", "b:2"], "ps": ["c:3"]}'
SPARSE = '{"worker": {1: "b:2", 3: "d:4"}, "chief": ("c:1",)}'
_SPECS = {
    "dense": DENSE,
    "sparse": SPARSE,
    "empty": "{}",
    "out of order": '{"worker": {1: "b:2", 0: "a:1"}}',
    "indices in strings": '{"worker": {"0": "a:1", "2": "c:3"}}',
    "an empty job": '{"worker": [], "ps": ["a:1"]}',
    "not sorted": '{"z": ["a:1"], "a": ["b:1"]}',
    "from a def": f"lib.train.ClusterSpec({SPARSE}).as_cluster_def()",
    "a copy": f"lib.train.ClusterSpec({DENSE})",
    "a copy of a sparse one": f"lib.train.ClusterSpec({SPARSE})",
    "a string": '"worker"',
    "a list": '["a:1"]',
    "none": "None",
    "a job that is a string": '{"worker": "a:1"}',
    "an address that is a number": '{"worker": [1]}',
    "a name that is a number": '{1: ["a:1"]}',
    "an index that is no number": '{"worker": {"x": "a:1"}}',
}
_ASK = {
    "as_dict": "spec.as_dict()",
    "jobs": "spec.jobs",
    "bool": "bool(spec)",
    "repr": "repr(spec)",
    "num_tasks": "[spec.num_tasks(job) for job in spec.jobs]",
    "task_indices": "[spec.task_indices(job) for job in spec.jobs]",
    "job_tasks": "[spec.job_tasks(job) for job in spec.jobs if spec.num_tasks(job)]",
    "addresses": "[spec.task_address(j, i) for j in spec.jobs for i in spec.task_indices(j)]",
    "def": "[(job.name, sorted(job.tasks.items())) for job in spec.as_cluster_def().job]",
    "copy is equal": "spec == lib.train.ClusterSpec(spec), spec != lib.train.ClusterSpec(spec)",
    "equal to its dict": "spec == spec.as_dict(), spec == None, spec != {}",
    "equal to a sparse dict": "spec == {'worker': {1: 'b:2', 3: 'd:4'}, 'chief': {0: 'c:1'}}",
    "no such job": "spec.num_tasks('nobody')",
    "no such task": "spec.task_address(spec.jobs[0], 99)",
    "hash": "hash(spec)",
}

QUESTIONS: dict[str, Question] = {
    f"spec, {name}: {ask}": Question(f"(lambda spec: ({how}))(lib.train.ClusterSpec({spec}))")
    for name, spec in _SPECS.items()
    for ask, how in _ASK.items()
}

# --- resolvers ------------------------------------------------------------------------------------

_ALL = (
    "[r.cluster_spec().as_dict(), r.task_type, r.task_id, r.rpc_layer, r.environment, r.master(),"
    " r.master(rpc_layer='http')]"
)


def _asks(resolver: str, what: str = _ALL) -> str:
    return f"(lambda r: {what})(lib.distribute.cluster_resolver.{resolver})"


_SIMPLE = f"SimpleClusterResolver(lib.train.ClusterSpec({DENSE})"
_TWO = (
    f"lib.distribute.cluster_resolver.SimpleClusterResolver(lib.train.ClusterSpec({DENSE}),"
    " 'm:1', 'worker', 1, 'e', {'GPU': 2}, 'grpc'),"
    " lib.distribute.cluster_resolver.SimpleClusterResolver(lib.train.ClusterSpec("
    "{'worker': ['x:1'], 'chief': ['y:1']}))"
)
_SPARSE_ONE = (
    f"lib.distribute.cluster_resolver.SimpleClusterResolver(lib.train.ClusterSpec({SPARSE}))"
)
_FIVE = (
    "lib.distribute.cluster_resolver.SimpleClusterResolver("
    "lib.train.ClusterSpec({'worker': {5: 'x:1'}}))"
)
QUESTIONS |= {
    name: Question(expression)
    for name, expression in {
        "simple": _asks(f"{_SIMPLE})"),
        "simple, all": _asks(f"{_SIMPLE}, 'm:1', 'worker', 1, 'e', {{'GPU': 2}}, 'grpc')"),
        "simple, accelerators": _asks(
            f"{_SIMPLE}, num_accelerators={{'GPU': 2}})", "r.num_accelerators()"
        ),
        "simple, no accelerators": _asks(f"{_SIMPLE})", "r.num_accelerators('worker', 0)"),
        "simple, master of a task": _asks(f"{_SIMPLE})", "r.master('worker', 1, 'grpc')"),
        "simple, master of half a task": _asks(f"{_SIMPLE}, 'm')", "r.master('worker')"),
        "simple, set": _asks(
            f"{_SIMPLE}, 'm', 'worker', 0)",
            "[setattr(r, 'task_type', 'ps'), setattr(r, 'task_id', 7),"
            " setattr(r, 'rpc_layer', 'g'),"
            " r.task_type, r.task_id, r.rpc_layer, r.master()]",
        ),
        "simple, a dict": _asks(f"SimpleClusterResolver({DENSE})"),
        "simple, a master that is a number": _asks(f"{_SIMPLE}, 5)"),
        "union": _asks(f"UnionResolver({_TWO})"),
        "union, overridden": _asks(
            f"UnionResolver({_TWO}, rpc_layer='http', task_type='ps', task_id=9)"
        ),
        "union, accelerators": _asks(f"UnionResolver({_TWO})", "r.num_accelerators()"),
        "union, master of a task": _asks(f"UnionResolver({_TWO})", "r.master('chief', 0)"),
        "union, sparse": _asks(f"UnionResolver({_SPARSE_ONE}, {_FIVE})"),
        "union, the same index": _asks(f"UnionResolver({_SPARSE_ONE}, {_TWO})"),
        "union of nothing": _asks("UnionResolver()"),
        "union of a dict": _asks("UnionResolver({})"),
        "union, unknown keyword": _asks(f"UnionResolver({_TWO}, port=1)"),
        "abstract": "lib.distribute.cluster_resolver.ClusterResolver()",
    }.items()
}

_CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
_TF_CONFIGS: dict[str, Any] = {
    "not set": None,
    "empty object": {},
    "worker": {"cluster": _CLUSTER, "task": {"type": "worker", "index": 1}},
    "chief": {"cluster": _CLUSTER, "task": {"type": "chief", "index": 0}, "rpc_layer": "grpc"},
    "an index in a string": {"cluster": _CLUSTER, "task": {"type": "ps", "index": "0"}},
    "session master": {"cluster": _CLUSTER, "session_master": "m:1"},
    "one worker": {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}},
    "sparse": {"cluster": {"worker": {"1": "b:1"}}, "task": {"type": "worker", "index": 1}},
    "no task": {"cluster": _CLUSTER},
    "no cluster": {"task": {"type": "worker", "index": 1}},
    "index outside": {"cluster": _CLUSTER, "task": {"type": "worker", "index": 9}},
    "not JSON": "{'cluster'",
}
for _name, _config in _TF_CONFIGS.items():
    _text = _config if isinstance(_config, str) else json.dumps(_config)
    _environ = {} if _config is None else {"TF_CONFIG": _text}
    QUESTIONS |= {
        f"TF_CONFIG, {_name}{suffix}": Question(_asks(resolver), _environ)
        for suffix, resolver in {
            "": "TFConfigClusterResolver()",
            ", overridden": "TFConfigClusterResolver('worker', 0, 'http', 'e')",
        }.items()
    }

_STEP = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[1-2],m5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}
_SORTED = _STEP | {"SLURM_STEP_NODELIST": "m5,n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)"}
_SLURM = (
    "[r.get_task_info(), r.cluster_spec().as_dict(), r.get_task_info(), r.master(),"
    " r.master('worker', 0), r.num_accelerators(), r.environment, r.rpc_layer,"
    " __import__('os').environ.get('CUDA_VISIBLE_DEVICES')]"
)
QUESTIONS |= {
    f"Slurm, {name}": Question(_asks(f"SlurmClusterResolver({arguments})", _SLURM), environ)
    for name, (arguments, environ) in {
        "defaults": ("", _SORTED),
        "first task": ("", _SORTED | {"SLURM_PROCID": "0"}),
        "jobs": ("{'chief': 1, 'worker': 4}", _SORTED),
        "chief": ("{'chief': 1, 'worker': 4}", _SORTED | {"SLURM_PROCID": "0"}),
        "ps": ("{'ps': 2, 'worker': 3}, rpc_layer=None", _SORTED),
        "port": ("port_base=12", _SORTED),
        "GPUs": ("gpus_per_node=2, gpus_per_task=1", _SORTED),
        "GPUs left alone": ("gpus_per_node=2, auto_set_gpu=False", _SORTED),
        "too many GPUs": ("gpus_per_node=1, gpus_per_task=1", _SORTED),
        "too many tasks": ("{'worker': 6}", _SORTED),
        "tasks per node": ("{'worker': 6}, tasks_per_node=2", _SORTED),
        "tasks by host": ("{'worker': 5}, tasks_per_node={'m5': 3, 'n1': 2}", _SORTED),
        "no step": ("", {"CUDA_VISIBLE_DEVICES": "0"}),
        "half a step": ("", {"SLURM_PROCID": "0", "CUDA_VISIBLE_DEVICES": "0"}),
        "bad list": ("", _SORTED | {"SLURM_STEP_NODELIST": "n[1-"}),
    }.items()
}


# --- answers --------------------------------------------------------------------------------------


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """The environment without any description of a cluster but this one."""
    before = dict(os.environ)
    ours = (
        "SLURM",
        "TF_CONFIG",
        "CUDA_VISIBLE",
        "TPU_",
        "REPLICAX_",
        "JOB_COMPLETION",
        "MEGASCALE",
    )
    for name in [name for name in os.environ if name.startswith(ours)]:
        del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def answer(lib: Any, name: str) -> Any:
    """Returns what a library answers, as it comes back from JSON."""
    question = QUESTIONS[name]
    with environment(question.environ):
        try:
            found = eval(question.expression, {"lib": lib})
        except Exception as error:
            builtin = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
            return {"error": builtin.__name__}
    return json.loads(json.dumps(found))
