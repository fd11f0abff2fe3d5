"""The `train_op` of a `model_fn`: `optimizer.minimize(loss)` is the optimizer itself.

An Estimator gives it the gradients of the loss of its EstimatorSpec.
"""

from typing import final

import libcst as cst
import libcst.matchers as m

from replicax._src.cli.migrate._source import Source, dotted, found_in

_MINIMIZE = m.Call(m.Attribute(attr=m.Name("minimize")))
_SPEC = m.Call(m.Attribute(attr=m.Name("EstimatorSpec")) | m.Name("EstimatorSpec"))
_ORDER = ("mode", "predictions", "loss", "train_op")


@final
class TrainOps:
    """Finds calls of `minimize` whose result is only the `train_op` of the same loss."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left_out: set[cst.CSTNode] = set()
        self._found: set[cst.Call] = set()
        if "EstimatorSpec" not in source.text:
            return
        for function in m.findall(source.module, m.FunctionDef()):
            specs = found_in(function, cst.Call, _SPEC)
            for call in found_in(function, cst.Call, _MINIMIZE):
                if self._is_train_op(call, function, specs):
                    self._found.add(call)
                    self._left_out.update(call.args)

    def optimizer(self, call: cst.Call) -> cst.BaseExpression | None:
        """Returns the optimizer that takes the place of a call; None if it does not."""
        assert isinstance(call.func, cst.Attribute)
        return call.func.value if call in self._found else None

    def is_left_out(self, node: cst.CSTNode) -> bool:
        """Returns whether a node is in the arguments of a call that goes."""
        return not self._left_out.isdisjoint(self._source.outwards(node))

    def _is_train_op(self, call: cst.Call, function: cst.CSTNode, specs: list[cst.Call]) -> bool:
        loss = _argument(call, ("loss", "global_step"), "loss")
        losses = [value for spec in specs if (value := _argument(spec, _ORDER, "loss"))]
        if loss is None or not losses or not all(loss.deep_equals(each) for each in losses):
            return False
        if len(call.args) > 1 and _argument(call, ("loss", "global_step"), "global_step") is None:
            return False
        if len(call.args) > 2:
            return False
        train_ops = [value for spec in specs if (value := _argument(spec, _ORDER, "train_op"))]
        if call in train_ops:
            return True
        statement = self._source.parent(call)
        if not m.matches(statement or call, m.Assign([m.AssignTarget(m.Name())])):
            return False
        assert isinstance(statement, cst.Assign)
        name = dotted(statement.targets[0].target) or ""
        keywords = {each.keyword for each in found_in(function, cst.Arg)}
        named = found_in(function, cst.Name, m.Name(name))
        places = [each for each in named if each not in keywords]
        return sum(map(self._source.is_bound, places)) == 1 and all(
            each in train_ops for each in places if self._source.is_read(each)
        )


def _argument(call: cst.Call, order: tuple[str, ...], name: str) -> cst.BaseExpression | None:
    """Returns an argument of a call, given by position or by its keyword."""
    for index, argument in enumerate(call.args):
        keyword = argument.keyword.value if argument.keyword else None
        if keyword == name or (keyword is None and order[index : index + 1] == (name,)):
            return argument.value
    return None
