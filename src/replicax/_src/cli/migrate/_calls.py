"""Calls whose arguments change with the name, and calls that replicax does not take as they are."""

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Protocol

import libcst as cst
import libcst.matchers as m

from replicax._src.cli.migrate import _lookup
from replicax._src.cli.migrate._edits import Edits
from replicax._src.cli.migrate._imports import remove_statement
from replicax._src.cli.migrate._model_files import CALLS, FileName
from replicax._src.cli.migrate._source import Source, dotted

_OPTIONS = "rx.distribute.experimental.CommunicationOptions"


class Desk(Protocol):
    """What a rule works with."""

    source: Source
    edits: Edits

    def spelled(self, name: str) -> str:
        """Returns a name as this file writes it, and sees to it that it is imported."""
        ...


Rule = Callable[[cst.Call, Desk], str | None]
"""Changes the arguments of a call; returns what is left to be done by hand, or None."""


def rule_for(name: str) -> Rule | None:
    """Returns the rule for calls of something, by its older name."""
    return _RULES.get(name) or _RULES.get(name.replace(".compat.v1.", "."))


# --- arguments that change with the name ----------------------------------------------------------


def _is_starred(call: cst.Call) -> bool:
    return any(each.star for each in call.args)


def _run_with_iterator(call: cst.Call, desk: Desk) -> str | None:
    """`experimental_run(fn, iterator)` is `run(fn, args=(iterator.get_next(),))`."""
    if _is_starred(call):
        return "strategy.run(fn, args=(next(iterator),))"
    for index, argument in enumerate(call.args):
        keyword = argument.keyword.value if argument.keyword else None
        if keyword == "input_iterator" or (keyword is None and index == 1):
            _wrap_value(argument, desk, "(", ".get_next(),)", keyword="args")
    return None


def _iterator_of(call: cst.Call, desk: Desk) -> str | None:
    """`make_dataset_iterator(x)` is `iter(experimental_distribute_dataset(x))`."""
    if _is_starred(call):
        return "iter(strategy.distribute_datasets_from_function(input_fn))"
    start, end = desk.source.start(call), desk.source.end(call)
    desk.edits.wrap(start, end, "iter(", ")")
    problem = None
    for before, argument in zip([None, *call.args], call.args):
        keyword = argument.keyword.value if argument.keyword else None
        if keyword == "input_fn":
            _rename_keyword(argument, desk, "dataset_fn")
        elif before is not None:
            if (dotted(argument.value) or "").endswith(".PER_WORKER"):  # there is no other mode
                _, before_it = outside(before.value, desk.source)
                _, after_it = outside(argument.value, desk.source)
                desk.edits.replace(before_it, after_it, "")
            else:
                problem = "there is one pipeline for each worker: leave out the mode"
    return problem


def _reduction(call: cst.Call, desk: Desk) -> str | None:
    """`reduce(op, value)` had an axis by default."""
    given = [each.keyword.value if each.keyword else None for each in call.args]
    if _is_starred(call) or "axis" in given or len(given) >= 3 or not given:
        return None
    _, end = outside(call.args[-1].value, desk.source)
    desk.edits.wrap(end, end, "", ", axis=None")
    return None


def _communication(call: cst.Call, desk: Desk) -> str | None:
    """`communication=X` is `communication_options=CommunicationOptions(implementation=X)`."""
    if _is_starred(call):
        return f"communication_options={_OPTIONS}(implementation=...)"
    for index, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword else None
        if name == "communication" or (name is None and index == 0):
            before = f"{desk.spelled(_OPTIONS)}(implementation="
            _wrap_value(argument, desk, before, ")", keyword="communication_options")
        elif name is None and index == 1:
            start = desk.source.start(argument.value)
            desk.edits.wrap(start, start, "cluster_resolver=", "")
    return None


def _without_call(call: cst.Call, desk: Desk) -> str | None:
    """`f()` has become a constant."""
    desk.edits.replace(desk.source.end(call.func), desk.source.end(call), "")
    return None


def _iterator_of_receiver(call: cst.Call, desk: Desk) -> str | None:
    """`x.f()` is `iter(x)`."""
    around_receiver(call, desk, "iter")
    return None


def _as_attribute(call: cst.Call, desk: Desk) -> str | None:
    """`x.get_shape()` is `x.shape`."""
    assert isinstance(call.func, cst.Attribute)
    desk.edits.replace(desk.source.start(call.func.attr), desk.source.end(call), "shape")
    return None


