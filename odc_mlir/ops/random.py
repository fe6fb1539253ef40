"""Operators that draw random numbers."""

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.random"
_KERNELS = "odc_mlir.runtime.kernels.random"

_INDEX = ("int32", "int64")
_DRAWS = real_only("random numbers are real values")
_SHAPE = (Operand("shape", dtypes=_INDEX),)
_NUMBERS = (Operand("output"),)

SPECS = (
    OpSpec(
        name="RANDOM_UNIFORM",
        operands=_SHAPE,
        results=_NUMBERS,
        options="RandomOptions",
        infer=f"{_INFER}:shaped",
        kernel=f"{_KERNELS}:random_uniform",
        traits=frozenset({Trait.STATEFUL}),
        quant=_DRAWS,
        summary="random numbers, uniform from 0 to 1",
    ),
    OpSpec(
        name="RANDOM_STANDARD_NORMAL",
        operands=_SHAPE,
        results=_NUMBERS,
        options="RandomOptions",
        infer=f"{_INFER}:shaped",
        kernel=f"{_KERNELS}:random_standard_normal",
        traits=frozenset({Trait.STATEFUL}),
        quant=_DRAWS,
        summary="random numbers, normal with mean 0 and variance 1",
    ),
    OpSpec(
        name="MULTINOMIAL",
        operands=(Operand("logits"), Operand("samples", dtypes=_INDEX)),
        results=(Operand("output", dtypes=_INDEX),),
        options="RandomOptions",
        infer=f"{_INFER}:multinomial",
        kernel=f"{_KERNELS}:multinomial",
        traits=frozenset({Trait.STATEFUL}),
        quant=_DRAWS,
        summary="random classes with the probabilities of logits",
    ),
)
