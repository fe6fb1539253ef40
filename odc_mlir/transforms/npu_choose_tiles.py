"""``npu-choose-tiles``: how window operations are cut into tiles, by the simulator's cost formulas.

Before::

    %1 = npu.conv %0 kernel [3, 3] … : tensor<1x112x112x32x…> -> tensor<1x112x112x64x…>

After: the same with ``{npu.tiling = #npu.tiling<rows = 4, cols = 56, group = 64, …>}``. Element-wise operations,
reductions and softmax have one way to be cut and get no attribute.

Refuses windows of which not one result pixel fits in the local memories.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from odc_mlir.dialects.npu import ConvOp, PoolOp
from odc_mlir.dialects.npu_isa import TilingAttr
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.instruction_ir import sites
from odc_mlir.transforms.layer_ir import window_of
from odc_mlir.transforms.schedule.accesses import FULL_RECORD_BYTES
from odc_mlir.transforms.schedule.balance import choose_tilings
from odc_mlir.transforms.schedule.window_search import Choice, conv_choices, pool_choices
from odc_mlir.transforms.schedule.window_tiling import WindowTiling

TILING = "npu.tiling"
_FIELDS = {f.name: f for f in dataclasses.fields(WindowTiling)}


@dataclass(frozen=True)
class NpuChooseTilesPass(ModulePass):
    """Choose tilings; see the module's text."""

    name = "npu-choose-tiles"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for site in sites(op, self.name):
            windows = [item for item in site.block.ops if isinstance(item, ConvOp | PoolOp)]
            choices = [_choices(item, site.target) for item in windows]
            constants = sum(_constant_bytes(item) for item in windows)
            chosen = choose_tilings(choices, constants, site.target, site.memory)
            for item, choice in zip(windows, chosen, strict=True):
                item.attributes[TILING] = tiling_attribute(choice.tiling)


def _choices(op: ConvOp | PoolOp, target: Target) -> tuple[Choice, ...]:
    """Candidates for a window operation; raises CompileError, naming it, where none fits."""
    search = conv_choices if isinstance(op, ConvOp) else pool_choices
    try:
        return search(window_of(op), target)
    except CompileError as error:
        raise CompileError(error.message, op=op.name, tensor=op_name(op)) from None


def _constant_bytes(op: ConvOp | PoolOp) -> int:
    """Bytes of weights and parameters."""
    return op.weights.data.size + FULL_RECORD_BYTES * len(op.bias) if isinstance(op, ConvOp) else 0


def tiling_attribute(tiling: WindowTiling) -> TilingAttr:
    """The fields that have another value than their default."""
    entries: list[tuple[str, str | int]] = []
    for name, field in _FIELDS.items():
        value = getattr(tiling, name)
        if value != field.default:
            entries.append((name, int(value) if isinstance(value, bool) else value))
    return TilingAttr(tuple(entries))


def tiling_of(op: Operation) -> WindowTiling:
    """The tiling that the attribute of ``op`` holds; raises CompileError where it is missing or malformed."""
    attribute = op.attributes.get(TILING)
    if not isinstance(attribute, TilingAttr):
        raise CompileError(
            "the operation has no tiling", op=op.name, tensor=op_name(op), hint="run npu-choose-tiles first"
        )
    values = dict(attribute.data)
    if unknown := sorted(values.keys() - _FIELDS.keys()):
        raise CompileError(f"a tiling has no field {unknown[0]!r}", op=op.name, tensor=op_name(op))
    flags = {name: bool(value) for name, value in values.items() if _FIELDS[name].type == "bool"}
    try:
        return WindowTiling(**(values | flags))  # type: ignore[arg-type]
    except TypeError as error:
        raise CompileError(f"the tiling is not complete: {error}", op=op.name, tensor=op_name(op)) from None
