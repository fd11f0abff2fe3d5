"""The public API beside TensorFlow's: every difference has a reason, and the pages say it."""

from typing import Any

import numpy as np
import pytest

import replicax as rx
from scripts.api_review import compare, coverage_page, names_page, reasons
from scripts.api_review.compare import Finding, Kind, additions, differences

CLASSES = list(compare.compared(compare.recorded()))
PAGES = list(compare.compared(compare.recorded_pages()))
FINDINGS: list[Finding] = [
    found for each in (*CLASSES, *PAGES) for found in (each.finding, *each.members)
]


def test_names_were_found():
    assert len(CLASSES) > 150 and len(FINDINGS) > 800
    assert len(PAGES) == 4 and sum(len(page.members) for page in PAGES) > 40


def test_every_difference_has_a_reason():
    silent = [found for found in FINDINGS if found.kind is not Kind.SAME and not found.remark]
    assert not silent, "mend it, or give the reason in scripts/api_review/reasons.py"


def test_every_reason_is_of_a_difference():
    different = {found.name for found in FINDINGS if found.kind is not Kind.SAME}
    stale = [name for name in reasons.REASONS if name.removesuffix("()") not in different]
    assert not stale


def test_nothing_on_the_reference_pages_is_missing():
    own = [found for page in PAGES for found in (page.finding, *page.members)]
    assert not [found.name for found in own if found.kind is Kind.ABSENT]
    assert not [name for name in compare.mentioned() if not compare.instead_of(name)]


def test_classes_with_the_members_of_another_have_them():
    members = {each.finding.name: each.members for each in CLASSES}
    for name, base in reasons.SAME_MEMBERS.items():
        shared = {member.name.rpartition(".")[2] for member in members[base]}
        assert shared <= {member.name.rpartition(".")[2] for member in members[name]}, name


def test_coverage_page_is_up_to_date():
    written = coverage_page.PAGE.read_text(encoding="utf-8")
    assert written == coverage_page.page(), "run `python -m scripts.api_review.coverage_page`"


def test_names_page_is_up_to_date():
    written = names_page.PAGE.read_text(encoding="utf-8")
    assert written == names_page.page(), "run `python -m scripts.api_review.names_page`"


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        (["a", "b=1"], ["a", "b=1"], True),
        (["a", "b=1"], ["a=0", "b=1", "c=None"], True),  # we may need less, and take more
        (["a", "b=1"], ["a", "b=1", "*", "c=None"], True),
        (["a", "b=1"], ["b=1", "a=0"], False),
        (["a", "b=1"], ["a", "b=2"], False),
        (["a", "b=1"], ["a", "b"], False),
        (["a", "b=1"], ["a"], False),
        (["a"], ["a", "c"], False),
        (["a"], ["other"], False),
        (["a", "b=1"], ["a", "*", "b=1"], False),  # they take it without its name
        (["a", "*", "b=1"], ["a", "b=1"], True),
        (["a=Mode.ON"], ["a=OurMode.ON"], True),
        (["a=Mode.ON"], ["a=Mode.OFF"], False),
        (["a=0.5"], ["a=1.5"], False),
        (["a=()"], ["a=()"], True),
        (["*args"], ["*args"], True),
        (["*args", "**kwargs"], ["*args", "name=None"], False),
    ],
)
def test_the_comparison_itself(theirs: list[str], ours: list[str], same: bool):
    assert (not differences(theirs, ours)) is same


def test_what_only_we_take():
    assert additions(["a"], ["a", "b=1", "*", "c=2", "**rest"]) == ["b", "c"]


# --- what the comparison has brought to light -----------------------------------------------------


def test_a_distributed_data_set_is_reduced():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = rx.data.Dataset.range(6).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)

    def add(state: Any, element: Any) -> Any:
        sums = strategy.run(lambda x: x.sum(), args=(element,))
        return state + int(strategy.reduce("SUM", sums, axis=None))

    assert distributed.reduce(0, add) == 15


def test_a_variable_takes_all_of_tensorflows_arguments():
    variable = rx.Variable([1.0], experimental_enable_variable_lifting=False)
    assert np.asarray(variable).tolist() == [1.0]


def test_a_manager_is_told_of_the_last_checkpoint(tmp_path: Any):
    step = rx.Variable(12)
    checkpoint = rx.train.Checkpoint(step=step)
    with rx.train.CheckpointManager(
        checkpoint, tmp_path, 2, checkpoint_interval=5, last_checkpoint_step=10
    ) as manager:
        assert manager.save() is None
        step.assign(15)
        assert manager.save() is not None
