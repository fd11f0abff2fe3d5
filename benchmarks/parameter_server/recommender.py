"""What both sides train: two tables of embeddings, a small dense net, and clicks to learn."""

from typing import NamedTuple

import numpy as np

WIDTH = 32
HIDDEN = 64
RATE = 0.1
START = 0.1  # of Adagrad's sums of squares
BATCHES = 64  # different ones; then they come again
LAST = 20  # updates, of whose losses the mean is the loss at the end


class Clicks(NamedTuple):
    """Batches: users, items, and whether they clicked."""

    users: np.ndarray
    items: np.ndarray
    clicked: np.ndarray


def make_clicks(rows: int, batch: int) -> Clicks:
    """Returns the batches, the same ones everywhere. The ids follow Zipf's law."""
    rng = np.random.default_rng(0)
    likes = rng.normal(size=(2, rows)).astype(np.float32)
    ids = (rng.zipf(1.2, size=(2, BATCHES, batch)) - 1) % rows
    users, items = ids
    clicked = (likes[0, users] + likes[1, items] > 0).astype(np.float32)
    return Clicks(users, items, clicked)


def initial_tables(rows: int) -> list[np.ndarray]:
    """Returns the tables of users and of items."""
    rng = np.random.default_rng(1)
    return [0.05 * rng.standard_normal((rows, WIDTH), np.float32) for _ in range(2)]


def initial_weights() -> list[np.ndarray]:
    """Returns weight, bias, weight, bias of the dense net."""
    rng = np.random.default_rng(2)
    shapes = [(2 * WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
    return [0.1 * rng.standard_normal(shape, np.float32) for shape in shapes]
