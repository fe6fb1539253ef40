"""``circle`` to ``npu``: functions of one operand of 16-bit codes, of which no table holds every code.

Logistic and hyperbolic tangent have an instruction, real functions a table of 513 entries, or a few whose results are
added up, and piecewise linear ones are put together from changes of scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.errors import CompileError
from odc_mlir.numerics.elementwise import leaky_params, scale_params
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.int16 import sigmoid_params, sigmoid_table
from odc_mlir.numerics.int16_sums import TableSum
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering.site import ONE, Site, blob_of, pair_of
from odc_mlir.transforms.npu.lowering.tables import interpolated_table, table_sum_of

LOW, HIGH = code_range("int16")
SIGMOIDS: Mapping[str, tuple[npu.SigmoidKind, int]] = {  # and the largest shift of scales that are powers of two
    "LOGISTIC": (npu.SigmoidKind.LOGISTIC, 0),
    "TANH": (npu.SigmoidKind.TANH, 1),
}
_RESULT_SCALE = 1 / 32768
_TOLERANCE = 1e-3  # of the result's scale, relative
_LARGEST_SCALE = 1.0
_UNSHIFTED = npu.ScaleAttr.of(1 << 30, -14)  # behind a shift to the left by 15
_LEFT_SHIFT = 15


def wide_function(node: Node, dynamic: int) -> str | None:
    """Why a function of 16-bit codes cannot be computed, None where it can."""
    source, result = node.operand(dynamic), node.results[0]
    if result.dtype != "int16":
        return f"{source.name!r} is {source.dtype}, {result.name!r} is {result.dtype}"
    if node.spec.name in PIECEWISE or _is_sigmoid(node) or table_sum_of(node) is not None:
        return None
    if interpolated_table(node, dynamic) is not None:
        return None
    return f"no sum of tables of 513 entries gives the results of {node.spec.name} on {source.name!r}"


def lower_wide(site: Site, dynamic: int) -> None:
    """Replace a function of one operand of int16 codes."""
    node = site.node
    source = site.operand(dynamic)
    if node.spec.name in PIECEWISE:
        return PIECEWISE[node.spec.name](site, source)
    if _is_sigmoid(node):
        kind, largest_shift = SIGMOIDS[node.spec.name]
        params = sigmoid_params(pair_of(site.info(0))[0], largest_shift=largest_shift)
        table = blob_of(sigmoid_table().astype("<u2"))
        return site.finish(
            npu.SigmoidOp(kind, source, site.result_type, multiplier=params.multiplier, shift=params.shift, table=table)
        )
    if (tables := table_sum_of(node)) is not None:
        return _sum_of_tables(site, source, tables)
    entries = interpolated_table(node, dynamic)
    if entries is None:
        raise CompileError("no table gives its results", op=node.spec.name, tensor=node.name)
    return site.finish(npu.LutOp(source, site.result_type, table=BlobAttr.of(entries.astype("<i2").tobytes())))


def _is_sigmoid(node: Node) -> bool:
    """Whether scales and zero points are those that the instruction takes."""
    if node.spec.name not in SIGMOIDS:
        return False
    (scale, zero), (out_scale, out_zero) = pair_of(node.operand(0)), pair_of(node.results[0])
    return abs(out_scale / _RESULT_SCALE - 1) < _TOLERANCE and scale < _LARGEST_SCALE and not (zero or out_zero)


def _sum_of_tables(site: Site, source: SSAValue, sum_of: TableSum) -> None:
    """What each table tells at the positions that codes have in it, added up, and the base added to that."""
    first, *finer = sum_of.tables
    last: npu.LutOp | npu.ElementwiseOp | npu.ScaleOp = _told(site, source, first)
    for place, table in enumerate(finer, 1):
        total, larger = site.emit(last), npu.ScaleAttr.of(1 << 30, 1 + 2 * place)
        at = npu.ScaleOp(source, site.result_type, zeros=(0, 0), scale=larger, clamp=(LOW, HIGH))
        last = _sum(site, total, site.emit(_told(site, site.emit(at), table)))
    if sum_of.base:
        zeros = (0, sum_of.base)
        last = npu.ScaleOp(site.emit(last), site.result_type, zeros=zeros, scale=ONE, clamp=(LOW, HIGH))
    site.finish(last)


def _told(site: Site, at: SSAValue, table: NDArray[np.int16]) -> npu.LutOp:
    return npu.LutOp(at, site.result_type, table=blob_of(table.astype("<i2")))


def _sum(
    site: Site, a: SSAValue, b: SSAValue, kind: npu.ElementwiseKind = npu.ElementwiseKind.ADD, zero: int = 0
) -> npu.ElementwiseOp:
    """The sum, or difference, of codes of one scale."""
    return npu.ElementwiseOp(
        kind,
        a,
        b,
        site.result_type,
        zeros=(0, 0, zero),
        left_shift=_LEFT_SHIFT,
        a_scale=_UNSHIFTED,
        b_scale=_UNSHIFTED,
        out_scale=ONE,
        clamp=(LOW, HIGH),
    )


def _scaled(site: Site, source: SSAValue, scale: npu.ScaleAttr, clamp: tuple[int, int]) -> SSAValue:
    """``source`` without its zero point, times a factor."""
    zero = pair_of(site.info(0))[1]
    return site.emit(npu.ScaleOp(source, site.result_type, zeros=(zero, 0), scale=scale, clamp=clamp))


def _leaky_relu(site: Site, source: SSAValue) -> None:
    """One scale for what is positive, one for what is negative; of the two one is always 0, so they are added up."""
    alpha = float(np.float32(site.node.options["alpha"]))
    p = leaky_params(pair_of(site.info(0)), alpha, pair_of(site.result), "int16")
    above = _scaled(site, source, npu.ScaleAttr.of(p.multiplier, p.exponent), (0, HIGH))
    below = _scaled(site, source, npu.ScaleAttr.of(abs(p.alpha_multiplier), p.alpha_exponent), (LOW, 0))
    kind = npu.ElementwiseKind.SUB if p.alpha_multiplier < 0 else npu.ElementwiseKind.ADD
    site.finish(_sum(site, above, below, kind, p.out_zero))


def _negative(site: Site, source: SSAValue) -> npu.ElementwiseOp:
    """Codes times -1, scaled: negation before rounding."""
    p = scale_params(pair_of(site.info(0)), pair_of(site.result), (LOW, HIGH), "int16", single=True)
    ones = (1,) * len(npu.shape_of(source))
    minus_one = npu.ConstantOp(blob_of(np.array([-1], "<i2")), site.result_of_shape(*ones))
    return npu.ElementwiseOp(
        npu.ElementwiseKind.MUL,
        source,
        site.emit(minus_one),
        site.result_type,
        zeros=(p.in_zero, 0, p.out_zero),
        out_scale=npu.ScaleAttr.of(p.multiplier, p.exponent),
        clamp=(LOW, HIGH),
    )


def _neg(site: Site, source: SSAValue) -> None:
    site.finish(_negative(site, source))


def _abs(site: Site, source: SSAValue) -> None:
    """The larger of the codes and their negatives, both scaled: rounding keeps order."""
    p = scale_params(pair_of(site.info(0)), pair_of(site.result), (LOW, HIGH), "int16", single=True)
    scale = npu.ScaleAttr.of(p.multiplier, p.exponent)
    zeros = (p.in_zero, p.out_zero)
    plain = site.emit(npu.ScaleOp(source, site.result_type, zeros=zeros, scale=scale, clamp=(LOW, HIGH)))
    negative = site.emit(_negative(site, source))
    site.finish(npu.ElementwiseOp(npu.ElementwiseKind.MAX, plain, negative, site.result_type, clamp=(LOW, HIGH)))


PIECEWISE: Mapping[str, Callable[[Site, SSAValue], None]] = {"LEAKY_RELU": _leaky_relu, "NEG": _neg, "ABS": _abs}
