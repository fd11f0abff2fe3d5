"""Records what TensorFlow's cluster specs and resolvers answer, into `recorded/resolvers.json`.

Run it with an interpreter that has TensorFlow: `python tests/cluster/record.py`. The questions are
in `questions.py`, which the tests ask replicax; they are written with `lib`, which is `tf` here and
`rx` there.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402  # type: ignore[import-not-found]

from tests.cluster.questions import QUESTIONS, answer  # noqa: E402

if __name__ == "__main__":
    answers = {name: answer(tf, name) for name in QUESTIONS}
    path = Path(__file__).parent / "recorded" / "resolvers.json"
    path.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(answers)} answers of TensorFlow {tf.__version__} in {path}")
