"""The search for programs that break a law: smallest programs, dead and silent processes."""

import math
from collections.abc import Sequence

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.sources import Different, Statement, check, run_ways


def test_the_smallest_program_that_differs_is_shown():
    statements = [Statement("", text) for text in ("a = 1", "b = 2", "c = a * 10", "d = b + c")]

    def compare(statements: Sequence[Statement]) -> int:
        names: dict[str, int] = {}
        exec("\n".join(each.text for each in statements), names)
        if "c" in names:
            raise Different(f"c is {names['c']}")
        return 1

    with pytest.raises(AssertionError, match=r"^c is 10\n\na = 1\nc = a \* 10$"):
        check(statements, compare, lambda rest: "\n".join(each.text for each in rest))


def test_a_way_that_fails_alone_is_a_difference():
    assert run_ways({"one": lambda: [1.0, math.nan], "other": lambda: [1.0, math.nan]}) == 1
    with pytest.raises(Different, match="is 2, and not 3"):
        run_ways({"one": lambda: {"a": 2}, "other": lambda: {"a": 3}})
    with pytest.raises(Different, match="other: KeyError"):
        run_ways({"one": lambda: 1, "other": lambda: {}[1]})
    with pytest.raises(KeyError):  # the program itself is wrong
        run_ways({"one": lambda: {}[1], "other": lambda: 1})


def test_a_process_that_dies_is_a_finding():
    score = fuzz.Score()
    fuzz.run_turn("no_such_law", 7, 2, fuzz.Turns(["no_such_law"], 7, 2, 1.0), score)
    assert "ended with status 1" in score.findings[7]
    assert "No module named 'tests.fuzz.test_no_such_law'" in score.findings[7]


def test_a_process_that_says_nothing_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz, "PATIENCE", 0.01)
    score = fuzz.Score()
    fuzz.run_turn("containers", 7, 2, fuzz.Turns(["containers"], 7, 2, 1.0), score)
    assert "said nothing for 0 s and was ended" in score.findings[7]


def test_laws_take_turns_until_all_programs_are_given_out():
    turns = fuzz.Turns(["a", "b"], 100, fuzz.TURN + 1, 1.0)
    assert list(turns) == [
        ("a", 100, fuzz.TURN),
        ("b", 100, fuzz.TURN),
        ("a", 100 + fuzz.TURN, 1),
        ("b", 100 + fuzz.TURN, 1),
    ]
