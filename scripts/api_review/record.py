"""Records TensorFlow's public names and their arguments: `python -m scripts.api_review.record`.

Run it in the root of the project, with an interpreter that has TensorFlow; replicax is not needed.
"""

from __future__ import annotations

import json
from pathlib import Path

from scripts.api_review import surface

RECORDED = Path(__file__).parent / "recorded" / "tensorflow.json"

# Of these, everything that is below them.
WHOLE = [
    "distribute",
    "compat.v1.distribute",
    "types.experimental.distributed",
    "tpu.experimental",
]
# Of what surrounds them, what programs for tf.distribute use.
AROUND = [
    *["Variable", "VariableAggregation", "VariableSynchronization", "TensorSpec", "constant"],
    *["device", "function", "variable_creator_scope", "experimental.Optional"],
    *["config.LogicalDevice", "config.LogicalDeviceConfiguration", "config.PhysicalDevice"],
    *["config.experimental_connect_to_cluster", "config.experimental_connect_to_host"],
    *["config.list_logical_devices", "config.list_physical_devices"],
    *["config.set_logical_device_configuration"],
    *["data.AUTOTUNE", "data.INFINITE_CARDINALITY", "data.UNKNOWN_CARDINALITY"],
    *["data.Dataset", "data.FixedLengthRecordDataset", "data.Iterator", "data.Options"],
    *["data.TFRecordDataset", "data.TextLineDataset", "data.experimental.AutoShardPolicy"],
    *["data.experimental.DistributeOptions", "data.experimental.cardinality"],
    *["io.FixedLenFeature", "io.FixedLenSequenceFeature", "io.TFRecordOptions"],
    *["io.TFRecordWriter", "io.VarLenFeature", "io.parse_example", "io.parse_single_example"],
    *["nn.compute_average_loss", "nn.scale_regularization_loss"],
    *["random.Generator", "random.get_global_generator", "random.set_global_generator"],
    *["summary.SummaryWriter", "summary.create_file_writer", "summary.create_noop_writer"],
    *["summary.flush", "summary.histogram", "summary.image", "summary.record_if"],
    *["summary.scalar", "summary.should_record_summaries", "summary.text"],
    *["train.Checkpoint", "train.CheckpointManager", "train.ClusterSpec"],
    *["train.checkpoints_iterator", "train.get_checkpoint_state", "train.latest_checkpoint"],
    *["train.list_variables", "train.load_checkpoint", "train.load_variable"],
]


def main() -> None:
    """Replaces the recorded file."""
    import tensorflow as tf  # type: ignore[import-not-found]

    names = [*AROUND, *(name for path in WHOLE for name in surface.names_below(tf, path))]
    found = {f"tf.{name}": surface.describe(surface.find(tf, name)) for name in sorted(names)}
    write(RECORDED, tf.__version__, found)
    print(f"{len(found)} names of TensorFlow {tf.__version__} in {RECORDED}")


def write(
    path: Path,
    version: str,
    names: dict[str, surface.Described],
    mentioned: list[str] | None = None,
) -> None:
    """Writes one name, and one member of a class, on a line: a change is then a line of a diff."""
    lines = [f' "version": {json.dumps(version)},']
    if mentioned:
        rows = ",\n  ".join(map(json.dumps, mentioned))
        lines.append(f' "mentioned": [\n  {rows}\n ],')
    lines.append(' "names": {')
    for last, (name, described) in zip((*[""] * (len(names) - 1), "last"), names.items()):
        inner = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in described.items()]
        if members := described.get("members"):
            rows = [f"{json.dumps(each)}: {json.dumps(value)}" for each, value in members.items()]
            inner[-1] = '"members": {\n    ' + ",\n    ".join(rows) + "}"
        lines.append(f"  {json.dumps(name)}: {{{', '.join(inner)}}}{'' if last else ','}")
    path.write_text("{\n" + "\n".join([*lines, " }"]) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
