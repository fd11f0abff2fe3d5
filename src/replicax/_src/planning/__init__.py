"""What a compiled program needs on devices that are not here."""

from replicax._src.planning._compiling import Argument as Argument
from replicax._src.planning._compiling import compiled_plan as compiled_plan
from replicax._src.planning._log import note as note
from replicax._src.planning._log import recording as recording
from replicax._src.planning._plan import Exchange as Exchange
from replicax._src.planning._plan import Plan as Plan
from replicax._src.planning._table import amount as amount
from replicax._src.planning._table import table as table
