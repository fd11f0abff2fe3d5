"""`rx.compat.v1.estimator`: `tf.estimator` for programs that train with a `model_fn`.

`_model.py` is the heart: how a function that built a graph becomes compiled steps.
"""

from replicax.compat.v1.estimator._estimator import Estimator as Estimator
from replicax.compat.v1.estimator._hooks import CheckpointSaverListener as CheckpointSaverListener
from replicax.compat.v1.estimator._hooks import (
    NanLossDuringTrainingError as NanLossDuringTrainingError,
)
from replicax.compat.v1.estimator._hooks import SessionRunContext as SessionRunContext
from replicax.compat.v1.estimator._hooks import SessionRunHook as SessionRunHook
from replicax.compat.v1.estimator._hooks import SessionRunValues as SessionRunValues
from replicax.compat.v1.estimator._run_config import RunConfig as RunConfig
from replicax.compat.v1.estimator._spec import EstimatorSpec as EstimatorSpec
from replicax.compat.v1.estimator._spec import ModeKeys as ModeKeys
from replicax.compat.v1.estimator._train_and_evaluate import EvalSpec as EvalSpec
from replicax.compat.v1.estimator._train_and_evaluate import TrainSpec as TrainSpec
from replicax.compat.v1.estimator._train_and_evaluate import (
    train_and_evaluate as train_and_evaluate,
)
