"""What was found in a file, and the marks that are left in it."""

from collections.abc import Callable, Collection
from typing import final

import libcst as cst

from replicax._src.cli.migrate._edits import Edits
from replicax._src.cli.migrate._lookup import for_numpy
from replicax._src.cli.migrate._source import Source
from replicax._src.cli.migrate._verdict import MARK, Finding, Verdict


@final
class Notes:
    """Collects findings; what is to be done by hand is marked in the text."""

    def __init__(
        self, source: Source, edits: Edits, works_on_numpy: Callable[[cst.CSTNode], bool]
    ) -> None:
        """Begins with nothing.

        Args:
          source: the file.
          edits: where the marks go.
          works_on_numpy: tells of a node whether it is in a function of a data set.
        """
        self._source = source
        self._edits = edits
        self._works_on_numpy = works_on_numpy
        self._findings: dict[tuple[int, str], Finding] = {}
        self._seen_marks: set[int] = set()

    def add(
        self, node: cst.CSTNode, verdict: Verdict, name: str, new: str = "", advice: str = ""
    ) -> None:
        """Notes what was found at a node. Of one name in one line, the worst is kept."""
        if verdict.by_hand and self._works_on_numpy(node):
            new = for_numpy(new)
        line, column = self._source.start(node)
        finding = Finding(line, column, verdict, name, new, advice)
        known = self._findings.get((line, name))
        if known is None or known.verdict.severity <= verdict.severity:
            self._findings[line, name] = finding
        if verdict.by_hand:
            self._mark(self._source.statement_line(node), finding)

    def is_marked(self, node: cst.CSTNode, name: str) -> bool:
        """Returns whether there is a mark of an earlier time about a name above a node."""
        return self._old_mark(self._source.statement_line(node), f"{MARK}{name}") is not None

    def keep_comments(self) -> None:
        """Puts comments that the edits have dropped above the statements that they were in."""
        for line, comment in self._edits.dropped:
            self._add_above(self._source.statement_line_at(line), comment)

    def add_old_marks(self, marks: Collection[cst.Comment]) -> None:
        """Notes the marks of an earlier time that stand for nothing that was found now."""
        for comment in marks:
            line, column = self._source.start(comment)
            if line not in self._seen_marks:
                text = comment.value.removeprefix(MARK)
                finding = Finding(line, column, Verdict.THOUGHT, "TODO(replicax)", advice=text)
                self._findings[line, finding.text] = finding

    def settle(self) -> None:
        """Makes what was found agree with the edits: which lines change, and which do not."""
        for place, found in self._findings.items():
            if found.verdict is Verdict.CHANGES and self._edits.new_line(found.line) is None:
                self._findings[place] = found._replace(verdict=Verdict.SAME, new="")
        changing = {each.line for each in self._findings.values() if each.verdict != Verdict.SAME}
        for first, last in self._edits.changed_lines():
            if changing.isdisjoint(range(first, last + 1)):  # an argument on a line of its own
                self._findings[first, ""] = Finding(first, 0, Verdict.CHANGES, "arguments")

    def findings(self) -> list[Finding]:
        """Returns all findings, in the order of the file."""
        return sorted(self._findings.values(), key=lambda each: each[:2])

    def _mark(self, line: int, finding: Finding) -> None:
        mark = f"{MARK}{finding.text}"
        # What is said of a name may depend on lines that have been ported since.
        above = self._old_mark(line, mark) or self._old_mark(line, f"{MARK}{finding.name}")
        if above is not None:
            self._seen_marks.add(above)
        else:
            self._add_above(line, mark)

    def _old_mark(self, line: int, mark: str) -> int | None:
        """Returns the line above one that has a mark, or one that goes on after a name."""
        above = line - 1
        while (comment := self._edits.line(above).strip()).startswith("#"):
            if comment == mark or comment.startswith((f"{mark}: ", f"{mark} -> ")):
                return above
            above -= 1
        return None

    def _add_above(self, line: int, comment: str) -> None:
        self._edits.add_line_above(line, self._edits.indentation(line) + comment)
