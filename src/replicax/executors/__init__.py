"""Executors: how a replica function is run on every replica."""

from replicax.executors._interface import Executor as Executor
from replicax.executors._lockstep import LockstepExecutor as LockstepExecutor
from replicax.executors._spmd import SpmdExecutor as SpmdExecutor
