"""`rx.compat.v1.estimator`: `tf.estimator` for programs that train with a `model_fn`."""

from replicax._src.compat.estimator import CheckpointSaverListener as CheckpointSaverListener
from replicax._src.compat.estimator import Estimator as Estimator
from replicax._src.compat.estimator import EstimatorSpec as EstimatorSpec
from replicax._src.compat.estimator import EvalSpec as EvalSpec
from replicax._src.compat.estimator import ModeKeys as ModeKeys
from replicax._src.compat.estimator import (
    NanLossDuringTrainingError as NanLossDuringTrainingError,
)
from replicax._src.compat.estimator import RunConfig as RunConfig
from replicax._src.compat.estimator import SessionRunContext as SessionRunContext
from replicax._src.compat.estimator import SessionRunHook as SessionRunHook
from replicax._src.compat.estimator import SessionRunValues as SessionRunValues
from replicax._src.compat.estimator import TrainSpec as TrainSpec
from replicax._src.compat.estimator import (
    train_and_evaluate as train_and_evaluate,
)
