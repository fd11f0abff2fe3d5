"""One side of `keras_fit.py`: trains Keras models on some devices in one way, on request.

Its arguments are the way (see `WAYS`) and the number of replicas; the environment says which
backend Keras has. Then, in lines of JSON: {"case": name, "checked": n} makes a model and the data,
and answers with the losses of a few epochs of n batches; {"epochs": k} answers with the seconds, by
each clock, that as many epochs of one `fit` take, after a first one that is not counted: what
starts with it (TensorFlow's input above all) is no part of a step.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from _child import answers_only, tensorflow_on
from _keras_models import CASES, compiled, data
from _step_models import CLOCKS

CHECKED_EPOCHS = 3

_KIND = "GPU" if os.environ.get("JAX_PLATFORMS") == "cuda" else "CPU"

Scope = Callable[[], AbstractContextManager[Any]]


def _replicax(replicas: int) -> tuple[str, Scope]:
    import jax

    import replicax as rx

    return jax.__version__, rx.distribute.MirroredStrategy(_names(_KIND, replicas)).scope


def _data_parallel(replicas: int) -> tuple[str, Scope]:
    import jax
    import keras

    # For the whole process, as its documentation has it.
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=_names(_KIND.lower(), replicas))
    )
    return jax.__version__, nullcontext


def _tensorflow(replicas: int) -> tuple[str, Scope]:
    tf, strategy = tensorflow_on(replicas)
    return tf.__version__, strategy.scope


def _names(kind: str, replicas: int) -> list[str]:
    return [f"{kind}:{index}" for index in range(replicas)]


WAYS = {"replicax": _replicax, "data_parallel": _data_parallel, "tensorflow": _tensorflow}


def _copies(way: str, variable: Any) -> int:
    """On how many devices a variable of a model is."""
    if way == "data_parallel":
        return len(variable.value.devices())
    if way == "replicax":
        variable = variable.__rx_variable__
        return len(variable.distribute_strategy.experimental_local_results(variable))
    values = getattr(variable.value, "values", None)  # of TensorFlow's mirrored ones
    return 1 if values is None else len(values)


def _times() -> dict[str, float]:
    return {clock: now() for clock, now in CLOCKS.items()}


def main() -> None:
    answer = answers_only()
    way, replicas = sys.argv[1], int(sys.argv[2])
    version, scope = WAYS[way](replicas)
    import keras

    answer(version=version, keras=keras.__version__)
    model = x = y = case = None
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            # No clear_session: Keras would forget its distribution.
            case = CASES[request["case"]]
            x, y = data(case)
            with scope():
                model = compiled(keras, case)
            rows = case.batch * request["checked"]
            history = model.fit(
                x[:rows],
                y[:rows],
                batch_size=case.batch,
                epochs=CHECKED_EPOCHS,
                shuffle=False,
                verbose=0,  # pyright: ignore
            )
            devices = _copies(way, model.trainable_variables[0])
            assert devices == replicas, f"it trained on {devices} device(s)"
            answer(losses=history.history["loss"])
            continue
        assert model is not None and case is not None, "a case comes before its epochs"
        ends: list[dict[str, float]] = []
        # Called when the epoch's loss is known, and so when its steps are done.
        watch = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_, ends=ends: ends.append(_times())
        )
        model.fit(
            x,
            y,
            batch_size=case.batch,
            epochs=1 + request["epochs"],
            callbacks=[watch],
            verbose=0,  # pyright: ignore
        )
        answer(**{clock: ends[-1][clock] - ends[0][clock] for clock in CLOCKS})


if __name__ == "__main__":
    main()
