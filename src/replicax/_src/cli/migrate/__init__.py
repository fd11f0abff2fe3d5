"""`replicax migrate`: ports programs that use `tf.distribute`. Needs libcst.

    source -> names, objects (what is what) -> reader (what is used) -> port (what becomes of it)

`_lookup.py` reads three tables (`_table.py`, `_calls_table.py`, `_objects_table.py`); changes are
collected in `_edits.py`.
"""

from replicax._src.cli.migrate._port import Ported as Ported
from replicax._src.cli.migrate._port import port as port
from replicax._src.cli.migrate._source import Unreadable as Unreadable
from replicax._src.cli.migrate._verdict import Verdict as Verdict
