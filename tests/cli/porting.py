"""Ports the text of a program, for tests."""

import textwrap

import keras  # noqa: F401  # loaded here, because it sets variables of the environment

from replicax._src.cli.migrate import Ported, port


def ported(program: str) -> Ported:
    """Ports a program, whose result must be Python again, and must be stable."""
    result = port(textwrap.dedent(program).encode())
    compile(result.new, "<ported>", "exec")
    again = port(result.new.encode())
    assert again.new == result.new
    assert again.left >= result.left or not result.left
    return result


def check(before: str, after: str) -> None:
    assert ported(before).new == textwrap.dedent(after)


def advice(program: str) -> dict[int, list[str]]:
    """What is left to be done by hand, by line."""
    found: dict[int, list[str]] = {}
    for each in ported(program).findings:
        if each.verdict.by_hand:
            found.setdefault(each.line, []).append(each.text)
    return found
