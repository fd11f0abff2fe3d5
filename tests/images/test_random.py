"""Images at random: the laws of what is drawn, by seeds, and by the place of an element."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Dataset

image = rx.image
PICTURE = np.random.default_rng(0).random((6, 8, 3), np.float32)

STATELESS: dict[str, Callable[..., Any]] = {
    "flip_left_right": image.stateless_random_flip_left_right,
    "flip_up_down": image.stateless_random_flip_up_down,
    "crop": functools.partial(image.stateless_random_crop, size=(3, 4, 3)),
    "brightness": functools.partial(image.stateless_random_brightness, max_delta=0.3),
    "contrast": functools.partial(image.stateless_random_contrast, lower=0.5, upper=1.5),
    "saturation": functools.partial(image.stateless_random_saturation, lower=0.5, upper=1.5),
    "hue": functools.partial(image.stateless_random_hue, max_delta=0.3),
}


@pytest.mark.parametrize("name", STATELESS)
def test_two_numbers_decide(name: str):
    change = STATELESS[name]
    made = [np.asarray(change(PICTURE, seed=(1, number))) for number in range(12)]
    again = [np.asarray(change(PICTURE, seed=np.array([1, number]))) for number in range(12)]
    assert all(np.array_equal(a, b) for a, b in zip(made, again))
    assert len({each.tobytes() for each in made}) > 1
    assert all(each.dtype == np.float32 for each in made)


@pytest.mark.parametrize("name", STATELESS)
def test_the_seed_may_be_an_argument_of_a_compiled_function(name: str):
    compiled = jax.jit(lambda picture, seed: STATELESS[name](picture, seed=seed))
    seeds = jnp.array([[3, number] for number in range(8)])
    made = [np.asarray(compiled(PICTURE, seed)) for seed in seeds]
    assert len({each.tobytes() for each in made}) > 1
    eager = np.asarray(STATELESS[name](jnp.asarray(PICTURE), seed=seeds[2]))
    np.testing.assert_allclose(made[2], eager, atol=1e-5)


def test_what_is_drawn_is_in_range_and_even():
    lighter = [
        image.stateless_random_brightness(np.zeros((1, 1, 1)), 0.5, (0, i)) for i in range(400)
    ]
    numbers = np.array(lighter).ravel()
    assert abs(numbers.mean()) < 0.05 and numbers.min() > -0.5 and numbers.max() < 0.5
    flips = [
        image.stateless_random_flip_left_right(PICTURE, (1, i)) is not PICTURE
        and not np.array_equal(image.stateless_random_flip_left_right(PICTURE, (1, i)), PICTURE)
        for i in range(400)
    ]
    assert 0.4 < np.mean(flips) < 0.6
    batch = np.repeat(PICTURE[None], 200, axis=0)
    flipped = image.stateless_random_flip_left_right(batch, (5, 5))
    share = np.mean([not np.array_equal(each, PICTURE) for each in flipped])
    assert 0.35 < share < 0.65  # each of a batch for itself


def augment(picture: Any) -> Any:
    picture = image.random_flip_left_right(picture)
    return image.random_crop(picture, (4, 4, 3))


def numbered() -> Any:
    return Dataset.from_tensor_slices(np.repeat(PICTURE[None], 10, axis=0))


def test_a_state_continues_with_the_same_pictures():
    def make() -> Any:
        return numbered().shuffle(10).map(augment).repeat(2).batch(3)

    iterator = iter(make())
    for _ in range(2):
        next(iterator)
    state = iterator.get_state()
    rest = [batch.tobytes() for batch in iterator]
    other = iter(make())
    other.set_state(state)
    assert [batch.tobytes() for batch in other] == rest


def test_each_repetition_and_each_iteration_draws_anew():
    dataset = numbered().map(augment)
    first, second = (np.stack(list(dataset)) for _ in range(2))
    assert not np.array_equal(first, second)
    twice = np.stack(list(dataset.repeat(2)))
    assert not np.array_equal(twice[:10], twice[10:])
    assert len({each.tobytes() for each in first}) > 3  # though all pictures are alike


def test_with_a_seed_programs_draw_alike_in_any_number_of_threads_and_blocks():
    def seeded(picture: Any) -> Any:
        return image.random_crop(picture, (4, 4, 3), seed=7)

    plain = [each.tobytes() for each in numbered().map(seeded)]
    assert [each.tobytes() for each in numbered().map(seeded, num_parallel_calls=3)] == plain
    batches = np.concatenate(list(numbered().map(seeded).batch(4)))
    assert [each.tobytes() for each in batches] == plain
    assert [each.tobytes() for each in numbered().map(seeded).skip(6)] == plain[6:]


def test_functions_in_objects_and_partials_are_seen_to_draw():
    class Augment:
        def __call__(self, picture: Any) -> Any:
            return augment(picture)

    for function in (Augment(), functools.partial(augment), lambda picture: augment(picture)):
        dataset = numbered().map(function)
        assert len(iter(dataset).get_state()["seeds"]) == 1
    assert "seeds" not in iter(numbered().map(lambda picture: picture + 1)).get_state()


def test_places_where_nothing_can_be_drawn_are_refused():
    with pytest.raises(TypeError, match=r"Use stateless_random_flip_left_right\(image"):
        jax.jit(image.random_flip_left_right)(PICTURE)
    with pytest.raises(RuntimeError, match=r"in map\(vectorized=True\)"):
        list(numbered().map(image.random_flip_left_right, vectorized=True))
    with pytest.raises(ValueError, match="seed of a stateless function is two integers"):
        image.stateless_random_crop(PICTURE, (1, 1, 1), 3)  # type: ignore[arg-type]


def test_outside_of_pipelines_calls_draw_one_after_the_other():
    drawn = [image.random_brightness(np.zeros((1, 1, 1)), 0.5, seed=11).item() for _ in range(5)]
    assert len(set(drawn)) == 5
    assert image.random_brightness(np.zeros((1, 1, 1)), 0.5).shape == (1, 1, 1)
