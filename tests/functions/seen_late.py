"""What tests of what a compiled function sees share."""

import collections
import dataclasses
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import replicax as rx


def losses_of(loss: Callable[[], Any], v: Any, changes: list[Callable[[], Any]]) -> list[float]:
    """The compiled loss after each change, having checked that plain Python agrees."""
    found = []
    for change in [lambda: None, *changes]:
        change()
        expected, gradient = rx.value_and_grad(loss, [v])
        value, compiled = rx.value_and_grad(loss, [v], compile=True)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(compiled[0], gradient[0], rtol=1e-6)
        assert (value.dtype, compiled[0].dtype) == (expected.dtype, gradient[0].dtype)
        found.append(float(value))
    return found


@dataclasses.dataclass
class Settings:
    scale: Any


def local() -> Any:
    held = threading.local()
    held.scale = 1.0
    return held


def with_proxy() -> Any:
    held = types.SimpleNamespace(target=Settings(1.0))
    held.proxy = weakref.proxy(held.target)
    return held


def with_view(view: str) -> Any:
    items = {1.0: 1.0}
    return types.SimpleNamespace(items=items, view=getattr(items, view)())


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a dict": (lambda: {"k": 1.0}, lambda d: d["k"], lambda d: d.update(k=3.0)),
    "a list": (lambda: [1.0], lambda d: d[-1], lambda d: d.append(3.0)),
    "a set": (lambda: {1.0}, lambda d: max(d), lambda d: d.add(3.0)),
    "a deque": (lambda: collections.deque([1.0]), lambda d: d[-1], lambda d: d.append(3.0)),
    "a dict in a tuple": (lambda: ({"k": 1.0},), lambda d: d[0]["k"], lambda d: d[0].update(k=3.0)),
    "a NumPy array": (lambda: np.ones(1), lambda d: d[0], lambda d: d.fill(3.0)),
    "a dataclass": (lambda: Settings(1.0), lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
    "a thread's own": (local, lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
    "a weak proxy": (
        with_proxy,
        lambda d: d.proxy.scale,
        lambda d: setattr(d.target, "scale", 3.0),
    ),
    "keys": (lambda: with_view("keys"), lambda d: max(d.view), lambda d: d.items.update({3.0: 0})),
    "values": (
        lambda: with_view("values"),
        lambda d: max(d.view),
        lambda d: d.items.update({1.0: 3.0}),
    ),
    "a flat view": (lambda: np.ones(2).flat, lambda d: float(d[0]), lambda d: d.base.fill(3.0)),
}
