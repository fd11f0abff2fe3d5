"""What integrations of other libraries may do with variables and optimizers on servers."""

from __future__ import annotations

from replicax._src.parameter_servers._messages import KnownOptimizer as KnownOptimizer
from replicax._src.parameter_servers._messages import OptimizerSpec as OptimizerSpec
from replicax._src.parameter_servers._optimizer_state import tell_servers as tell_servers
from replicax._src.parameter_servers._packing import ForeignOptimizer as ForeignOptimizer
from replicax._src.parameter_servers._packing import made_outside as made_outside
from replicax._src.parameter_servers._packing import reducers as reducers
from replicax._src.parameter_servers._parts import server_numbers as server_numbers
from replicax._src.parameter_servers._server_optimizer import ForeignRule as ForeignRule
from replicax._src.parameter_servers._server_optimizer import Program as Program
from replicax._src.parameter_servers._sharded import ShardedVariable as ShardedVariable
from replicax._src.parameter_servers._variable import ServerVariable as ServerVariable
from replicax._src.parameter_servers._worker_strategy import WorkerStrategy as WorkerStrategy
