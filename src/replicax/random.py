"""`rx.random`: random numbers that differ by replica and can be saved and repeated."""

from replicax.training import Generator as Generator
from replicax.training import get_global_generator as get_global_generator
from replicax.training import set_global_generator as set_global_generator
