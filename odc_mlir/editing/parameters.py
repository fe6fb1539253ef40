"""Editing of input shapes, quantisation parameters and constants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, NoneOp, op_class, tensor_facts, tensor_type
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.editing.cutting import find_values
from odc_mlir.errors import ModelError, OdcError, OptionError, UnsupportedError, parsing
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.schemes import dequantize_constant
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.circle.circle_infer_shapes import CircleInferShapesPass
from odc_mlir.transforms.common.placement import functions, main_function
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import constant
from odc_mlir.transforms.common.tensor_names import values_of
from odc_mlir.universe import make_context

Shapes = Sequence[tuple[int, ...]]


def resize(module: ModuleOp, shapes: Shapes) -> ModuleOp:
    """Return a copy with inputs of ``shapes`` in order, and inferred shapes of all results.

    Raises OptionError for a wrong number or rank of shapes, ModelError if an operator does not support the shapes.
    """
    made = clone_module(module)
    function = main_function(made)
    arguments = tuple(function.body.block.args)
    if len(shapes) != len(arguments):
        raise OptionError(
            f"{counted(len(shapes), 'shape')} given, but the model has {counted(len(arguments), 'input')}"
        )
    for argument, shape in zip(arguments, shapes, strict=True):
        old = tensor_facts(argument.type).shape
        if old is not None and len(old) != len(shape):
            name = value_name(argument)
            raise OptionError(f"input {name!r} has rank {len(old)}, the shape {list(shape)} has {len(shape)}")
        retype(argument, with_shape(argument.type, shape))
    for op in function.body.block.ops:
        for result in op.results if isinstance(op, CircleOp) else ():
            rank = len(tensor_facts(result.type).shape or ())
            if rank:
                retype(result, with_shape(result.type, (None,) * rank))
    set_function_type(function)
    CircleInferShapesPass().apply(make_context(), made)
    made.verify()
    return made


def constants(module: ModuleOp) -> dict[str, NDArray[Any]]:
    """Return constants by name as stored. Quantised tensors add ``NAME/scale`` and ``NAME/zero_point``."""
    found: dict[str, NDArray[Any]] = {}
    for op in module.walk():
        array = constant(op.result) if isinstance(op, ConstOp) else None
        if not isinstance(op, ConstOp) or array is None:
            continue
        name, quant = value_name(op.result), tensor_facts(op.result.type).quant
        found[name] = array
        if quant is not None:
            found[f"{name}/scale"] = np.array(quant.scales, np.float32)
            found[f"{name}/zero_point"] = np.array(quant.zero_points, np.int64)
    return found


def implant(module: ModuleOp, document: Mapping[str, Any], folder: Path) -> ModuleOp:
    """Return a copy with the types and parameters of ``document``, in the format of ONE's ``q-implant``.

    ``{tensor: {dtype, scale, zerop, quantized_dimension, value}}``: ``scale``, ``zerop`` and ``value`` are names of
        .npy files in ``folder``. Constants need a ``value`` with codes. Raises OptionError for wrong entries.
    """
    made = clone_module(module)
    entries = {name: entry for name, entry in document.items() if isinstance(entry, dict)}
    if len(entries) != len(document):
        raise OptionError("parameters must be one object for each tensor", hint="{tensor: {dtype, scale, zerop, …}}")
    for (name, entry), value in zip(entries.items(), find_values(made, entries), strict=True):
        _implant(value, name, entry, folder)
    set_function_type(main_function(made))
    _check_operators(made)
    return made


def _check_operators(made: ModuleOp) -> None:
    for op in made.walk():
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:
            if not isinstance(op, CircleOp) or not op.results:
                break
            cause = error.__cause__
            raise ModelError(
                f"the operator does not take these types: {cause.message if isinstance(cause, OdcError) else error}",
                op=op.SPEC.name,
                tensor=value_name(op.results[0]),
                hint="give its other tensors parameters too",
            ) from error
    try:
        made.verify()
    except Exception as error:
        raise ModelError(f"the model does not hold together with these types: {error}") from error


def _implant(value: SSAValue, name: str, entry: Mapping[str, Any], folder: Path) -> None:
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES or not DTYPES[dtype].is_integer:
        raise OptionError(f"the element type of {name!r} is {dtype!r}, which is not quantised")
    scale = _array(entry, "scale", name, folder)
    zeros = _array(entry, "zerop", name, folder)
    if scale is None or not scale.size:
        raise OptionError(f"{name!r} has no scale")
    if zeros is not None and zeros.size != scale.size:
        raise OptionError(f"{name!r} has {scale.size} scales and {zeros.size} zero points")
    shape = tensor_facts(value.type).shape
    axis = entry.get("quantized_dimension", 0)
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise OptionError(f"quantized_dimension of {name!r} is {axis!r}, not a whole number")
    axis = axis if scale.size > 1 else 0
    if scale.size > 1 and (shape is None or not 0 <= axis < len(shape) or shape[axis] != scale.size):
        raise OptionError(f"{name!r} has {scale.size} scales along dimension {axis}, its shape is {shape}")
    points = np.zeros(scale.size, np.int64) if zeros is None else zeros.reshape(-1)
    _check_whole(points, dtype, f"the zero point of {name!r}")
    type = tensor_type(dtype, shape, QuantParams(_scales(scale, name), tuple(map(int, points)), axis))
    codes = _array(entry, "value", name, folder)
    if isinstance(value, OpResult) and isinstance(value.op, ConstOp):
        if codes is None or codes.shape != shape:
            seen = "is missing" if codes is None else f"has the shape {codes.shape}, not {shape}"
            raise OptionError(f"the value of the constant {name!r} {seen}")
        _check_whole(codes, dtype, f"the value of {name!r}")
        stored = np.ascontiguousarray(codes.astype(DTYPES[dtype].numpy))
        value.op.properties["value"] = BlobAttr.of(stored.tobytes())
    elif codes is not None:
        raise OptionError(f"{name!r} has a value but is not a constant")
    retype(value, type)


def _scales(scale: NDArray[Any], name: str) -> tuple[float, ...]:
    if scale.dtype.kind not in "fiu":
        raise OptionError(f"the scale of {name!r} is of type {scale.dtype}, not numbers")
    with np.errstate(over="ignore"):
        found = np.asarray(scale, np.float32).reshape(-1)
    wrong = found[~(np.isfinite(found) & (found > 0))]
    if wrong.size:
        raise OptionError(f"the scale of {name!r} is {wrong[0]:g} in float32, not finite and above 0")
    return tuple(found.tolist())


def _check_whole(array: NDArray[Any], dtype: str, what: str) -> None:
    low, high = DTYPES[dtype].range
    if array.dtype.kind not in "fiu":
        raise OptionError(f"{what} is of type {array.dtype}, not numbers")
    fits = (array >= low) & (array <= high)
    if array.dtype.kind == "f":
        fits &= array == np.floor(array)
    if not fits.all():
        raise OptionError(f"{what} is {array[~fits][0]:g}, not a whole number from {low} to {high}")


def _array(entry: Mapping[str, Any], key: str, name: str, folder: Path) -> NDArray[Any] | None:
    file = entry.get(key)
    if file is None:
        return None
    if not isinstance(file, str) or Path(file).name != file:
        raise OptionError(f"{key} of {name!r} is {file!r}, not the name of a file in the folder of the parameters")
    with parsing("not an array file", OptionError, location=str(folder / file)):
        try:
            return np.asarray(np.load(folder / file, allow_pickle=False))
        except OSError as error:
            raise OptionError(f"cannot read {key} of {name!r}: {error.strerror}", location=str(folder / file)) from None


def read_parameters(path: str) -> Mapping[str, Any]:
    """Return the JSON object in a file of parameters. Raises OptionError."""
    with parsing("not a file of parameters", OptionError, location=path):
        document = json.loads(Path(path).read_bytes())
    if not isinstance(document, dict):
        raise OptionError("parameters are a JSON object of tensors", location=path)
    return document


def fake_quantize(module: ModuleOp) -> ModuleOp:
    """Return a float model with real inputs and outputs that rounds every value quantised in ``module``.

    Constants become real, and QUANTIZE and DEQUANTIZE follow each quantised input and result. Raises UnsupportedError
    for operators that need codes, ModelError if nothing is quantised.
    """
    made = clone_module(module)
    function = main_function(made)
    block = function.body.block
    seen = 0
    for argument in block.args:
        seen += _rounded(argument, InsertPoint.at_start(block))
    for op in list(block.ops):
        if isinstance(op, ConstOp):
            seen += _real_constant(op)
        elif isinstance(op, CircleOp) and op.SPEC.name in ("QUANTIZE", "DEQUANTIZE"):
            seen += _converted(op)
        elif isinstance(op, CircleOp):
            for result in op.results:
                seen += _rounded(result, InsertPoint.after(op))
    if not seen:
        raise _not_quantised()
    set_function_type(function)
    try:
        made.verify()
    except Exception as error:
        raise UnsupportedError(f"an operator of the model cannot run in floating point: {error}") from error
    return made


def require_codes(module: ModuleOp) -> None:
    """Raise ModelError if no tensor of any function is quantised."""
    values = (value for function in functions(module) for value in values_of(function))
    if not any(tensor_facts(value.type).quant for value in values if not isinstance(value.owner, NoneOp)):
        raise _not_quantised()


def _not_quantised() -> ModelError:
    return ModelError("no tensor of the model is quantised", hint="odc-quantize makes a quantised model of it")


def _rounded(value: SSAValue, where: InsertPoint) -> int:
    """Make ``value`` real, and give readers the rounded value. Return the number of changed values."""
    if isinstance(value.owner, NoneOp) or (facts := tensor_facts(value.type)).quant is None:
        return 0
    name = value_name(value)
    real = tensor_type("float32", facts.shape)
    new = retype(value, real)
    down = op_class("QUANTIZE").make([new], [tensor_type(facts.dtype, facts.shape, facts.quant)], {})
    up = op_class("DEQUANTIZE").make([down.results[0]], [real], {})
    down.location, up.location = name_loc(f"{name}_FQ_Quantize"), name_loc(f"{name}_FQ_Dequantize")
    new.replace_all_uses_with(up.results[0])
    down.operands[0] = new
    Rewriter.insert_op([down, up], where)
    return 1


def _real_constant(op: ConstOp) -> int:
    facts, codes = tensor_facts(op.result.type), constant(op.result)
    if facts.quant is None or codes is None:
        return 0
    numbers = dequantize_constant(codes.astype(np.float64), facts.quant)
    op.properties["value"] = BlobAttr.of(np.ascontiguousarray(numbers).tobytes())
    retype(op.result, tensor_type("float32", facts.shape))
    return 1


def _converted(op: CircleOp) -> int:
    if op.SPEC.name == "DEQUANTIZE":
        op.results[0].replace_all_uses_with(op.operands[0])
        Rewriter.erase_op(op)
        return 1
    facts = tensor_facts(op.results[0].type)
    up = op_class("DEQUANTIZE").make([op.results[0]], [tensor_type("float32", facts.shape)], {})
    up.location = name_loc(f"{value_name(op.results[0])}_FQ_Dequantize")
    op.results[0].replace_all_uses_with(up.results[0])
    up.operands[0] = op.results[0]
    Rewriter.insert_op(up, InsertPoint.after(op))
    return 1
