"""What is said of a piece of TensorFlow code, and where."""

import enum
from typing import NamedTuple, final

MARK = "# TODO(replicax): "
"""How the comments begin that `--write` leaves above what has to be done by hand."""


@final
class Verdict(enum.Enum):
    """What becomes of a piece of code, from the best to the worst."""

    SAME = "carries over"
    CHANGES = "changes"
    THOUGHT = "needs thought"
    UNSUPPORTED = "not supported"

    @property
    def by_hand(self) -> bool:
        """Whether somebody has to do something that `--write` does not do."""
        return self in (Verdict.THOUGHT, Verdict.UNSUPPORTED)

    @property
    def severity(self) -> int:
        """Larger is worse."""
        return list(Verdict).index(self)


@final
class Finding(NamedTuple):
    """One thing that was found in a line."""

    line: int
    column: int
    verdict: Verdict
    name: str
    """What was found: `tf.distribute.MirroredStrategy`, `Strategy.run`."""
    new: str = ""
    """What takes its place, where one name does."""
    advice: str = ""
    """What to do; for what is to be done by hand."""

    @property
    def text(self) -> str:
        """What to do, in a line; also the text of the mark."""
        parts = [self.name, f" -> {self.new}" if self.new else ""]
        return "".join(parts) + (f": {self.advice}" if self.advice else "")
