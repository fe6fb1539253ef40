"""Lowering of LSTM cells on codes, with the integer parameters of the host kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.numerics.lstm import Factor
from odc_mlir.ops.infer.common import constants, option, position
from odc_mlir.runtime.kernels.lstm import integer_lstm
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site, blob_of, quant_of

STATES = ("output_state", "cell_state")


class LowerLstm(LowerToNpu):
    """Lower UNIDIRECTIONAL_SEQUENCE_LSTM to ``npu.lstm``.

    Its variables become operands and results of the program. Refuses a variable with another user.
    """

    operators = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)

    def rewrite(self, site: Site) -> None:
        node = site.node
        prepared = integer_lstm(node, constants(node))
        gates, cell = prepared.gates, prepared.cell
        states = [site.operand(position(node, name)) for name in STATES]
        made = npu.LstmOp(
            [site.operand(0), *states],
            site.result_type,
            time_major=bool(option(node, "time_major")),
            input_weights=blob_of(np.concatenate([gate.inputs for gate in gates])),
            bias=npu.ChannelsAttr.of(np.concatenate([gate.input_bias for gate in gates]).tolist()),
            input_scales=_scales([gate.input_factor for gate in gates]),
            recurrent_weights=blob_of(np.concatenate([gate.recurrent for gate in gates])),
            hidden_zero=quant_of(node.operand(position(node, STATES[0]))).zero_point,
            recurrent_scales=_scales([gate.recurrent_factor for gate in gates]),
            cell_exponent=cell.exponent,
            clip=cell.clip,
            out_scale=_scales([cell.hidden_factor])[0],
            product_zero=cell.hidden_zero,
        )
        value = site.emit(made)
        for state, last in zip(states, (made.last_hidden, made.last_cell), strict=True):
            _give_back(site, state, last)
        site.finish_with([value])


def _scales(factors: Sequence[Factor]) -> list[npu.ScaleAttr]:
    return [npu.ScaleAttr.of(factor.multiplier, factor.exponent) for factor in factors]


def _give_back(site: Site, state: SSAValue, last: SSAValue) -> None:
    """Make the program return ``last`` for the variable ``state``."""
    for use in list(state.uses):
        if isinstance(use.operation, YieldOp):
            use.operation.operands[use.index] = last
        elif isinstance(use.operation, CircleOp) and use.operation is not site.op:
            raise CompileError(f"the variable {value_name(state)!r} has another user")
