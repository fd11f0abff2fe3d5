"""Calls that are rewritten with their arguments: `tf.argmax(x)` is `jnp.argmax(x, axis=0)`.

The forms are lines of `_calls_table.CALLS`. Which library a line calls depends on where it stands:
NumPy in functions of data sets, Keras in files with Keras models, whose variables JAX does not take
while it traces, and JAX elsewhere.
"""

import ast
import dataclasses
import enum
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, final

import libcst as cst
import libcst.matchers as m

from replicax._src._typing import override
from replicax._src.cli.migrate import _calls_table
from replicax._src.cli.migrate._lookup import (
    MODULES,
    call_lines,
    for_numpy,
    function_of,
    is_function,
)

Part = str | cst.BaseExpression
"""A piece of a new line: text, or an expression of the old one, which may change inside."""

_KINDS = ("", "any", "array", "axes", "parts", "places", "sizes", "strides")

_SIMPLE = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float


@final
class Library(enum.Enum):
    """Whose functions a line calls."""

    JAX = enum.auto()
    KERAS = enum.auto()
    NUMPY = enum.auto()


@final
class Refused(Exception):
    """A call cannot be rewritten; the text says why."""

    def __init__(self, message: str, new: str = "") -> None:
        super().__init__(message)
        self.new = new


_ON_NUMPY = "functions of data sets work on NumPy arrays"


def name_in(library: Library, name: str) -> str:
    """Returns what a library calls a function of JAX.

    Raises:
      Refused: It has none.
    """
    if name == "cast":
        return {"KERAS": "keras.ops.cast", "NUMPY": "np.asarray"}.get(library.name, "jnp.asarray")
    if name.partition(".")[0] not in ("jax", "jnp"):
        return name
    last = name.rpartition(".")[2]
    if library is Library.NUMPY:
        if (found := for_numpy(name)) == name:
            raise Refused(_ON_NUMPY)
        return found
    if library is Library.KERAS and last not in _calls_table.NOT_OF_KERAS.split():
        return f"keras.ops.{_calls_table.OTHERWISE_IN_KERAS.get(last, last)}"
    return name


@final
class Parameter(NamedTuple):
    """A parameter of a function of TensorFlow."""

    names: tuple[str, ...]
    default: str | None
    """What is written where it is not given; "None" if nothing is; None if it must be given."""
    kind: str
    """What the argument has to be: one of `_KINDS`, or a literal such as `True`."""


@final
@dataclasses.dataclass(frozen=True)
class Form:
    """A function of TensorFlow, and the expression that takes the place of a call."""

    parameters: tuple[Parameter, ...]
    new: str
    takes_any: bool
    """Whether any positional arguments are passed on as they are."""

    @property
    def keeps_arguments(self) -> bool:
        """Whether only the name differs where all arguments are given by position."""
        names = ", ".join(each.names[0] for each in self.parameters)
        has_no_more = all(each.default is None for each in self.parameters)
        return self.takes_any or (has_no_more and self.new.endswith(f"({names})"))


@functools.cache
def forms(table: str = _calls_table.CALLS) -> dict[str, list[Form]]:
    """Returns the forms of each function whose calls are rewritten, by its name in TensorFlow."""
    found: dict[str, list[Form]] = {}
    for name, parameters, new in call_lines(table):
        form = Form(tuple(_parameters(parameters)), new, parameters == "*")
        found.setdefault(name, []).append(form)
    return found


def _parameters(written: str) -> Iterator[Parameter]:
    for each in [] if written in ("", "*") else written.split(", "):
        left, has_default, default = each.partition("=")
        names, _, kind = left.partition(":")
        needed = None if not has_default and not names.startswith("_") else default or "None"
        yield Parameter(tuple(names.split("|")), needed, kind or _kind_of(names.split("|")[0]))


def _kind_of(name: str) -> str:
    """Returns what a parameter of this name is, where the table does not say it."""
    return "array" if name in _calls_table.ARRAYS.split() else ""


@final
class Rewrite(NamedTuple):
    """What takes the place of a call."""

    function: str
    """What is called instead; empty if nothing is."""
    parts: list[Part]
    """The whole of it; empty if the arguments stay as they are."""


