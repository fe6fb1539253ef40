"""The LSTM cell on codes: int8 input, weights and output, int16 cell state."""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.numerics import lstm
from odc_mlir.numerics.lstm import CellParameters, Gate, GateNorm, IntegerLstm, Projection
from odc_mlir.ops.infer.common import named, option, required
from odc_mlir.ops.infer.lstm import gates_of
from odc_mlir.ops.recurrent import GATES
from odc_mlir.ops.spec import Array, Node
from odc_mlir.runtime.kernels.common import check_scales, require_units_of_sums, scale_of, unsupported

Values = Mapping[str, Array]

_Q3_SCALE = 2.0**-12  # scale of gates' arguments without normalisation
_NORM_SCALE = 2.0**-10  # scale of normalised values
_INTERMEDIATES = 5  # scales of the four gates before normalisation, and of the hidden values
_HIDDEN = 4
_WIDE_INTERMEDIATES = 12


def integer_cell(node: Node, values: Values) -> IntegerCell:
    """Return the prepared cell; raise ModelError or UnsupportedError for missing or invalid scales."""
    return IntegerCell(integer_lstm(node, values))


def integer_lstm(node: Node, values: Values) -> IntegerLstm:
    """Return the integers of the cell for the contents ``values`` of weights and biases by name."""
    if len(node.intermediates) == _WIDE_INTERMEDIATES:
        raise unsupported(node, "cells with 8-bit sums of gates (12 intermediate tensors) are not supported")
    return _Scales(node, values).cell()


class IntegerCell:
    """:class:`~odc_mlir.numerics.lstm.IntegerLstm` as a cell of kernels."""

    def __init__(self, cell: IntegerLstm) -> None:
        self._cell = cell

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        return self._cell.inputs(x)

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        return self._cell.step(inputs, *state)


