"""What goes wrong in a user's function or data comes out at `next()`, with the place named."""

import traceback
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Dataset, elements


def notes_of(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("in the user's function")


PLACES = {
    "map()": lambda: Dataset.range(3).map(broken),
    "map(vectorized=True)": lambda: Dataset.range(3).map(broken, vectorized=True),
    "filter()": lambda: Dataset.range(3).filter(broken),
    "flat_map()": lambda: Dataset.range(3).flat_map(broken),
    "interleave()": lambda: Dataset.range(3).interleave(broken, 2),
    "in parallel": lambda: Dataset.range(3).map(broken, num_parallel_calls=2).batch(3),
    "of a generator": lambda: Dataset.from_generator(broken),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "around",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.prefetch(2),
        lambda dataset: dataset.batch(2).map(lambda x: x).repeat(2),
        lambda dataset: Dataset.zip(dataset, Dataset.range(3)).cache(),
    ],
)
def test_the_users_error_has_the_users_frame_and_names_the_operation(place: str, around: Any):
    with pytest.raises(ZeroDivisionError, match="in the user's function") as caught:
        list(around(PLACES[place]()))
    assert any(frame.name == "broken" for frame in traceback.extract_tb(caught.tb))
    if place != "of a generator":
        operation = "map()" if place == "in parallel" else place
        assert operation in notes_of(caught.value) and "broken" in notes_of(caught.value)
    assert notes_of(caught.value).count("Raised by broken") <= 1


@pytest.mark.parametrize("place", [name for name in PLACES if name != "of a generator"])
def test_a_function_that_raises_stop_iteration_does_not_end_the_data(place: str):
    def stops(*_: Any) -> Any:
        return next(iter(()))

    make = {
        "map()": lambda: Dataset.range(3).map(stops),
        "map(vectorized=True)": lambda: Dataset.range(3).map(stops, vectorized=True),
        "filter()": lambda: Dataset.range(3).filter(stops),
        "flat_map()": lambda: Dataset.range(3).flat_map(stops),
        "interleave()": lambda: Dataset.range(3).interleave(stops, 2),
        "in parallel": lambda: Dataset.range(3).map(stops, num_parallel_calls=2).batch(3),
    }[place]
    for dataset in (make(), make().prefetch(2), make().batch(2)):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(dataset)
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(strategy.experimental_distribute_dataset(make().batch(2)))


def test_a_function_that_returns_nothing():
    with pytest.raises(TypeError, match="map.*returned None.*return` missing"):
        list(Dataset.range(3).map(lambda x: None))
    with pytest.raises(TypeError, match="returned None"):
        list(Dataset.range(3).batch(2).map(lambda x: print(end="")))
    with pytest.raises(TypeError, match=r"None|nothing"):
        list(Dataset.range(3).map(lambda x: (x, None)))


@pytest.mark.parametrize("result", [object(), {1, 2}, np.array([object()]), range(3), lambda: 1])
def test_a_function_that_returns_what_no_element_can_be(result: Any):
    with pytest.raises(TypeError, match="element of a data set") as caught:
        list(Dataset.range(3).map(lambda x: result))
    assert "map()" in notes_of(caught.value)


def test_a_vectorized_function_that_changes_the_number_of_rows():
    for fn in (lambda x: x[:-1], lambda x: x.sum(), lambda x: 5, lambda x: (x, x[:1])):
        with pytest.raises(ValueError, match=r"given 3 elements.*must return as many"):
            list(Dataset.range(3).map(fn, vectorized=True).batch(3))


def test_filters_must_say_yes_or_no():
    for fn in (lambda x: x, lambda x: None, lambda x: np.array([True, False]), lambda x: "yes"):
        with pytest.raises(TypeError, match="filter.*must return one bool"):
            list(Dataset.range(3).filter(fn))


def test_functions_of_flat_map_must_return_data_sets():
    for made in (3, None, [1, 2], np.arange(3), Dataset):
        with pytest.raises(TypeError, match="flat_map.*must return a data set"):
            list(Dataset.range(3).flat_map(lambda x, made=made: made))


def test_the_wrong_number_of_arguments():
    with pytest.raises(TypeError, match="positional argument") as caught:
        list(Dataset.zip(Dataset.range(2), Dataset.range(2)).map(lambda x: x))
    assert "map()" in notes_of(caught.value)


def test_generators_that_are_none():
    with pytest.raises(TypeError, match="from_generator") as caught:
        list(Dataset.from_generator(lambda: 5))
    with pytest.raises(TypeError, match="item 1") as caught:
        list(Dataset.from_generator(lambda: iter([1, None])))
    with pytest.raises(TypeError, match="cannot be in an element") as caught:
        list(Dataset.from_generator(lambda: iter([object()])))
    assert "item 0" in notes_of(caught.value)


def test_elements_that_do_not_fit_in_one_batch_are_named():
    ragged = Dataset.from_generator(lambda: iter([[1, 2], [3]]))
    with pytest.raises(ValueError, match=r"batch\(\).*int32\[2\], int32\[1\].*padded_batch"):
        list(ragged.batch(2))
    mixed = Dataset.from_generator(lambda: iter([1, 2.5]))
    with pytest.raises(ValueError, match=r"batch\(\).*int32\[\], float32\[\]"):
        list(mixed.batch(2))
    text = Dataset.from_generator(lambda: iter([1, "two"]))
    with pytest.raises(ValueError, match=r"batch\(\)"):
        list(text.batch(2))
    more_text = Dataset.from_generator(lambda: iter(["one", 2]))
    with pytest.raises(ValueError, match=r"batch\(\)"):
        list(more_text.batch(2))
    tables = Dataset.from_generator(lambda: iter([["a"], ["a", "b"]]))
    with pytest.raises(ValueError, match=r"batch\(\).*padded_batch"):
        list(tables.batch(2))


def test_the_error_of_a_second_pass_is_the_error_of_a_first_one():
    dataset = Dataset.range(3).map(broken)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            list(dataset)
        assert notes_of(caught.value).count("map()") == 1


def test_data_sets_in_compiled_functions_of_jax_are_read_while_tracing():
    """Nothing else is possible; what they give are constants."""

    def sum_of(x: Any) -> Any:
        return x + sum(int(element) for element in Dataset.range(4))

    assert int(jax.jit(sum_of)(1)) == 7


def test_an_error_does_not_harm_the_data_set():
    fail = [True]

    def fn(x: Any) -> Any:
        if fail[0]:
            raise KeyError("now")
        return x

    dataset = Dataset.range(3).map(fn).shuffle(3, seed=1).batch(2).prefetch(1)
    with pytest.raises(KeyError):
        list(dataset)
    fail[0] = False
    assert sorted(x for batch in elements(dataset) for x in batch) == [0, 1, 2]


def test_an_error_in_one_of_zipped_data_sets():
    def generate() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(Dataset.zip(Dataset.range(9), Dataset.from_generator(generate)))
