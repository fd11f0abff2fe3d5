"""`rx.metrics`: metrics that are right over any number of replicas."""

from replicax._src.training import Accuracy as Accuracy
from replicax._src.training import BinaryAccuracy as BinaryAccuracy
from replicax._src.training import CategoricalAccuracy as CategoricalAccuracy
from replicax._src.training import Mean as Mean
from replicax._src.training import MeanAbsoluteError as MeanAbsoluteError
from replicax._src.training import MeanMetricWrapper as MeanMetricWrapper
from replicax._src.training import MeanSquaredError as MeanSquaredError
from replicax._src.training import Metric as Metric
from replicax._src.training import RootMeanSquaredError as RootMeanSquaredError
from replicax._src.training import SparseCategoricalAccuracy as SparseCategoricalAccuracy
from replicax._src.training import (
    SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
)
from replicax._src.training import Sum as Sum
