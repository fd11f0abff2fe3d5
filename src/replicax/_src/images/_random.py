"""Images changed at random: by a seed, or by the place of an element in a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax
import numpy as np

from replicax._src._element_draws import generator_for
from replicax._src._typing import DTypeLike, Tracer
from replicax._src.images._arrays_of import Image, as_image
from replicax._src.images._coding import adjust_jpeg_quality
from replicax._src.images._colours import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
)
from replicax._src.images._geometry import flip_left_right, flip_up_down

Seed = Sequence[int] | np.ndarray | jax.Array


class _Numbers(Protocol):
    """Where random numbers come from."""

    def uniform(self, low: float, high: float, count: int | None = None) -> Any: ...
    def integer(self, low: int, high: Any) -> Any: ...


@final
class _OfGenerator:
    """Numbers of NumPy."""

    def __init__(self, generator: np.random.Generator):
        self._generator = generator

    def uniform(self, low: float, high: float, count: int | None = None) -> Any:
        numbers = self._generator.uniform(low, high, count)
        return numbers if count is not None else float(numbers)

    def integer(self, low: int, high: Any) -> int:
        return int(self._generator.integers(low, high))


@final
class _OfKey:
    """Numbers of JAX, which may be made in a compiled function."""

    def __init__(self, key: jax.Array):
        self._key = key

    def uniform(self, low: float, high: float, count: int | None = None) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.uniform(key, () if count is None else (count,), minval=low, maxval=high)

    def integer(self, low: int, high: Any) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.randint(key, (), low, high)


def _by_seed(seed: Seed, image: Image) -> _Numbers:
    """Returns the numbers of a `stateless_random_` function, whose seed is two integers."""
    if isinstance(seed, jax.Array) or isinstance(image, Tracer):
        parts = jax.numpy.asarray(seed)
        _check_seed(parts.shape, parts.dtype, seed)
        first, second = parts.astype(jax.numpy.uint32)
        return _OfKey(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), first), second))
    given = np.asarray(seed)
    _check_seed(given.shape, given.dtype, seed)
    sequence = np.random.SeedSequence([int(each) % 2**64 for each in given])
    return _OfGenerator(np.random.Generator(np.random.Philox(sequence)))


def _check_seed(shape: tuple[int, ...], dtype: DTypeLike, seed: Seed) -> None:
    if shape != (2,) or np.dtype(dtype).kind not in "iu":
        raise ValueError(f"A seed of a stateless function is two integers; got {seed!r}.")


def _by_place(seed: int | None, image: Image, operation: str) -> _Numbers:
    """Returns the numbers of a `random_` function."""
    if isinstance(image, Tracer):
        raise TypeError(
            f"{operation} was called in a compiled function, where it would draw once and for all. "
            f"Use stateless_{operation[:-2]}(image, ..., seed=seed), with a seed that is an "
            "argument of the function."
        )
    return _OfGenerator(generator_for(seed))


def _check_range(lower: float, upper: float, operation: str) -> None:
    if upper <= lower or lower < 0:
        raise ValueError(
            f"{operation} takes 0 <= lower < upper; got lower={lower!r}, upper={upper!r}."
        )


def _check_not_negative(delta: float, operation: str, most: float | None = None) -> None:
    if delta < 0 or (most is not None and delta > most):
        limit = "0 or more" if most is None else f"from 0 to {most}"
        raise ValueError(f"{operation} takes a max_delta that is {limit}; got {delta!r}.")


# ------------------------------------------------------------------ what is done


def _flipped(image: Image, numbers: _Numbers, flip: Callable[[Image], Any]) -> Any:
    array = as_image(image, "a random flip")
    turned = flip(array)
    if array.ndim == 3:
        chosen = numbers.uniform(0, 1) < 0.5
        if isinstance(chosen, bool | np.bool_):
            return turned if chosen else array
        return jax.numpy.where(chosen, turned, array)
    chosen = (numbers.uniform(0, 1, len(array)) < 0.5).reshape(-1, 1, 1, 1)
    xp = np if isinstance(chosen, np.ndarray) and isinstance(array, np.ndarray) else jax.numpy
    return xp.where(chosen, turned, array)


def _cropped(value: Image, size: Sequence[int], numbers: _Numbers, operation: str) -> Any:
    array = as_image(value, operation, 0)
    wanted = tuple(int(each) for each in size)
    if len(wanted) != array.ndim or any(a > b for a, b in zip(wanted, array.shape)):
        raise ValueError(
            f"{operation} takes a size for each dimension, at most that of the array, "
            f"{array.shape}; got {wanted}."
        )
    starts = [numbers.integer(0, have - want + 1) for have, want in zip(array.shape, wanted)]
    if all(isinstance(start, int) for start in starts):
        return array[tuple(slice(start, start + want) for start, want in zip(starts, wanted))]
    return jax.lax.dynamic_slice(array, starts, wanted)


# ------------------------------------------------------------------ by two numbers


def stateless_random_flip_left_right(image: Image, seed: Seed) -> Any:
    """Returns an image, mirrored with a chance of one half, as two numbers decide."""
    return _flipped(image, _by_seed(seed, image), flip_left_right)


def stateless_random_flip_up_down(image: Image, seed: Seed) -> Any:
    """Returns an image, upside down with a chance of one half, as two numbers decide."""
    return _flipped(image, _by_seed(seed, image), flip_up_down)


def stateless_random_crop(
    value: Image, size: Sequence[int], seed: Seed, name: str | None = None
) -> Any:
    """Returns a part of an array, of a size for each dimension, from where two numbers decide."""
    return _cropped(value, size, _by_seed(seed, value), "stateless_random_crop()")


def stateless_random_brightness(image: Image, max_delta: float, seed: Seed) -> Any:
    """Returns what `adjust_brightness` does, by up to `max_delta`, as two numbers decide."""
    _check_not_negative(max_delta, "stateless_random_brightness()")
    return adjust_brightness(image, _by_seed(seed, image).uniform(-max_delta, max_delta))


def stateless_random_contrast(image: Image, lower: float, upper: float, seed: Seed) -> Any:
    """Returns what `adjust_contrast` does, with a factor between two, as two numbers decide."""
    _check_range(lower, upper, "stateless_random_contrast()")
    return adjust_contrast(image, _by_seed(seed, image).uniform(lower, upper))


def stateless_random_saturation(image: Image, lower: float, upper: float, seed: Seed) -> Any:
    """Returns what `adjust_saturation` does, with a factor between two, as two numbers decide."""
    _check_range(lower, upper, "stateless_random_saturation()")
    return adjust_saturation(image, _by_seed(seed, image).uniform(lower, upper))


def stateless_random_hue(image: Image, max_delta: float, seed: Seed) -> Any:
    """Returns what `adjust_hue` does, by up to `max_delta` more or less, as two numbers decide."""
    _check_not_negative(max_delta, "stateless_random_hue()", 0.5)
    return adjust_hue(image, _by_seed(seed, image).uniform(-max_delta, max_delta))


def stateless_random_jpeg_quality(
    image: Image, min_jpeg_quality: int, max_jpeg_quality: int, seed: Seed
) -> np.ndarray:
    """Returns what `adjust_jpeg_quality` does, with a quality that two numbers decide."""
    quality = _by_seed(seed, image).integer(min_jpeg_quality, max_jpeg_quality)
    return adjust_jpeg_quality(image, quality)


# ------------------------------------------------------------------ by the place of an element


def random_flip_left_right(image: Image, seed: int | None = None) -> Any:
    """Returns an image, mirrored with a chance of one half; each image of a batch for itself.

    In a function of `dataset.map`, what is drawn follows from a seed and from the place of the
    element in the data, so that a state continues exactly, and is another in each repetition; so
    it is for all functions of `rx.image` that begin with `random_`.
    """
    return _flipped(image, _by_place(seed, image, "random_flip_left_right()"), flip_left_right)


def random_flip_up_down(image: Image, seed: int | None = None) -> Any:
    """Returns an image, upside down with a chance of one half; each of a batch for itself."""
    return _flipped(image, _by_place(seed, image, "random_flip_up_down()"), flip_up_down)


def random_crop(
    value: Image, size: Sequence[int], seed: int | None = None, name: str | None = None
) -> Any:
    """Returns a part of an array, of a size for each dimension, from anywhere."""
    return _cropped(value, size, _by_place(seed, value, "random_crop()"), "random_crop()")


def random_brightness(image: Image, max_delta: float, seed: int | None = None) -> Any:
    """Returns what `adjust_brightness` does, by up to `max_delta` more or less."""
    _check_not_negative(max_delta, "random_brightness()")
    numbers = _by_place(seed, image, "random_brightness()")
    return adjust_brightness(image, numbers.uniform(-max_delta, max_delta))


def random_contrast(image: Image, lower: float, upper: float, seed: int | None = None) -> Any:
    """Returns what `adjust_contrast` does, with a factor from `lower` to `upper`."""
    _check_range(lower, upper, "random_contrast()")
    return adjust_contrast(image, _by_place(seed, image, "random_contrast()").uniform(lower, upper))


def random_saturation(image: Image, lower: float, upper: float, seed: int | None = None) -> Any:
    """Returns what `adjust_saturation` does, with a factor from `lower` to `upper`."""
    _check_range(lower, upper, "random_saturation()")
    numbers = _by_place(seed, image, "random_saturation()")
    return adjust_saturation(image, numbers.uniform(lower, upper))


def random_hue(image: Image, max_delta: float, seed: int | None = None) -> Any:
    """Returns what `adjust_hue` does, by up to `max_delta` more or less."""
    _check_not_negative(max_delta, "random_hue()", 0.5)
    numbers = _by_place(seed, image, "random_hue()")
    return adjust_hue(image, numbers.uniform(-max_delta, max_delta))


def random_jpeg_quality(
    image: Image, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None
) -> np.ndarray:
    """Returns what `adjust_jpeg_quality` does, with a quality between two."""
    quality = _by_place(seed, image, "random_jpeg_quality()").integer(
        min_jpeg_quality, max_jpeg_quality
    )
    return adjust_jpeg_quality(image, quality)
