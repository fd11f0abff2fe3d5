"""`GradientTape`, which there is none of: what to write instead."""

from __future__ import annotations

from typing import final


@final
class GradientTape:
    """Raises an error that shows the rewrite: JAX differentiates functions, and records no blocks.

    >>> GradientTape()
    Traceback (most recent call last):
    NotImplementedError: There is no gradient tape: JAX differentiates functions. ...
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        raise NotImplementedError(
            "There is no gradient tape: JAX differentiates functions. Make the block a function "
            "that returns the loss, and differentiate that:\n\n"
            "    def loss_fn():\n"
            "        ...              # what was in the block\n"
            "        return loss\n\n"
            "    loss, gradients = rx.value_and_grad(loss_fn, variables)\n\n"
            "With has_aux=True it returns (loss, other) for what is used after the block. For "
            "gradients of arrays use jax.grad, for those of gradients rx.grad in the function. "
            "`replicax migrate` does this to a program."
        )
