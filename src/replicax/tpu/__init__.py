"""`rx.tpu`: the topology of TPUs, and of the devices that stand in for them."""

from replicax.tpu import experimental as experimental
