"""Writes docs/coverage.md: what became of every name of `tf.distribute`, and of what is around it.

Run `python -m scripts.api_review.coverage_page` in the root; a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.api_review import compare, reasons
from scripts.api_review.compare import Class, Finding, Kind

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "coverage.md"

HEAD = """# Coverage

<!-- Written by `python -m scripts.api_review.coverage_page`, from reasons.py beside it. -->

Whether a name of TensorFlow is here: all of `tf.distribute`, and what programs
with strategies use besides. Each is *same*, *different on purpose* or *not there*, and the last two
say why. This page is written by a program that compares TensorFlow {version} with replicax.

*Same* means: a call that is right in TensorFlow is right here. The arguments have the same names,
order and defaults; replicax may take more. What the calls *do* is compared in other tests:
[What differs on purpose](from-tensorflow.md#what-differs-on-purpose). What to write for any name is
[listed name by name](names.md).

| | Same | Different on purpose | Not there |
|---|---|---|---|
{counts}
"""

PAGES_HEAD = """
## The reference pages

replicax is held to four pages of TensorFlow's reference, of the time of TensorFlow 2.3 and with
older methods. Nothing on them may be missing.
"""

# The first of these that a name begins with is its section.
SECTIONS: dict[str, str] = {
    "tf.distribute.cluster_resolver.": "tf.distribute.cluster_resolver",
    "tf.distribute.coordinator.": "tf.distribute.coordinator",
    "tf.distribute.experimental.": "tf.distribute.experimental",
    "tf.distribute.": "tf.distribute",
    "tf.types.": "tf.types.experimental.distributed",
    "tf.tpu.": "tf.tpu.experimental",
    "tf.compat.v1.distribute.cluster_resolver.": "tf.compat.v1.distribute.cluster_resolver",
    "tf.compat.v1.distribute.experimental.": "tf.compat.v1.distribute.experimental",
    "tf.compat.v1.distribute.": "tf.compat.v1.distribute",
    "tf.config.": "tf.config",
    "tf.data.": "tf.data",
    "tf.io.": "tf.io",
    "tf.nn.": "tf.nn",
    "tf.random.": "tf.random",
    "tf.summary.": "tf.summary",
    "tf.train.": "tf.train",
    "tf.": "tf",
}
TABLE = "\n| TensorFlow | | |\n|---|---|---|\n"


def page() -> str:
    """The whole page."""
    classes = list(compare.compared(compare.recorded()))
    pages = list(compare.compared(compare.recorded_pages()))
    text = HEAD.format(
        version=compare.recorded_version(),
        counts="\n".join(
            [
                _counted("`tf.distribute`", (c for c in classes if _section(c) in _DISTRIBUTE)),
                _counted("around it", (c for c in classes if _section(c) not in _DISTRIBUTE)),
                _counted("the reference pages", pages),
            ]
        ),
    )
    members = {each.finding.name: each.members for each in classes}
    for section in sorted(SECTIONS.values(), key=_order):
        own = [each for each in classes if _section(each) == section]
        text += f"\n## `{section}`\n{TABLE}" + "".join(_rows(own, section, members))
    text += PAGES_HEAD + TABLE + "".join(_rows(pages, "", {}))
    return text + _mentioned()


def _mentioned() -> str:
    instead = {name: compare.instead_of(name) for name in compare.mentioned()}
    plain = [name for name, new in instead.items() if new == f"`{name.replace('tf.', 'rx.', 1)}`"]
    rows = [f"| `{name}` | {new} |\n" for name, new in instead.items() if name not in plain]
    return (
        "\nOther names that these pages mention, and what they are here:\n"
        "\n| TensorFlow | Here |\n|---|---|\n" + "".join(rows) + "\n"
        f"With `rx.` for `tf.`, and all else the same: {_listed(plain)}.\n"
    )


_DISTRIBUTE = {name for name in SECTIONS.values() if ".distribute" in name or ".types" in name}


def _order(section: str) -> tuple[bool, bool, str]:
    """What the page is about comes first, and the older names last of it."""
    return (section not in _DISTRIBUTE, ".v1" in section, section)


def _section(each: Class) -> str:
    name = each.finding.name
    return next(title for start, title in SECTIONS.items() if name.startswith(start))


def _counted(title: str, classes: Iterable[Class]) -> str:
    kinds = Counter(found.kind for each in classes for found in (each.finding, *each.members))
    return f"| {title} | " + " | ".join(str(kinds[kind]) for kind in Kind) + " |"


def _rows(
    classes: list[Class], section: str, all_members: dict[str, tuple[Finding, ...]]
) -> Iterator[str]:
    absent = [each for each in classes if each.finding.kind is Kind.ABSENT]
    for each in classes:
        if each not in absent:
            base = reasons.SAME_MEMBERS.get(each.finding.name, "")
            yield from _class_rows(each, section, base, all_members.get(base, ()))
    for remark in dict.fromkeys(each.finding.remark for each in absent):
        same = [each.finding.name for each in absent if each.finding.remark == remark]
        yield _row(", ".join(_short(name, section) for name in same), Kind.ABSENT, remark)


def _class_rows(
    each: Class, section: str, base: str, base_members: tuple[Finding, ...]
) -> Iterator[str]:
    known = {_facts(member) for member in base_members}
    own = [member for member in each.members if _facts(member) not in known]
    same = [member for member in own if member.kind is Kind.SAME]
    remarks = [each.finding.remark] if each.finding.remark else []
    if each.finding.more:
        remarks.append(f"also takes {_listed(each.finding.more)}")
    if len(own) < len(each.members):
        remarks.append(f"the members of `{base}`")
    if same:
        remarks.append("its " + _listed(member.name.rpartition(".")[2] for member in same))
    yield _row(_short(each.finding.name, section), each.finding.kind, "; ".join(remarks))
    more = [member for member in same if member.more]
    for taken in dict.fromkeys(member.more for member in more):
        names = [_member(member) for member in more if member.more == taken]
        yield _row(", ".join(names), Kind.SAME, f"also takes {_listed(taken)}")
    others = [member for member in own if member.kind is not Kind.SAME]
    for kind, remark in dict.fromkeys((member.kind, member.remark) for member in others):
        names = [_member(other) for other in others if (other.kind, other.remark) == (kind, remark)]
        yield _row(", ".join(names), kind, remark)


def _facts(member: Finding) -> tuple[object, ...]:
    return (member.name.rpartition(".")[2], member.kind, member.remark, member.more)


def _member(finding: Finding) -> str:
    owner, _, member = finding.name.rpartition(".")
    return f"`{owner.rpartition('.')[2]}.{member}`"


def _short(name: str, section: str) -> str:
    return f"`{name.removeprefix(f'{section}.') if section else name}`"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(name: str, kind: Kind, remark: str) -> str:
    return f"| {name} | {kind.value} | {remark} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
