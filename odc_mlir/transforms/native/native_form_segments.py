"""``native-form-segments``: gather the operators that become native code into as few convex segments as possible.

Like ``npu-form-segments`` for the NPU: rounds alternate between host and native code, and the native operators of one
round form a segment. A segment that would consist of views only stays on the host, where they are free.

Before::

    %1 = circle.conv_2d … {odc.placed = "cpu"}
    %2 = circle.floor … {odc.placed = "host", odc.reason = "…"}

After: ``%1`` has ``odc.segment = 0`` as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.common.placement import CPU, is_view, main_function
from odc_mlir.transforms.partition.npu_form_segments import form_segments


@dataclass(frozen=True)
class NativeFormSegmentsPass(ModulePass):
    """Group operators that become native code; see the module's text."""

    name = "native-form-segments"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        form_segments(main_function(op).body.block, CPU, _refuses)


def _refuses(group: Sequence[CircleOp]) -> str | None:
    return "segment-size: views only" if all(map(is_view, group)) else None
