"""What README says besides its Python blocks, which `test_docs.py` runs: it is true as well."""

import re
import shlex
import subprocess

from tests.guards import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def lines_of(example: str) -> list[str]:
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    return [line.removesuffix("  # new") for line in text.splitlines()]


def is_in_order(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


def test_the_diff_leads_from_one_example_to_the_other():
    [diff] = blocks("diff")
    # The strategy stands at the top of the example, and beside its scope in the diff.
    lines = [line for line in diff.splitlines() if line and "MirroredStrategy" not in line]
    before = [line[1:] for line in lines if line[0] in " -"]
    after = [line[1:] for line in lines if line[0] in " +"]
    assert is_in_order(before, lines_of("01_single_device.py"))
    assert is_in_order(after, lines_of("03_compiled.py"))


def test_commands_work():
    commands = [
        shlex.split(line, comments=True) for block in blocks("bash") for line in block.splitlines()
    ]
    assert [command[0] for command in commands] == ["make", "make", "replicax"]
    for command in commands[:2]:  # CI calls these two; here, that they are there
        subprocess.run([*command, "--dry-run"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    # The third is run by the test of its example.


def test_numbers_are_those_of_the_results():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    known = [row_of(line) for line in results.splitlines() if line.startswith("| ")]
    shown = [row_of(line) for line in README.splitlines() if "`make bench BENCH=" in line]
    assert len(shown) > 5
    assert [row for row in shown if row not in [each[: len(row)] for each in known]] == []


def row_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
