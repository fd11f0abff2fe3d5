"""`replicax migrate`: ports programs that use `tf.distribute`. Needs libcst.

    source -> names, objects (what is what) -> reader (what is used) -> port (what becomes of it)

The table of names is `_table.py`, which `_lookup.py` reads; changes are collected in `_edits.py`.
"""

from replicax._src.cli.migrate._port import Ported as Ported
from replicax._src.cli.migrate._port import port as port
from replicax._src.cli.migrate._source import Unreadable as Unreadable
from replicax._src.cli.migrate._verdict import Verdict as Verdict