class Surroundings(Protocol):
    """What is known of the expressions of a file."""

    def is_list(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is a list of arrays, as far as can be seen."""
        ...

    def is_number(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is a number that Python knows, as far as can be seen."""
        ...

    def stands_alone(self, call: cst.Call) -> bool:
        """Returns whether a call is no part of another expression: `x = f()`, `g(f())`."""
        ...


def rewrite(
    alternatives: list[Form], call: cst.Call, library: Library, around: Surroundings
) -> Rewrite:
    """Finds what takes the place of a call: the first form that its arguments fit.

    Args:
      alternatives: the forms of the function.
      call: the call.
      library: whose functions the line is to call.
      around: what is known of the file.

    Raises:
      Refused: An argument means something else, or cannot be seen.
    """
    problem: Refused | None = None
    for form in alternatives:
        try:
            return _Filled(form, call, library, around).result()
        except Refused as refused:
            problem = problem or refused
    assert problem is not None
    raise problem


@final
class _Filled(ast.NodeTransformer):
    """The new expression of a form, with the arguments of a call in it."""

    def __init__(self, form: Form, call: cst.Call, library: Library, around: Surroundings) -> None:
        self._form = form
        self._call = call
        self._library = library
        self._is_list = around.is_list
        self._is_number = around.is_number
        self._stands_alone = around.stands_alone(call)
        self._given = {} if form.takes_any else _bound(form, call)
        self._parts: dict[str, list[Part]] = {}

    def result(self) -> Rewrite:
        function = function_of(self._form.new)
        function = name_in(self._library, function) if function else ""
        if self._library is Library.NUMPY and ".at[" in self._form.new:
            raise Refused(_ON_NUMPY)
        if self._form.takes_any:
            if any(each.keyword or each.star for each in self._call.args):
                raise Refused("its keywords have other names")
            return Rewrite(function, [])
        tree = self.visit(ast.parse(self._form.new, mode="eval").body)
        if self._is_as_before(tree):
            return Rewrite(function, [])
        parts: list[Part] = []
        for piece in re.split(r"(__\w+?__)", ast.unparse(tree)):
            parts += self._parts.get(piece, [piece])
        if isinstance(tree, ast.BinOp | ast.UnaryOp) and not self._stands_alone:
            parts = ["(", *parts, ")"]
        return Rewrite(function, parts)

    def _is_as_before(self, tree: ast.expr) -> bool:
        """Returns whether the arguments are those that the call has, in its order."""
        if not isinstance(tree, ast.Call):
            return False
        wanted = [(None, each) for each in tree.args]
        wanted += [(each.arg, each.value) for each in tree.keywords]
        found = [
            (keyword, self._parts.get(value.id) if isinstance(value, ast.Name) else None)
            for keyword, value in wanted
        ]
        given = [(each.keyword and each.keyword.value, [each.value]) for each in self._call.args]
        return found == given

    @override
    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        is_name = name.replace(".", "").isidentifier() and is_function(name)
        node.func = ast.Name(name_in(self._library, name)) if is_name else self.visit(node.func)
        left_out = False
        arguments: list[ast.expr] = []
        for each in node.args:
            if self._is_left_out(each):
                left_out = True
            elif left_out:
                raise Refused("an argument between others is left out")
            else:
                arguments.append(self._argument(each))
        keywords = [each for each in node.keywords if not self._is_left_out(each.value)]
        node.args = arguments
        node.keywords = [ast.keyword(each.arg, self._argument(each.value)) for each in keywords]
        return node

    def _is_left_out(self, node: ast.expr) -> bool:
        name = node.id if isinstance(node, ast.Name) else ""
        return any(
            name == each.names[0] and name not in self._given and each.default == "None"
            for each in self._form.parameters
        )

    def _argument(self, node: ast.expr) -> ast.expr:
        return self._named(node, "") if isinstance(node, ast.Name) else self.visit(node)

    @override
    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._given.get(node.id)
        return self._named(node, "" if isinstance(value, _SIMPLE) else "()")

    def _named(self, node: ast.Name, around: str) -> ast.expr:
        """Puts an argument in the place of the parameter, in parentheses where it needs them."""
        found = [each for each in self._form.parameters if each.names[0] == node.id]
        if not found:
            return node
        if (value := self._given.get(node.id)) is None:
            return ast.parse(found[0].default or "None", mode="eval").body
        place = f"__{node.id}__"
        if place in self._parts and m.findall(value, m.Call() | m.Await() | m.NamedExpr()):
            raise Refused("the argument would be computed twice")
        parts = self._of_kind(value, found[0].kind)
        self._parts[place] = ["(", *parts, ")"] if around else parts
        return ast.Name(place)

    def _of_kind(self, value: cst.BaseExpression, kind: str) -> list[Part]:
        if kind == "parts" and not self._is_number(value):
            return _places(value)
        if kind == "sizes" and not _numbers(value):
            raise Refused("the sizes are numbers, none of them -1")
        if kind == "strides":
            return [_strides(value)]
        if kind == "axes" and isinstance(value, cst.List):  # NumPy takes tuples only
            axes = [part for each in value.elements for part in (each.value, ", ")][:-1]
            return ["(", *axes, ",)" if len(axes) == 1 else ")"]
        if kind == "array" and self._library is Library.JAX and self._is_list(value):
            return ["jnp.asarray(", value, ")"]
        if kind == "places" and self._is_list(value):
            return [f"{name_in(self._library, 'jnp.asarray')}(", value, ")"]
        return [value]


def _bound(form: Form, call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Returns the arguments of a call by the names of the parameters.

    Raises:
      Refused: They do not fit.
    """
    by_name = {name: each for each in form.parameters for name in each.names}
    found: dict[str, cst.BaseExpression] = {}
    for position, argument in enumerate(call.args):
        keyword = argument.keyword.value if argument.keyword else None
        if argument.star:
            raise Refused("its arguments are not to be seen here")
        if keyword is not None:
            parameter = by_name.get(keyword)
            if parameter is None and keyword == "name":  # there are no graphs to show it in
                continue
            if parameter is None or f"_{keyword}" in by_name:
                raise Refused(f"takes no {keyword}=")
        elif position < len(form.parameters):
            parameter = form.parameters[position]
        else:
            raise Refused(f"takes {len(form.parameters)} arguments, not {len(call.args)}")
        if parameter.names[0].startswith("_"):
            raise Refused(f"takes no {parameter.names[0][1:]}=")
        found[parameter.names[0]] = argument.value
    for parameter in form.parameters:
        value = found.get(parameter.names[0])
        if value is None and parameter.default is None:
            raise Refused(f"needs {parameter.names[0]}=")
        is_literal = parameter.kind not in _KINDS
        if is_literal and value is not None and _text(value) != parameter.kind:
            raise Refused(f"takes no {parameter.names[0]}=")
    return found


def _numbers(node: cst.BaseExpression) -> list[int]:
    """Returns the sizes in a list that is written out; none if one is unknown, or the rest."""
    if not isinstance(node, cst.List | cst.Tuple):
        return []
    values = [each.value for each in node.elements]
    numbers = [each.evaluated_value for each in values if isinstance(each, cst.Integer)]
    return numbers if len(numbers) == len(values) else []


def _strides(value: cst.BaseExpression) -> str:
    """Returns the strides of the rows and columns of images, which may be one number."""
    given = [value.evaluated_value] if isinstance(value, cst.Integer) else _numbers(value)
    if len(given) == 4 and given[0] == given[3] == 1:
        given = given[1:3]
    if len(given) not in (1, 2):
        raise Refused("the strides are one or two numbers")
    return str((given[0], given[-1]))


def _places(sizes: cst.BaseExpression) -> list[Part]:
    """Returns where to split for parts of these sizes."""
    if numbers := _numbers(sizes):
        return [str(list(itertools.accumulate(numbers))[:-1])]
    if not isinstance(sizes, cst.List | cst.Tuple) or m.findall(sizes, m.UnaryOperation()):
        raise Refused("takes the places to split at, not the sizes of the parts")
    return ["np.cumsum(", sizes, ")[:-1]"]


def _text(node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(node).replace("'", '"')


def print_parts(call: cst.Call) -> list[Part]:
    """Returns a line for `tf.print("loss", x)`, which prints in compiled functions too.

    Raises:
      Refused: It has keywords.
    """
    if any(each.keyword or each.star for each in call.args):
        raise Refused("prints to standard output, and all of an array")
    pattern: list[str] = []
    values: list[Part] = []
    for argument in call.args:
        value = argument.value
        if isinstance(value, cst.SimpleString) and isinstance(text := value.evaluated_value, str):
            pattern.append(text.replace("{", "{{").replace("}", "}}"))
        else:
            pattern.append("{}")
            values += [", ", value]
    text = " ".join(pattern).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return [f'jax.debug.print("{text}"', *values, ")"]


def choice_parts(call: cst.Call) -> list[Part]:
    """Returns `a if p else b` for `tf.cond(p, lambda: a, lambda: b)`, for values that Python knows.

    Raises:
      Refused: It has other arguments.
    """
    given = _bound(forms()["tf.cond"][0], call)
    yes, no = _result_parts(given["true_fn"]), _result_parts(given["false_fn"])
    return ["(", *yes, " if ", *_one(given["pred"]), " else ", *no, ")"]


def _result_parts(function: cst.BaseExpression) -> list[Part]:
    """Returns what a function of no arguments gives."""
    if isinstance(function, cst.Lambda) and not function.params.params:
        return _one(function.body)
    return [*_one(function), "()"]


def _one(value: cst.BaseExpression) -> list[Part]:
    """Puts parentheses around an expression that needs them."""
    return [value] if isinstance(value, _SIMPLE) or value.lpar else ["(", value, ")"]


_LIBRARY_NAME = re.compile(rf"(?<![\w.\"])(?:{'|'.join(MODULES)})\.[\w.]+")


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """Writes the names of libraries in a text as a file has them."""
    return _LIBRARY_NAME.sub(lambda found: spell(found[0]), text)
