"""What a compiled program needs on devices that are not here."""

from replicax._src.planning._compiling import Argument as Argument
from replicax._src.planning._compiling import bytes_on_each as bytes_on_each
from replicax._src.planning._compiling import compiled_plan as compiled_plan
from replicax._src.planning._hlo import Tensor as Tensor
from replicax._src.planning._log import Log as Log
from replicax._src.planning._log import NothingNew as NothingNew
from replicax._src.planning._log import note as note
from replicax._src.planning._log import note_batch as note_batch
from replicax._src.planning._log import note_call as note_call
from replicax._src.planning._log import postpone as postpone
from replicax._src.planning._log import recording as recording
from replicax._src.planning._plan import Exchange as Exchange
from replicax._src.planning._plan import Plan as Plan
from replicax._src.planning._table import amount as amount
from replicax._src.planning._table import labelled as labelled
from replicax._src.planning._table import seconds as seconds
from replicax._src.planning._table import table as table
