"""What was found, for people and for programs."""

import difflib
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from replicax._src.cli._log import Paint
from replicax._src.cli.migrate._edits import split_lines
from replicax._src.cli.migrate._port import Ported
from replicax._src.cli.migrate._verdict import Finding, Verdict

_COLOURS = {
    Verdict.SAME: "32",
    Verdict.CHANGES: "36",
    Verdict.THOUGHT: "33",
    Verdict.UNSUPPORTED: "31",
}
_WIDTH = max(len(verdict.value) for verdict in Verdict)


def lines_of(ported: Ported) -> Iterator[tuple[int, Verdict, list[Finding]]]:
    """Yields the number of a line, its worst verdict, and what was found in it."""
    for number, group in groupby(ported.findings, key=lambda each: each.line):
        findings = list(group)
        yield (
            number,
            max((each.verdict for each in findings), key=lambda each: each.severity),
            findings,
        )


def as_text(name: str, ported: Ported, paint: Paint) -> str:
    """Returns the report on a file, line by line."""
    old = split_lines(ported.old)
    said = [paint("1", name)]
    margin = " " * (7 + _WIDTH + 2)
    for number, verdict, findings in lines_of(ported):
        label = paint(_COLOURS[verdict], f"{verdict.value:<{_WIDTH}}")
        said.append(f"{number:>5}  {label}  {old[number - 1].strip()}")
        new = ported.new_lines.get(number)
        if new == "":
            said.append(f"{margin}{paint('36', '(goes)')}")
        elif new is not None:
            said += [f"{margin}{paint('36', line.strip())}" for line in split_lines(new)]
        said += [
            f"{margin}{paint(_COLOURS[each.verdict], each.text)}"
            for each in findings
            if each.verdict.by_hand or each.advice
        ]
    said.append(f"{'':7}{summary(ported)}")
    return "\n".join(said)


def summary(ported: Ported) -> str:
    """Returns how many lines of a file carry over, change, and so on."""
    counts = Counter(verdict for _, verdict, _ in lines_of(ported))
    texts = [
        (Verdict.SAME, "carries over", "carry over"),
        (Verdict.CHANGES, "changes", "change"),
        (Verdict.THOUGHT, "needs thought", "need thought"),
        (Verdict.UNSUPPORTED, "is not supported", "are not supported"),
    ]
    parts = [
        f"{counts[v]} {one if counts[v] == 1 else many}" for v, one, many in texts if counts[v]
    ]
    lines = sum(counts.values())
    return f"{lines} {'line' if lines == 1 else 'lines'}: {', '.join(parts)}"


def as_object(name: str, ported: Ported) -> dict[str, Any]:
    """Returns the report on a file, for JSON."""
    old = [line.rstrip("\r\n") for line in split_lines(ported.old)]
    return {
        "path": name,
        "changed": ported.new != ported.old,
        "left": ported.left,
        "lines": [
            {
                "line": number,
                "verdict": verdict.value,
                "old": old[number - 1],
                "new": ported.new_lines.get(number, old[number - 1]),
                "findings": [
                    {
                        "column": each.column,
                        "verdict": each.verdict.value,
                        "name": each.name,
                        "new": each.new,
                        "advice": each.advice,
                    }
                    for each in findings
                ],
            }
            for number, verdict, findings in lines_of(ported)
        ],
    }


def diff(name: str, ported: Ported, paint: Paint) -> str:
    """Returns the change to a file, as a unified diff."""
    lines = difflib.unified_diff(
        split_lines(ported.old),
        split_lines(ported.new),
        f"a/{name}",
        f"b/{name}",
    )
    said = []
    for line in lines:
        text = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        colour = {"+": "32", "-": "31", "@": "36"}.get(line[:1])
        said.append(paint(colour, text.rstrip("\n")) + "\n" if colour else text)
    return "".join(said)
