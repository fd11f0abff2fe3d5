"""Other libraries under a strategy: they join in when a scope is entered and they are loaded."""

from replicax._src.integrations import _joining as _joining
from replicax._src.integrations.callbacks import (
    callback_on_first_worker as callback_on_first_worker,
)
