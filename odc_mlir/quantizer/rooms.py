"""Room in the ranges of outputs, by the tails of their values.

What an output has beyond its range is cut off in what the user gets. Inside a network that matters less: activations
saturate, and other channels make up for it, while steps of all layers add up.

What LOGISTIC and TANH make of values far out has one code: their operands get no room beyond that. Nor do those of
SOFTMAX that gives many samples a score of nearly one: it makes that of larger logits as well, cut off or not.

Scores by LOGISTIC that are all below a half in samples, or all above, have logits of one sign, whose codes end at zero.
There tails do not tell what is beyond: what a detector is to find is no rare value of what it is not to find. Such
logits get room for scores up to 0.9, or down to 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.spec import Trait
from odc_mlir.quantizer.policy.products import LAYERS, SEQUENCES
from odc_mlir.quantizer.policy.ranges import Range
from odc_mlir.quantizer.policy.tails import TAIL, with_room
from odc_mlir.quantizer.stages import Statistics
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.tensor_names import outputs_of
from odc_mlir.transforms.quant.common.ir import main_function

_OTHER_LAYERS = frozenset({"TRANSPOSE_CONV", "BATCH_MATMUL"})
# The logit of a score of 0.9.
_CLEAR = math.log(9.0)
_SURE = 0.9  # a score of SOFTMAX that larger logits do not change much


def roomy(
    function: FuncOp, ranges: Mapping[str, Range], statistics: Statistics, bits: int
) -> dict[str, tuple[float, float]]:
    """``ranges``, by name, with those of outputs, and of values behind the last layer, as wide as tails ask for."""
    found = dict(ranges)
    # Where the last half of a step begins that scores between 0 and 1, or -1 and 1, have.
    saturated = {"LOGISTIC": math.log(2.0 ** (bits + 1) - 1.0), "TANH": math.atanh(1.0 - 2.0**-bits)}
    most = {value_name(value): end for kind, end in saturated.items() for value in _squashed(function, kind)}
    for value in _behind_layers(function, statistics):
        name = value_name(value)
        if name in found and name in statistics:
            low, high = with_room(statistics[name], _elements(value), bits)
            end = most.get(name, math.inf)
            found[name] = min(max(low, -end), found[name][0]), max(min(high, end), found[name][1])
    for name in map(value_name, _squashed(function, "LOGISTIC")):
        if name in found:
            low, high = found[name]
            found[name] = (-_CLEAR if low >= 0.0 else low, _CLEAR if high <= 0.0 else high)
    return found


def takes_room(module: ModuleOp, statistics: Statistics) -> bool:
    """Whether there are outputs, or values that they are made of, whose tails may ask for room."""
    function = main_function(module)
    if function is None:
        return False
    owners = (value.owner for value in _behind_layers(function, statistics))
    return not all(isinstance(op, CircleOp) and (_moves(op) or _is_sure(op, statistics)) for op in owners)


def _behind_layers(function: FuncOp, statistics: Statistics) -> Iterator[SSAValue]:
    """What the function returns, and what that is made of by operators that have no products and tell of its tails."""

    def goes_through(op: CircleOp) -> bool:
        return op.SPEC.name not in LAYERS | SEQUENCES | _OTHER_LAYERS and not _is_sure(op, statistics)

    return _back(outputs_of(function), goes_through)


def _is_sure(op: CircleOp, statistics: Statistics) -> bool:
    """Whether ``op`` is a SOFTMAX that gives a score of nearly one to all samples in the tail of the scores."""
    seen = statistics.get(value_name(op.results[0])) if op.SPEC.name == "SOFTMAX" else None
    return seen is not None and seen.maxima.size > 0 and float(np.quantile(seen.maxima, 1.0 - TAIL)) >= _SURE


def _squashed(function: FuncOp, kind: str) -> Iterator[SSAValue]:
    """What operators of this ``kind`` read whose results are moved to outputs, and what is moved to there."""
    made = (value.owner for value in _back(outputs_of(function), _moves))
    read = [op.operands[0] for op in made if isinstance(op, CircleOp) and op.SPEC.name == kind]
    return _back(read, _moves)


def _moves(op: CircleOp) -> bool:
    return Trait.SAME_QUANT in op.SPEC.traits


def _back(values: Sequence[SSAValue], goes_through: Callable[[CircleOp], bool]) -> Iterator[SSAValue]:
    """The ``values``, and all that is on the way to them through such operators."""
    todo, seen = list(values), set[SSAValue]()
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            yield value
            if isinstance(value.owner, CircleOp) and goes_through(value.owner):
                todo.extend(value.owner.operands)


def _elements(value: SSAValue) -> int:
    """Of the value; open dimensions count as 1."""
    assert isinstance(value.type, TensorType)
    return math.prod(max(dim, 1) for dim in value.type.get_shape())