def _list_of_receiver(call: cst.Call, desk: Desk) -> str | None:
    """`shape.as_list()` is `list(shape)`."""
    around_receiver(call, desk, "list")
    return None


def _product_of_receiver(call: cst.Call, desk: Desk) -> str | None:
    """`shape.num_elements()` is `np.prod(shape)`."""
    around_receiver(call, desk, desk.spelled("np.prod"))
    return None


def _without_statement(call: cst.Call, desk: Desk) -> str | None:
    """`x.set_shape(shape)` says what is known."""
    statement = desk.source.parent(call)
    if not isinstance(statement, cst.Expr):
        return "leave it out: shapes are known"
    remove_statement(statement, desk.source, desk.edits)
    return None


def _argument_alone(call: cst.Call, desk: Desk) -> str | None:
    """`optimizer.get_unscaled_gradients(g)` is `g`: `apply_gradients` divides by the scale."""
    statement = desk.source.parent(call)
    target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
    scope = desk.source.scope(call)
    if isinstance(target, cst.Name) and scope is not None and len(call.args) == 1:
        reads = [each.node for each in scope.accesses[target.value]]
        if all(_is_applied(node, desk) for node in reads):
            value = call.args[0].value
            start, end = desk.source.start(call), desk.source.end(call)
            desk.edits.replace(start, end, outside(value, desk.source))
            return None
    return "apply_gradients divides by the scale; to clip them, global_clipnorm= of the optimizer"


def _is_applied(node: cst.CSTNode, desk: Desk) -> bool:
    """Returns whether it is in what `optimizer.apply_gradients` takes."""
    at = desk.source.parent(node)
    while isinstance(at, cst.Arg) or m.matches(at or node, m.Call(m.Name("zip"))):
        at = desk.source.parent(at) if at is not None else None
    applying = m.Call(m.Attribute(attr=m.Name("apply_gradients") | m.Name("apply")))
    return at is not None and m.matches(at, applying)


_RULES: dict[str, Rule] = {
    "Dataset.make_one_shot_iterator": _iterator_of_receiver,
    "Strategy.experimental_run": _run_with_iterator,
    "Strategy.make_dataset_iterator": _iterator_of,
    "Strategy.make_input_fn_iterator": _iterator_of,
    "Strategy.reduce": _reduction,
    "Optimizer.get_unscaled_gradients": _argument_alone,
    "Shape.as_list": _list_of_receiver,
    "Shape.num_elements": _product_of_receiver,
    "Tensor.get_shape": _as_attribute,
    "Tensor.set_shape": _without_statement,
    "tf.distribute.experimental.MultiWorkerMirroredStrategy": _communication,
    "tf.distribute.get_loss_reduction": _without_call,
}


# Rules that write the new name too.
WHOLE = ("Shape.num_elements", "Tensor.get_shape")


def around_receiver(call: cst.Call | cst.Attribute, desk: Desk, function: str) -> None:
    """Makes `x.f()`, or `x.f`, into `function(x)`; into `x`, if there is no function."""
    attribute = call.func if isinstance(call, cst.Call) else call
    assert isinstance(attribute, cst.Attribute)
    receiver = attribute.value
    start, end = outside(receiver, desk.source)
    if receiver.lpar or not function:  # its parentheses become those of the call
        desk.edits.wrap(start, end, function, "")
        desk.edits.replace(end, desk.source.end(call), "")
    else:
        desk.edits.wrap(start, end, f"{function}(", "")
        desk.edits.replace(end, desk.source.end(call), ")")


