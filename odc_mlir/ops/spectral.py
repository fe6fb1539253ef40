"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from odc_mlir.ops.infer.common import result, shape_of, static_ints, vector_length
from odc_mlir.ops.spec import ELEMENTWISE, Node, OperatorFamily, ResultType, real_only

_REAL_OF = {"complex64": "float32", "complex128": "float64"}


def part(node: Node) -> list[ResultType]:
    """Infer real numbers with half the size of complex numbers."""
    return result(node, _REAL_OF[node.operand(0).dtype], shape_of(node, 0))


def rfft2d(node: Node) -> list[ResultType]:
    """Infer ``[..., h, w/2 + 1]`` from ``x [..., H, W]`` and lengths (h, w)."""
    shape = shape_of(node, 0, least=2)
    if vector_length(node, 1) not in (None, 2):
        raise node.error("fft_length must have 2 entries")
    lengths = static_ints(node, 1)
    if shape is None:
        return result(node, "complex64", None)
    if lengths is None:
        return result(node, "complex64", (*shape[:-2], None, None))
    check_lengths(node, lengths)
    return result(node, "complex64", (*shape[:-2], lengths[0], lengths[1] // 2 + 1))


def check_lengths(node: Node, lengths: tuple[int, ...]) -> None:
    """Raise ModelError unless ``lengths`` are two powers of two."""
    if len(lengths) != 2 or any(n < 1 or n & (n - 1) for n in lengths):
        raise node.error(f"fft_length is {list(lengths)}; it must be two powers of two")


_COMPLEX_ONLY = real_only("complex numbers have no quantised form")


_op = OperatorFamily(__name__)
_part = OperatorFamily(
    __name__,
    gives="output:float32|float64",
    options=None,
    quant=_COMPLEX_ONLY,
    traits=ELEMENTWISE,
    infer="part",
    verify=None,
)

SPECS = (
    _part("REAL", "input:complex64|complex128", "real part"),
    _part("IMAG", "input:complex64|complex128", "imaginary part"),
    _part("COMPLEX_ABS", "input:complex64|complex128", "absolute value of complex numbers"),
    _op(
        "RFFT2D",
        "input:float32 fft_length:int32",
        "Fourier transform of real images over the last two axes, without the redundant half",
        gives="output:complex64",
        options="Rfft2dOptions",
        quant=_COMPLEX_ONLY,
        verify=None,
    ),
)
