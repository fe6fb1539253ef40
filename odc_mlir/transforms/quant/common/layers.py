"""What the passes share that replace codes of layers in a quantised model: finding a layer's constants by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, info_of, tensor_type
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.npz import read_npz
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.spec import Array, QuantParams, TensorInfo
from odc_mlir.support.locations import name_loc, op_name, value_name
from odc_mlir.transforms.quant.common.ir import constant_of, main_function, operators


def load_arrays(path: str, option: str) -> dict[str, Array]:
    """The arrays of an .npz file by name; raises OptionError, naming ``option``, for a file that holds none."""
    return read_npz(path, what=option, kind=OptionError, hint="use an .npz file")


@dataclass(frozen=True)
class LayerConstant:
    """Operand ``index`` of ``op``: a constant, perhaps behind a DEQUANTIZE that only this operand reads."""

    op: CircleOp
    index: int
    constant: ConstOp
    between: CircleOp | None = None

    @property
    def info(self) -> TensorInfo:
        return info_of(self.constant.result)

    def replace(self, array: Array, params: QuantParams | None = None) -> None:
        """Give the operand other contents, of the same type but for ``params``; other readers keep what they have."""
        info = self.info
        type = self.constant.result.type if params is None else tensor_type(info.dtype, info.shape, params)
        made = ConstOp(BlobAttr.of(encode_constant(array, info.dtype)), type)
        alone = self.constant.result.has_one_use()
        old = value_name(self.constant.result)
        made.location = name_loc(old if alone else f"{op_name(self.op)}/{old}")
        Rewriter.insert_op(made, InsertPoint.before(self.between or self.op))
        (self.between or self.op).operands[0 if self.between else self.index] = made.result
        if alone:
            Rewriter.erase_op(self.constant)


def layer_constants(module: ModuleOp, arrays: Mapping[str, Array], role: str) -> Iterator[tuple[LayerConstant, Array]]:
    """The ``weights`` or ``biases`` of the layers that ``arrays`` names by their results, with the array for each.

    Raises ModelError for a name that no layer with such a constant has.
    """
    function = main_function(module)
    found = {op_name(op): op for op in operators(function)} if function is not None else {}
    for name, array in arrays.items():
        op = found.get(name)
        if op is None:
            raise ModelError("no operator has a result of this name", tensor=name, hint="use the model it was made for")
        yield _constant_of(op, role), array


def _constant_of(op: CircleOp, role: str) -> LayerConstant:
    for index in getattr(op.SPEC.quant, role):
        if index >= len(op.operands):
            continue
        value: SSAValue = op.operands[index]
        between = value.owner
        if isinstance(between, CircleOp) and between.SPEC.name == "DEQUANTIZE" and value.has_one_use():
            value = between.operands[0]
        constant = constant_of(value)
        if constant is not None:
            return LayerConstant(op, index, constant, between if isinstance(between, CircleOp) else None)
    raise ModelError(f"the operator has no constant {role}", op=op.SPEC.name, tensor=op_name(op))
