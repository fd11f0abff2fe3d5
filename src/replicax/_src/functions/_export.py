"""`fn.export`: a function and the variables that it reads, as files that load without replicax.

The program is StableHLO, serialized by `jax.export`, and takes the variables as its first argument.
`docs/serving.md` has the few lines that load it, with JAX and NumPy alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jax.extend.core import jaxpr_as_fun

from replicax._src import _tree
from replicax._src._arrays import STRING
from replicax._src._errors import WrongContextError
from replicax._src._local_path import naming
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import PyTree, override
from replicax._src.collectives import default_device
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._making import Making
from replicax._src.functions._passage import Entry
from replicax._src.functions._place import Place
from replicax._src.functions._retry import NotOneProgram, OnlyPython, OtherDevicesNeeded, RefNeeded
from replicax._src.functions._structure import flatten
from replicax._src.functions._traced_world import TracedWorld
from replicax._src.functions._tracing import Traced, trace_function
from replicax._src.variable import Variable

PROGRAM, VARIABLES, SIGNATURE = "program.jax", "variables.npz", "signature.json"
_PARTIAL = ".replicax.partial"


@final
class _ExportedWorld(TracedWorld):
    """Variables are one array each, wherever they are: a program that is served has no replicas."""

    @override
    def read(self, variable: Variable) -> jax.Array:
        return self.program.value_of(variable)


def export_function(
    fn: Callable[..., Any],
    name: str,
    path: str,
    specs: Sequence[PyTree],
    platforms: Sequence[str] | None,
) -> None:
    """Writes a function into a new folder.

    Args:
      fn: the Python function.
      name: of it, for errors.
      path: of the folder, absolute.
      specs: what its arguments look like: `TensorSpec`s, or structures of them.
      platforms: where it is to run; None: where it runs now.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists, and is not overwritten. Export to a new folder.")
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(
            "To export a function JAX needs the package flatbuffers, which is not installed. Run: "
            'pip install flatbuffers (or "replicax[export]")'
        )
    shapes = _shapes_of(specs, name)
    traced = _traced(fn, name, shapes)
    entries = [each for each in traced.trace.inputs if isinstance(each, Entry)]
    variables = [entry.variable for entry in entries]
    values = [_value_of(variable, name) for variable in variables]
    program = _program(traced, name)
    looks = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    exported = jax_export.export(
        jax.jit(program), platforms=None if platforms is None else list(platforms)
    )(looks, *shapes)
    _write(path, exported, variables, values)


def _shapes_of(specs: Sequence[PyTree], name: str) -> tuple[Any, ...]:
    """Returns the arguments as JAX describes them; None is a size that each call may choose."""
    scope = jax_export.SymbolicScope()
    count = 0

    def shape_of(spec: object) -> jax.ShapeDtypeStruct:
        nonlocal count
        if not isinstance(spec, TensorSpec):
            raise TypeError(
                f"{name}.export takes an rx.TensorSpec for each argument, or structures of them; "
                f"got {_tree.describe(spec)}. Write {name}.export(path, rx.TensorSpec([None, 3]))."
            )
        if spec.shape is None or spec.dtype == STRING:
            raise ValueError(
                f"{name}.export: {spec!r} has no number of dimensions, or is text; a program needs "
                "arrays with known dimensions, in which None stands for any size."
            )
        sizes = []
        for position, size in enumerate(spec.shape):
            count += size is None and position > 0
            symbol = "batch" if position == 0 else f"size{count}"
            sizes.append(symbol if size is None else str(size))
        shape = jax_export.symbolic_shape(",".join(sizes), scope=scope) if sizes else ()
        return jax.ShapeDtypeStruct(shape, spec.dtype)

    return tuple(
        _tree.map_structure(shape_of, spec, lambda leaf: isinstance(leaf, TensorSpec))
        for spec in specs
    )


def _traced(fn: Callable[..., Any], name: str, shapes: tuple[Any, ...]) -> Traced:
    def stand_in(look: jax.ShapeDtypeStruct) -> np.ndarray:
        fixed = [size if isinstance(size, int) else 1 for size in look.shape]
        return np.zeros(fixed, look.dtype)

    leaves, rebuild, _ = flatten(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    arguments = Arguments(rebuild([stand_in(leaf) for leaf in leaves]), {})
    arguments = arguments.of_shapes([leaf.shape for leaf in leaves])
    place = Place((default_device(),), by_value=True)
    refs: list[Variable] = []
    while True:
        try:
            traced = trace_function(
                fn, fn, arguments, place, Making(False), refs, world=_ExportedWorld
            )
            break
        except RefNeeded as needed:
            refs.append(needed.variable)
        except (OtherDevicesNeeded, NotOneProgram, OnlyPython) as reason:
            raise WrongContextError(
                f"{name} cannot be exported, because it is no program for one device: "
                f"{reason or 'it runs on several'}. Export the function that one replica calls, "
                "such as the model's prediction, without strategy.run."
            ) from None
    written = [entry.variable.name for entry in traced.trace.written]
    if written or traced.trace.deferred:
        raise WrongContextError(
            f"{name} assigns {', '.join(written) or 'variables'}; an exported program only reads "
            "them. Export a function that predicts, as `lambda x: model(x, training=False)`."
        )
    return traced


def _program(traced: Traced, name: str) -> Callable[..., Any]:
    """Returns the program as a function of the variables and the arguments."""
    run = jaxpr_as_fun(traced.program)
    captured = iter(traced.trace.captured_arrays())
    others = [None if isinstance(each, Entry) else next(captured) for each in traced.trace.inputs]

    def program(variables: list[jax.Array], *args: PyTree) -> Any:
        given = iter(variables)
        further = [next(given) if each is None else each for each in others]
        outputs = run(*traced.constants, *flatten(args)[0], *further)
        return traced.returned.again(outputs, 0, ())

    program.__name__ = name if name.isidentifier() else "function"
    return program


def _value_of(variable: Variable, name: str) -> np.ndarray:
    if jnp.issubdtype(variable.dtype, jax.dtypes.prng_key):
        raise WrongContextError(
            f"{name} reads {variable.name}, which holds random keys; an exported program has none. "
            "Pass a key as an argument."
        )
    return np.asarray(variable.numpy())


def _write(
    path: str, exported: Any, variables: Sequence[Variable], values: Sequence[np.ndarray]
) -> None:
    described = [
        {"key": str(index), "name": variable.name, "dtype": str(value.dtype)}
        for index, (variable, value) in enumerate(zip(variables, values, strict=True))
    ]
    signature = {
        "jax": jax.__version__,
        "platforms": list(exported.platforms),
        "arguments": str(jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)[0][1:]),
        "results": str(jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals)),
        "variables": described,
    }
    partial = path + _PARTIAL
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(partial)
    except FileExistsError:
        raise FileExistsError(
            f"{partial} exists: another program exports to {path} now, or one was killed. In that "
            "case remove it."
        ) from None
    try:
        # NumPy's files know neither bfloat16 nor its kind: such are stored as the bits.
        stored: dict[str, Any] = {
            each["key"]: value if value.dtype.isbuiltin == 1 else _bits(value)
            for each, value in zip(described, values, strict=True)
        }
        with naming(path):
            with open(os.path.join(partial, PROGRAM), "wb") as file:
                file.write(exported.serialize())
            np.savez(os.path.join(partial, VARIABLES), **stored)
            with open(os.path.join(partial, SIGNATURE), "w", encoding="utf-8") as file:
                json.dump(signature, file, indent=2)
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _bits(value: np.ndarray) -> np.ndarray:
    return value.view(f"uint{8 * value.dtype.itemsize}")
