"""Other libraries under a strategy: they join in when a scope is entered and they are loaded."""

from replicax._src.integrations import _joining as _joining
