"""What a training step is made of: gradients, optimizers, losses and metrics."""

from replicax._src.training._access import reset_slots as reset_slots
from replicax._src.training._access import slots_of as slots_of
from replicax._src.training._access import split_pairs as split_pairs
from replicax._src.training._access import start_slots_from as start_slots_from
from replicax._src.training._access import state_of as state_of
from replicax._src.training._accumulation import accumulate_gradients as accumulate_gradients
from replicax._src.training._adam import adam as adam
from replicax._src.training._gradient_watch import gradient_watchers as gradient_watchers
from replicax._src.training._gradient_watch import show_gradients as show_gradients
from replicax._src.training._gradients import grad as grad
from replicax._src.training._gradients import value_and_grad as value_and_grad
from replicax._src.training._gradients import values_and_grads as values_and_grads
from replicax._src.training._losses import compute_average_loss as compute_average_loss
from replicax._src.training._losses import losses_as_means as losses_as_means
from replicax._src.training._losses import scale_regularization_loss as scale_regularization_loss
from replicax._src.training._losses import share_of_mean as share_of_mean
from replicax._src.training._metrics import Accuracy as Accuracy
from replicax._src.training._metrics import BinaryAccuracy as BinaryAccuracy
from replicax._src.training._metrics import CategoricalAccuracy as CategoricalAccuracy
from replicax._src.training._metrics import Mean as Mean
from replicax._src.training._metrics import MeanAbsoluteError as MeanAbsoluteError
from replicax._src.training._metrics import MeanMetricWrapper as MeanMetricWrapper
from replicax._src.training._metrics import MeanSquaredError as MeanSquaredError
from replicax._src.training._metrics import Metric as Metric
from replicax._src.training._metrics import RootMeanSquaredError as RootMeanSquaredError
from replicax._src.training._metrics import SparseCategoricalAccuracy as SparseCategoricalAccuracy
from replicax._src.training._metrics import (
    SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
)
from replicax._src.training._metrics import Sum as Sum
from replicax._src.training._metrics import metric_watchers as metric_watchers
from replicax._src.training._moving_average import (
    ExponentialMovingAverage as ExponentialMovingAverage,
)
from replicax._src.training._optimizer import Optimizer as Optimizer
from replicax._src.training._optimizer_inputs import ParameterTree as ParameterTree
from replicax._src.training._optimizer_state import OptimizerState as OptimizerState
from replicax._src.training._random import Generator as Generator
from replicax._src.training._random import get_global_generator as get_global_generator
from replicax._src.training._random import normal as normal
from replicax._src.training._random import set_global_generator as set_global_generator
from replicax._src.training._random import set_seed as set_seed
from replicax._src.training._random import shuffle as shuffle
from replicax._src.training._random import truncated_normal as truncated_normal
from replicax._src.training._random import uniform as uniform
from replicax._src.training._tape import GradientTape as GradientTape
from replicax._src.training._update_rule import UpdateRule as UpdateRule
from replicax._src.training._update_rule import structured as structured
