"""Names of TensorFlow that replicax does not have: the error says where to look."""

import pytest

import replicax as rx


def test_a_name_of_tensorflow_says_where_to_look():
    with pytest.raises(AttributeError, match=r"tf\.reduce_sum is in docs/names\.md") as caught:
        getattr(rx, "reduce_sum")  # noqa: B009
    assert caught.value.name == "reduce_sum"
    with pytest.raises(AttributeError, match=r"tf\.distribute\.Server is in"):
        getattr(rx.distribute, "Server")  # noqa: B009


def test_other_names_get_the_usual_error():
    with pytest.raises(AttributeError, match="no attribute '_private'$"):
        getattr(rx, "_private")  # noqa: B009
    assert not hasattr(rx, "keras")


def test_parameter_servers_of_tensorflow_1():
    with pytest.raises(AttributeError, match=r"Use rx\.distribute\.ParameterServerStrategy, with"):
        getattr(rx.compat.v1.distribute.experimental, "ParameterServerStrategy")  # noqa: B009
