"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_COMPLEX = ("complex64", "complex128")
_REAL = ("float32", "float64")
_COMPLEX_ONLY = real_only("complex numbers have no quantised form")
_INFER = "odc_mlir.ops.infer.spectral"
_KERNELS = "odc_mlir.runtime.kernels.spectral"


def _part(name: str, summary: str) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input", dtypes=_COMPLEX),),
        (Operand("output", dtypes=_REAL),),
        None,
        f"{_INFER}:part",
        f"{_KERNELS}:{name.lower()}",
        traits=frozenset({Trait.PURE, Trait.ELEMENTWISE}),
        quant=_COMPLEX_ONLY,
        summary=summary,
    )


SPECS = (
    _part("REAL", "real part"),
    _part("IMAG", "imaginary part"),
    _part("COMPLEX_ABS", "absolute value of complex numbers"),
    OpSpec(
        "RFFT2D",
        (Operand("input", dtypes=("float32",)), Operand("fft_length", dtypes=("int32",))),
        (Operand("output", dtypes=("complex64",)),),
        "Rfft2dOptions",
        f"{_INFER}:rfft2d",
        f"{_KERNELS}:rfft2d",
        quant=_COMPLEX_ONLY,
        summary="Fourier transform of real images over the last two axes, without the redundant half",
    ),
)
