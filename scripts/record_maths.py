"""Records what TensorFlow computes for calls that `replicax migrate` rewrites.

python -m scripts.record_maths > tests/cli/recorded/maths.json   # where TensorFlow is installed
"""

import json
import sys

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found]

from tests.cli.maths_inputs import arrays, calls


def as_lists(value: object) -> object:
    """A result of TensorFlow as nested lists, in the order of its parts."""
    if isinstance(value, list | tuple):
        return [as_lists(each) for each in value]
    return np.asarray(value).tolist()


def main() -> None:
    """Writes one line for each call."""
    names = {**arrays(), "tf": tf}
    found = {call: as_lists(eval(call, names)) for call in calls()}
    lines = ",\n".join(f"{json.dumps(call)}: {json.dumps(value)}" for call, value in found.items())
    print(f'{{"tensorflow": "{tf.__version__}", "results": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    sys.exit(main())
