"""What a function has in the place of a program that cannot be made."""

from typing import NamedTuple


class AsPython(NamedTuple):
    """In the place of a program: the call runs as Python."""

    reason: str
    compiles_runs: bool = False
    """Whether each `strategy.run` in it is compiled."""

    def __str__(self) -> str:
        how = "as Python, with each strategy.run compiled" if self.compiles_runs else "eagerly"
        return f"{how}, because {self.reason}"
