"""`rx.metrics`: metrics that are right over any number of replicas."""

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
