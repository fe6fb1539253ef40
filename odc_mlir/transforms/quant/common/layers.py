"""Constants of layers in a quantised model, by name, for passes that replace codes of constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, info_of, node_of, tensor_type
from odc_mlir.errors import ModelError, OptionError, parsing
from odc_mlir.formats.samples import read_npz
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.spec import Array, QuantParams, TensorInfo
from odc_mlir.support.locations import name_loc, op_name, value_name
from odc_mlir.transforms.quant.common.ir import all_ops, constant_of, quantized_function


def load_arrays(path: str, option: str) -> dict[str, Array]:
    """Return the arrays of an .npz file by name. Raises OptionError with ``option`` for other kinds of files."""
    return read_npz(path, what=option, kind=OptionError, hint="use an .npz file")


def load_reals(path: str, what: str, form: Callable[[Array], Array]) -> Mapping[str, Array]:
    """Return the arrays of an .npz file by name, as floats converted by ``form``, or none if ``path`` is empty.

    Raises OptionError with ``what`` for another kind of file, and if ``form`` raises ValueError.
    """
    arrays = load_arrays(path, what) if path else {}
    with parsing(f"cannot read {what}", OptionError, location=path):
        return {name: form(np.asarray(array, np.float64)) for name, array in arrays.items()}


@dataclass(frozen=True)
class LayerConstant:
    """Operand ``index`` of ``op``: a constant, or the DEQUANTIZE of a constant."""

    op: CircleOp
    index: int
    constant: ConstOp
    between: CircleOp | None = None

    @property
    def info(self) -> TensorInfo:
        return info_of(self.constant.result)

    @property
    def readers(self) -> int:
        """Number of operands that read this constant, directly or through its DEQUANTIZEs."""
        uses = list(self.constant.result.uses)
        behind = [use.operation for use in uses if _is_dequantize(use.operation)]
        return len(uses) - len(behind) + sum(len(list(op.results[0].uses)) for op in behind)

    def replace(self, array: Array, params: QuantParams | None = None) -> None:
        """Replace the operand by a constant of the same type except ``params``. Other users keep the old constant.

        Raises ModelError if other users read the same DEQUANTIZE.
        """
        alone = self.constant.result.has_one_use()
        if self.between is not None and not self.between.results[0].has_one_use():
            raise ModelError(
                "operators that keep their weights share these weights",
                op=self.op.SPEC.name,
                tensor=op_name(self.op),
                hint="name all operators that read them",
            )
        made = self._made(array, params, "" if alone else f"{op_name(self.op)}/", self.between or self.op)
        (self.between or self.op).operands[0 if self.between else self.index] = made.result
        if alone:
            Rewriter.erase_op(self.constant)

    def replace_for_all(self, array: Array, params: QuantParams | None = None) -> None:
        """Replace the constant for all readers by a constant of the same type except ``params``."""
        self.constant.result.replace_all_uses_with(self._made(array, params, "", self.constant).result)
        Rewriter.erase_op(self.constant)

    def _made(self, array: Array, params: QuantParams | None, prefix: str, before: Operation) -> ConstOp:
        info = self.info
        type = self.constant.result.type if params is None else tensor_type(info.dtype, info.shape, params)
        made = ConstOp(BlobAttr.of(encode_constant(array, info.dtype)), type)
        made.location = name_loc(prefix + value_name(self.constant.result))
        Rewriter.insert_op(made, InsertPoint.before(before))
        return made


def layer_constants(module: ModuleOp, arrays: Mapping[str, Array], role: str) -> Iterator[tuple[LayerConstant, Array]]:
    """Yield the ``weights`` or ``biases`` of layers, with the arrays that ``arrays`` has under the results' names.

    ``RESULT:OPERAND`` names one of several weights by the operand's name in the operator table. Raises ModelError if no
    layer has this name, or if the layer has no such constant.
    """
    function = quantized_function(module)
    found = {op_name(op): op for op in all_ops(function)} if function is not None else {}
    for name, array in arrays.items():
        op, operand = found.get(name), ""
        if op is None:
            result, _, operand = name.rpartition(":")
            op = found.get(result)
        if op is None:
            raise ModelError("no operator has a result of this name", tensor=name, hint="use the model of these names")
        yield _constant_of(op, role, operand), array


def _constant_of(op: CircleOp, role: str, operand: str) -> LayerConstant:
    quant = op.SPEC.quant
    for index in quant.trained(node_of(op).options) if role == "weights" else quant.biases:
        if index >= len(op.operands) or (operand and op.SPEC.operand_name(index) != operand):
            continue
        value: SSAValue = op.operands[index]
        between = value.owner if _is_dequantize(value.owner) else None
        if between is not None:
            value = between.operands[0]
        constant = constant_of(value)
        if constant is not None:
            return LayerConstant(op, index, constant, between if isinstance(between, CircleOp) else None)
    what = f"constant {operand}" if operand else f"constant {role}"
    raise ModelError(f"the operator has no {what}", op=op.SPEC.name, tensor=op_name(op))


def _is_dequantize(op: Operation | Block) -> TypeGuard[CircleOp]:
    return isinstance(op, CircleOp) and op.SPEC.name == "DEQUANTIZE"
