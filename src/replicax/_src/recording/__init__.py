"""Steps that can be run again: recording them, and replaying them."""

from replicax._src.recording._capsule import Recorded as Recorded
from replicax._src.recording._capsule import write_capsule as write_capsule
from replicax._src.recording._loading import Capsule as Capsule
from replicax._src.recording._loading import load as load
from replicax._src.recording._origins import Examination as Examination
from replicax._src.recording._origins import Origin as Origin
from replicax._src.recording._origins import examine as examine
from replicax._src.recording._recorder import LIMIT as LIMIT
from replicax._src.recording._recorder import Recorder as Recorder
from replicax._src.recording._replay import Replay as Replay
from replicax._src.recording._replay import Replayed as Replayed
from replicax._src.recording._report import contents_of as contents_of
from replicax._src.recording._report import heading as heading
from replicax._src.recording._report import table_of as table_of
from replicax._src.recording._session import without_recording as without_recording
from replicax._src.recording._takeover import ScriptTakenOver as ScriptTakenOver
from replicax._src.recording._takeover import Takeover as Takeover
from replicax._src.recording._traps import Traps as Traps
