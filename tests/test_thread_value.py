"""A value that each thread has for itself."""

import threading

import pytest

from replicax._src._thread_value import ThreadValue


def test_a_block_has_another_value_and_other_threads_their_own():
    value = ThreadValue[int](0)
    seen: list[int] = []
    with value.set(1) as given:
        other = threading.Thread(target=lambda: seen.append(value.value))
        other.start()
        other.join()
        with value.set(2):
            seen.append(value.value)
        seen += [value.value, given]
    assert seen == [0, 2, 1, 1] and value.value == 0


def test_an_error_ends_the_block():
    value = ThreadValue[str]("before")
    with pytest.raises(KeyError), value.set("inside"):
        raise KeyError
    assert value.value == "before"
