"""Which tensors of a reduction are sent together, by what a collective costs."""

from __future__ import annotations

from typing import NamedTuple


class Packing(NamedTuple):
    """What goes into a pack."""

    alone_from_bytes: int
    """From this size on a tensor goes alone."""
    by_shape: bool
    """Whether a pack is of one shape. Otherwise vectors go with vectors.

    Vectors tend to be sums (the gradients of biases), which XLA on the CPU puts into the loop that
    copies the pack, and carries out again for every item of it: a net of four layers took 100 times
    as long with its matrices in the same pack.
    """
    most_tensors: int | None
    """In one pack.

    What is done with a tensor after the pack was split begins with its place in the pack, and XLA
    compiles it for each place. Tensors of one shape in many small packs share their places. For a
    net of fifty layers, 16 wide, the first call then takes 60% of the time; its steps, as long on
    two devices and a fifth longer on eight, where one by one they would take twice as long.
    """


# Inside one process a collective is cheap, and the loop that copies a pack is not (nets of 3 to 30
# layers); between workers it is the other way round.
IN_ONE_PROCESS = Packing(128 << 10, by_shape=True, most_tensors=16)
BETWEEN_WORKERS = Packing(1 << 20, by_shape=False, most_tensors=None)
