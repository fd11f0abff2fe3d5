"""What to do about an error that JAX raised while a function was traced, in the user's words."""

from __future__ import annotations

_REMEDIES = {
    "TracerBoolConversionError": (
        "a Python `if`, `while`, `and` or `assert` asks for the value of an array, which is known "
        "when the compiled program runs, and not while it is traced. Use jnp.where or "
        "jax.lax.cond, or make the condition a Python value"
    ),
    "ConcretizationTypeError": (
        "Python asks for the value of an array, which is known when the compiled program runs, and "
        "not while it is traced. Pass it as a Python number, or compute it with jax.numpy"
    ),
    "TracerArrayConversionError": (
        "NumPy, .numpy() or .item() asks for the value of an array, which is known when the "
        "compiled program runs, and not while it is traced. Use jax.numpy, or return the array"
    ),
    "TracerIntegerConversionError": (
        "Python asks for the value of an array, as a size or an index. Pass it as a Python number, "
        "or use jnp.take and jax.lax.dynamic_slice"
    ),
    "UnexpectedTracerError": (
        "a value of a function that was traced before was kept, in a global, a list or an "
        "attribute, and is used here. Return it from that function instead"
    ),
}


def remark_on(error: Exception) -> str | None:
    """Returns what to add to an error of the compiler's, if it is known."""
    if "Inconsistent conditional sharding" in str(error):
        return (
            "(a branch of a lax.cond or lax.switch ends with a tensor that is split over the "
            "logical devices, and another one with a tensor that is not. Mark the results of all "
            "branches alike, or mark what lax.cond returns)"
        )
    return None


def remedy_for(error: Exception) -> str:
    if isinstance(error, NotImplementedError) and "State effect" in str(error):
        return (
            "JAX cannot differentiate a loop over a lax.cond or lax.switch in which a variable is "
            "assigned. Return the new value from the branches, and assign it outside"
        )
    if isinstance(error, AttributeError) and error.name in ("numpy", "item", "tolist"):
        return _REMEDIES["TracerArrayConversionError"]
    return next(
        (_REMEDIES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _REMEDIES),
        "without rx.function it runs as plain Python, where it is easier to look at",
    )
