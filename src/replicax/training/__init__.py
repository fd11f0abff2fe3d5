"""What a training step is made of: gradients, optimizers, losses and metrics."""

from replicax.training._accumulation import accumulate_gradients as accumulate_gradients
from replicax.training._gradients import grad as grad
from replicax.training._gradients import value_and_grad as value_and_grad
from replicax.training._losses import compute_average_loss as compute_average_loss
from replicax.training._losses import scale_regularization_loss as scale_regularization_loss
from replicax.training._optimizer import Optimizer as Optimizer
from replicax.training._random import Generator as Generator
from replicax.training._random import get_global_generator as get_global_generator
from replicax.training._random import set_global_generator as set_global_generator
