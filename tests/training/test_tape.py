"""`rx.GradientTape` names the rewrite."""

import pytest

import replicax as rx


@pytest.mark.parametrize("options", [{}, {"persistent": True}])
def test_a_tape_names_the_rewrite(options):
    with pytest.raises(NotImplementedError, match=r"rx\.value_and_grad\(loss_fn, variables\)"):
        rx.GradientTape(**options)
