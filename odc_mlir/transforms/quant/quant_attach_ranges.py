"""``quant-attach-ranges``: write recorded ranges of values into their types.

Before::

    %0 = circle.relu(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("relu")

After, where the values of ``relu`` were between 0 and 3.5::

    %0 = circle.relu(%x) : … -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [3.5]>> loc("relu")

Values are matched by name, in the main function only. A value that was never recorded keeps the range that its type
has, if any: files from other recorders contain them. The file holds recorded statistics, or JSON such as ``{"relu":
[0.0, 3.5]}``. Does nothing without ``records``.

Scores that a constant masks before SOFTMAX do not widen the range of its operand, which ends slightly below the
smallest unmasked score.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp, VariableOp
from odc_mlir.errors import OptionError, parsing
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_clip_masks import mask_of
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.quant.common.ir import is_real, main_function, range_of, with_range

if TYPE_CHECKING:
    from odc_mlir.calibration.statistics import TensorStatistics

Range = tuple[float, float]

HIDDEN_SHARE = 12.0  # exp(-12) is a fifth of a step of results with 16 bits


@dataclass(frozen=True)
class QuantAttachRangesPass(ModulePass):
    """Write recorded ranges into types; see the module's text."""

    name = "quant-attach-ranges"

    records: str | None = None
    """File of recorded statistics or ranges."""

    mode: str = "minmax"
    """How a range is chosen: minmax, percentile, percentile-elements, moving-average, mse or entropy."""

    low: float | None = None
    """Lower percentile."""

    high: float | None = None
    """Upper percentile."""

    batch: int | None = None
    """Runs in a batch of the moving average."""

    constant: float | None = None
    """Weight of a new batch in the moving average."""

    bits: int | None = None
    """Bit width that mse and entropy choose for."""

    symmetric: bool | None = None
    """Whether mse and entropy choose for symmetric quantisation."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_function(op)
        if self.records is None or function is None:
            return
        if not os.path.isfile(self.records):
            raise OptionError(f"there is no record file {self.records!r}", hint="record the model first")
        with open(self.records, "rb") as file:
            is_text = file.read(1) == b"{"
        attach_ranges(function, read_ranges(self.records) if is_text else self._chosen(self.records))

    def _chosen(self, path: str) -> dict[str, Range]:
        from odc_mlir.calibration.records import RecordStore

        options = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _OWN_FIELDS}
        return ranges_of(RecordStore(path).statistics(), self.mode, options)


_OWN_FIELDS = ("records", "mode")


def read_ranges(path: str) -> dict[str, Range]:
    """The ranges in a JSON file; raises OptionError, naming the file, for anything else in it."""
    with parsing("cannot read ranges", OptionError, location=path), open(path, encoding="utf-8") as file:
        content: Any = json.load(file)
    if not isinstance(content, dict):
        raise OptionError("the ranges must be a JSON object of [min, max] by tensor name", location=path)
    found = {}
    for name, pair in content.items():
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)
        if not is_pair or not -math.inf < pair[0] <= pair[1] < math.inf:
            raise OptionError(f"the range of {name!r} is {pair}, must be [min, max]", location=path)
        found[name] = (float(pair[0]), float(pair[1]))
    return found


def ranges_of(
    statistics: Mapping[str, TensorStatistics], mode: str, options: Mapping[str, Any] | None = None
) -> dict[str, Range]:
    """The range of each tensor that has been seen; options that are None take their defaults."""
    from odc_mlir.quantizer.policy.ranges import choose_range

    given = {name: value for name, value in (options or {}).items() if value is not None}
    return {name: choose_range(item, mode, **given) for name, item in statistics.items() if item.runs}


def attach_ranges(function: FuncOp, ranges: Mapping[str, Range]) -> None:
    """Write ranges by tensor name into the types of real values of ``function``, state included."""
    results = (result for op in function.walk() if isinstance(op, CircleOp | VariableOp) for result in op.results)
    for value in (*function.args, *results):
        found = ranges.get(value_name(value))
        if found is not None and is_real(value) and isinstance(value.type, TensorType):
            retype(value, with_range(value.type, *found))
    for op in function.walk():
        if isinstance(op, CircleOp) and op.SPEC.name == "SOFTMAX":
            _spare_masked(op)
    set_function_type(function)


def _spare_masked(softmax: CircleOp) -> None:
    """Let the range of masked scores end a little below those that are shown.

    What is hidden then has the lowest code, and its share of a row is below half a step of any result.
    """
    mask, value = mask_of(softmax), softmax.operands[0]
    if mask is None:
        return
    scores, total = range_of(mask.scores.type), range_of(value.type)
    if scores is not None and total is not None:
        low = scores[0] + mask.least_shown - HIDDEN_SHARE / float(softmax.option("beta"))
        retype(value, with_range(value.type, min(max(total[0], low), total[1]), total[1]))