class _Scales:
    """Derivation of the cell's integers from the scales of an operator's tensors."""

    def __init__(self, node: Node, values: Values) -> None:
        self._node, self._values = node, values
        out = node.results[0]
        self._x_scale, self._x_zero = scale_of(node, node.operand(0))
        state = named(node, "output_state") or out
        if state.dtype != "int8":
            raise unsupported(node, f"the output_state is {state.dtype}; it must be int8")
        self._h_scale, self._h_zero = scale_of(node, state)
        self._exponent, self._cell_scale = self._cell_state()

    def cell(self) -> IntegerLstm:
        gates = gates_of(self._node)
        scale, zero = self._hidden()
        projection = self._projection(scale, zero)
        return IntegerLstm(
            [self._gate(index, gate) if gate in gates else None for index, gate in enumerate(GATES)],
            CellParameters(
                exponent=self._exponent,
                clip=lstm.clip_code(option(self._node, "cell_clip"), self._cell_scale, 32767),
                hidden_factor=lstm.hidden_factor(scale),
                hidden_zero=zero if projection is None else -zero,
                output_zero=self._h_zero,
                projection=projection,
            ),
        )

    def _cell_state(self) -> tuple[int, float]:
        info = named(self._node, "cell_state")
        if info is None:
            raise unsupported(self._node, "the cell_state is left out; an integer cell needs its scale")
        if info.dtype != "int16":
            raise unsupported(self._node, f"the cell_state is {info.dtype}; it must be int16")
        scale, zero = scale_of(self._node, info)
        exponent = lstm.cell_exponent(scale)
        if exponent is None or zero:
            allowed = f"2^{lstm.CELL_EXPONENTS[0]} to 2^{lstm.CELL_EXPONENTS[-1]}"
            raise unsupported(
                self._node,
                f"the cell_state has scale {scale:g} and zero point {zero}; "
                f"it must have a power of two from {allowed} and 0",
            )
        return exponent, scale

    def _hidden(self) -> tuple[float, int]:
        """Return scale and zero point of the hidden values, which equal the output's without projection.

        Converters may drop intermediate tensors; only projection and normalisation need them.
        """
        hidden = self._intermediate(_HIDDEN)
        if hidden is not None:
            return hidden
        if "projection_weights" in self._values:
            raise unsupported(self._node, "the intermediate tensor with the scale of hidden values is missing")
        return self._h_scale, self._h_zero

    def _intermediate(self, index: int) -> tuple[float, int] | None:
        """Return scale and zero point of an intermediate tensor."""
        infos = self._node.intermediates
        info = infos[index] if len(infos) == _INTERMEDIATES else None
        if info is None or info.quant is None:
            return None
        if not info.quant.per_tensor:
            raise self._node.error(f"the intermediate tensor {info.name!r} has {len(info.quant.scales)} scales")
        check_scales(self._node, info, info.quant.scales)
        return info.quant.scale, info.quant.zero_point

    def _weights(self, name: str, dtype: str) -> tuple[Array, float]:
        """Return values and scale of symmetric weights."""
        info = required(self._node, name)
        scale, zero = scale_of(self._node, info) if info.info.is_integer else (1.0, 0)
        if info.dtype != dtype or zero:
            raise unsupported(self._node, f"{name} is {info.dtype} with zero point {zero}; it must be {dtype} with 0")
        return self._values[name], scale

    def _bias(self, name: str, scale: float, weight_scale: float) -> Array | None:
        info = named(self._node, name)
        if info is not None and info.dtype != "int32":
            raise unsupported(self._node, f"{name} is {info.dtype}; it must be int32")
        if info is not None:
            require_units_of_sums(self._node, info, scale, weight_scale)
        return self._values.get(name)

    def _gate(self, index: int, gate: str) -> Gate:
        norm = self._norm(gate)
        scale = _Q3_SCALE if norm is None else self._gate_scale(index, gate)
        weights, weight_scale = self._weights(f"input_to_{gate}_weights", "int8")
        bias = self._bias(f"{gate}_gate_bias", self._x_scale, weight_scale) if norm is None else None
        recurrent, recurrent_scale = self._weights(f"recurrent_to_{gate}_weights", "int8")
        if recurrent.ndim != 2:
            raise unsupported(self._node, f"recurrent_to_{gate}_weights is diagonal; integer cells need a matrix")
        peephole, peephole_scale = None, 1.0
        if f"cell_to_{gate}_weights" in self._values:
            peephole, peephole_scale = self._weights(f"cell_to_{gate}_weights", "int16")
        return Gate(
            inputs=weights,
            input_bias=lstm.bias_with_zero(weights, self._x_zero, bias),
            input_factor=lstm.product_factor(weight_scale, self._x_scale, scale),
            recurrent=recurrent,
            recurrent_bias=lstm.bias_with_zero(recurrent, self._h_zero),
            recurrent_factor=lstm.product_factor(recurrent_scale, self._h_scale, scale),
            peephole=peephole,
            peephole_factor=lstm.peephole_factor(self._exponent, peephole_scale, scale),
            norm=norm,
        )

    def _norm(self, gate: str) -> GateNorm | None:
        name = f"{gate}_layer_norm_coefficients"
        if name not in self._values:
            return None
        weights, scale = self._weights(name, "int16")
        bias = self._bias(f"{gate}_gate_bias", _NORM_SCALE, scale)
        return None if bias is None else lstm.gate_norm(weights, bias, scale)

    def _gate_scale(self, index: int, gate: str) -> float:
        found = self._intermediate(index)
        if found is None:
            raise unsupported(self._node, f"the intermediate tensor with the scale of the {gate} gate is missing")
        return found[0]

    def _projection(self, hidden_scale: float, hidden_zero: int) -> Projection | None:
        if "projection_weights" not in self._values:
            return None
        weights, scale = self._weights("projection_weights", "int8")
        out_scale = scale_of(self._node, self._node.results[0])[0]
        return Projection(
            weights=weights,
            bias=lstm.bias_with_zero(weights, -hidden_zero, self._bias("projection_bias", hidden_scale, scale)),
            factor=lstm.product_factor(scale, hidden_scale, self._h_scale),
            clip=lstm.clip_code(option(self._node, "proj_clip"), out_scale, 127),
        )