def outside(node: cst.BaseExpression, source: Source) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns where an expression begins and ends with the parentheses around it."""
    start = source.start(node.lpar[0]) if node.lpar else source.start(node)
    end = source.end(node.rpar[-1]) if node.rpar else source.end(node)
    return start, end


def _wrap_value(argument: cst.Arg, desk: Desk, before: str, after: str, keyword: str) -> None:
    """Puts text around the value of an argument and gives it a keyword."""
    start, end = outside(argument.value, desk.source)
    simple = cst.Name | cst.Attribute | cst.Call | cst.Subscript
    if after.startswith(".") and not isinstance(argument.value, simple):
        before, after = f"{before}(", f"){after}"
    if argument.keyword is not None:
        _rename_keyword(argument, desk, keyword)
        desk.edits.wrap(start, end, before, after)
    else:
        desk.edits.wrap(start, end, f"{keyword}={before}", after)


def _rename_keyword(argument: cst.Arg, desk: Desk, keyword: str) -> None:
    assert argument.keyword is not None
    start, end = desk.source.start(argument.keyword), desk.source.end(argument.keyword)
    desk.edits.replace(start, end, keyword)


# --- arguments of today that mean something else --------------------------------------------------


def _only_value(call: cst.Call) -> str | None:
    """Says if there are arguments behind the first: Keras has others there."""
    is_more = any(each.keyword is None for each in call.args[1:])
    return "its second argument is the shape: name those behind the first" if is_more else None


_CHECKS: dict[str, Callable[[cst.Call], str | None]] = {"keras.Variable": _only_value}


def _logits_that_are_none(call: cst.Call, called: str, source: Source) -> str | None:
    """Says if a loss of logits may get what an activation has made of them.

    Keras finds the logits behind such an activation on TensorFlow, and there alone.
    """
    activation = "sigmoid" if "binary" in called.lower() else "softmax"
    if not called.lower().endswith("crossentropy") or not any(
        m.matches(each, m.Arg(keyword=m.Name("from_logits"), value=m.Name("True")))
        for each in call.args
    ):
        return None
    written = rf"""activation\s*=\s*(["']|[\w.]*\b){activation}\b|Activation\(["']{activation}\b"""
    if not re.search(written, source.text):
        return None
    return (
        f"TensorFlow leaves out a {activation} that a layer has as its activation: "
        "from_logits=False, if this gets what such a layer gives"
    )


def _name_first(call: cst.Call, desk: Desk) -> bool:
    """It was `add_weight(name, shape, ...)`, and the shape comes first now."""
    if not (call.args and m.matches(call.args[0], m.Arg(m.SimpleString(), keyword=None, star=""))):
        return False
    for argument, name in zip(call.args, ("name", "shape", "dtype", "initializer"), strict=False):
        if argument.keyword is None and not argument.star:
            start, end = desk.source.start(argument), desk.source.end(argument)
            desk.edits.wrap(start, end, f"{name}=", "")
    return True


# The ending of a name says it.
_SAVE_FORMAT = m.Arg(keyword=m.Name("save_format"))


# --- any call -------------------------------------------------------------------------------------


def rename_keywords(call: cst.Call, called: str, desk: Desk) -> bool:
    """Gives keywords their names of today; returns whether there were any others."""
    renamed = called == "keras.layers.Layer.add_weight" and _name_first(call, desk)
    if called in CALLS:
        name = FileName(call, called, desk.source)
        renamed |= name.correct(desk.edits)
        for before, argument in itertools.pairwise(call.args):
            if name.is_seen and m.matches(argument, _SAVE_FORMAT):
                _, start = outside(before.value, desk.source)
                _, end = outside(argument.value, desk.source)
                desk.edits.replace(start, end, "")
                renamed = True
    for argument in call.args:
        if argument.keyword is not None:
            if new := _lookup.new_keyword(called, argument.keyword.value):
                _rename_keyword(argument, desk, new)
                renamed = True
    return renamed


def refused_arguments(call: cst.Call, called: str, source: Source) -> str | None:
    """Says which arguments of a call replicax does not take; None if it takes all.

    Args:
      call: the call.
      called: what is called, in replicax, JAX or Keras.
      source: the file.
    """
    arguments = list(call.args)
    if called in CALLS and FileName(call, called, source).is_seen:
        arguments[1:] = [each for each in arguments[1:] if not m.matches(each, _SAVE_FORMAT)]
    for argument in arguments:
        name = argument.keyword.value if argument.keyword else ""
        if instead := _lookup.refused_keyword(called, name):
            return f"takes no {name}=: {instead}"
    if called in _CHECKS and (problem := _CHECKS[called](call)):
        return problem
    if problem := _logits_that_are_none(call, called, source):
        return problem
    signature = _lookup.signature(called)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    kinds = {each.kind for each in parameters}
    positional = [
        each
        for each in parameters
        if each.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    given = [each for each in arguments if each.keyword is None and not each.star]
    if len(given) > len(positional) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"takes {len(positional)} positional arguments, not {len(given)}"
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    for argument in arguments:
        if argument.keyword is not None:
            name = argument.keyword.value
            name = _lookup.new_keyword(called, name) or name
            if name not in signature.parameters:
                return f"takes no {name}=; leave it out if it is not needed"
    return None
