"""Executors: how a replica function is run on every replica."""

from replicax._src.executors._interface import Executor as Executor
from replicax._src.executors._lockstep import LockstepExecutor as LockstepExecutor
from replicax._src.executors._spmd import SpmdExecutor as SpmdExecutor
