"""`tf.estimator`; `_model.py` makes compiled steps of a function that built a graph."""

from replicax._src.compat.estimator._estimator import Estimator as Estimator
from replicax._src.compat.estimator._hooks import CheckpointSaverListener as CheckpointSaverListener
from replicax._src.compat.estimator._hooks import (
    NanLossDuringTrainingError as NanLossDuringTrainingError,
)
from replicax._src.compat.estimator._hooks import SessionRunContext as SessionRunContext
from replicax._src.compat.estimator._hooks import SessionRunHook as SessionRunHook
from replicax._src.compat.estimator._hooks import SessionRunValues as SessionRunValues
from replicax._src.compat.estimator._run_config import RunConfig as RunConfig
from replicax._src.compat.estimator._spec import EstimatorSpec as EstimatorSpec
from replicax._src.compat.estimator._spec import ModeKeys as ModeKeys
from replicax._src.compat.estimator._train_and_evaluate import EvalSpec as EvalSpec
from replicax._src.compat.estimator._train_and_evaluate import TrainSpec as TrainSpec
from replicax._src.compat.estimator._train_and_evaluate import (
    train_and_evaluate as train_and_evaluate,
)
