"""`rx.random`: random numbers that differ by replica and can be saved and repeated."""

from replicax._src.training import Generator as Generator
from replicax._src.training import get_global_generator as get_global_generator
from replicax._src.training import normal as normal
from replicax._src.training import set_global_generator as set_global_generator
from replicax._src.training import set_seed as set_seed
from replicax._src.training import shuffle as shuffle
from replicax._src.training import truncated_normal as truncated_normal
from replicax._src.training import uniform as uniform
