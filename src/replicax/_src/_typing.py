"""Types that annotations share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from jax.core import Tracer as Tracer

if TYPE_CHECKING:
    from jaxlib._jax import Device as Device  # jax.Device is a variable to type checkers
else:
    Device = jax.Device
