"""Records what TensorFlow's cluster specs and resolvers answer, into `recorded/resolvers.json`.

Run it with an interpreter that has TensorFlow: `python -m tests.cluster.record`. The questions are
in `questions.py`, which the tests ask replicax; they are written with `lib`, which is `tf` here and
`rx` there.
"""

import json
from pathlib import Path

from tests.cluster.questions import QUESTIONS, answer


def main() -> None:
    import tensorflow as tf  # type: ignore[import-not-found]

    answers = {name: answer(tf, name) for name in QUESTIONS}
    path = Path(__file__).parent / "recorded" / "resolvers.json"
    path.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(answers)} answers of TensorFlow {tf.__version__} in {path}")


if __name__ == "__main__":
    main()
