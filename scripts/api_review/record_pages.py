"""Records the names and arguments on pages of TensorFlow's reference, as Markdown files.

`python -m scripts.api_review.record_pages FOLDER` reads the pages that replicax is held to: those
of `tf.distribute.Strategy`, `DistributedValues`, and the older `MirroredStrategy` and
`StrategyExtended`. Some of their names are gone from TensorFlow itself by now.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from scripts.api_review import record
from scripts.api_review.surface import Described

RECORDED = Path(__file__).parent / "recorded" / "reference_pages.json"

_TITLE = re.compile(r"^# (tf\.[\w.]+)$", re.M)
_SIGNATURE = re.compile(r"tfo-signature-link\">\s*<code>([\w.]+)\((.*?)\)\s*</code>", re.S)
_ATTRIBUTES = re.compile(r">Attributes</h2></th></tr>(.*?)</table>", re.S)
_ATTRIBUTE = re.compile(r"<tr>\s*<td>\s*`(\w+)`\s*</td>")
_MENTIONED = re.compile(r"\btf\.[A-Za-z_][\w.]*\w")
_MISPRINTS = {"tf.distrbute": "tf.distribute"}


def read(text: str) -> tuple[str, Described] | None:
    """Reads a page; None if it has no title."""
    title = _TITLE.search(text)
    if title is None:
        return None
    name = title[1]
    described: Described = {"kind": "class", "arguments": None, "members": {}}
    for attributes in _ATTRIBUTES.findall(text):
        described["members"] |= dict.fromkeys(_ATTRIBUTE.findall(attributes))
    for called, inside in _SIGNATURE.findall(text):
        arguments = [" ".join(each.split()) for each in inside.split(", ") if each.strip()]
        if called == name:
            described["arguments"] = arguments
        else:
            described["members"][called] = arguments
    described["members"] = dict(sorted(described["members"].items()))
    return name, described


def mentioned(text: str) -> set[str]:
    """The names of TensorFlow anywhere in a page."""
    for wrong, right in _MISPRINTS.items():
        text = text.replace(wrong, right)
    return set(_MENTIONED.findall(text))


def main(folder: str) -> None:
    """Replaces the recorded file."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.md"))]
    found = dict(sorted(page for page in map(read, texts) if page is not None))
    record.write(RECORDED, "2.3", found, sorted(set().union(*map(mentioned, texts))))
    print(f"{len(found)} pages in {RECORDED}")


if __name__ == "__main__":
    main(sys.argv[1])
