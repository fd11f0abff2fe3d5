"""Other libraries under a strategy: they join in when a scope is entered and they are loaded."""

import os as _os

from replicax._src.integrations import _joining as _joining
from replicax._src.integrations.callbacks import (
    callback_on_first_worker as callback_on_first_worker,
)

if _os.environ.get("REPLICAX_RECORD"):  # of `replicax launch --record`
    from replicax._src.recording import record_by_argument as _record_by_argument

    _record_by_argument(_os.environ["REPLICAX_RECORD"])
