"""Opens a checkpoint of any format: ours, TensorFlow's or Orbax's."""

from __future__ import annotations

import os

from replicax._src.checkpoints._names import MANIFEST
from replicax._src.checkpoints._saved import Saved, SavedFolder
from replicax._src.checkpoints.foreign._bundle import INDEX
from replicax._src.checkpoints.foreign._saved_bundle import SavedBundle
from replicax._src.checkpoints.foreign._state_file import is_bundle


def bundle_at(path: str) -> str | None:
    """Returns the prefix of TensorFlow's checkpoint at this path; None if there is none.

    Args:
      path: the prefix, as "run/ckpt-3" where there is "run/ckpt-3.index"; that file; or the folder
        of a SavedModel, for its variables.
    """
    if os.path.exists(os.path.join(path, MANIFEST)):
        return None
    candidates = (path.removesuffix(INDEX), os.path.join(path, "variables", "variables"))
    return next((each for each in candidates if is_bundle(each)), None)


def open_saved(path: str, verified: bool = False) -> Saved:
    """Returns a checkpoint of ours, or of TensorFlow.

    Args:
      path: a folder of ours, or what `bundle_at` takes.
      verified: whether every byte has been checked just now.
    """
    prefix = bundle_at(path)
    return SavedFolder(path, verified) if prefix is None else SavedBundle(prefix)
