"""Which tensors of a reduction are sent together, by what a collective costs."""

from __future__ import annotations

from typing import NamedTuple


class Packing(NamedTuple):
    """What goes into a pack."""

    alone_from_bytes: int
    """From this size on a tensor goes alone."""
    most_alike: int | None
    """How many tensors of one shape are in one pack.

    What is done with a tensor after the pack was split begins with its place in the pack, and XLA
    compiles it for each place. Tensors of one shape in many small packs share their places. For a
    net of fifty layers, 16 wide, the first call takes 1.7 times the processor time of a step
    without packs if there are 8 of a shape in a pack, and 2.4 times with 16. Compiled steps on CPUs
    join such packs where they can: there the places are hidden (`functions/_hidden_places.py`).
    """


# Inside one process a collective is cheap, and the loop that copies a pack is not (nets of 2 to 50
# layers); between workers it is the other way round.
IN_ONE_PROCESS = Packing(256 << 10, most_alike=8)
BETWEEN_WORKERS = Packing(1 << 20, most_alike=None)
