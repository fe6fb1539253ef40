"""Circle's own operators for transformers and normalisation."""

from __future__ import annotations

from odc_mlir.ops.infer.common import result, same_dim, shape_of, shape_text
from odc_mlir.ops.spec import STATEFUL, Node, OperatorFamily, QuantRule, ResultType, Shape, real_only


def _scales(node: Node, index: int, channels: int | None) -> None:
    shape = shape_of(node, index, (0, 1))
    if shape and shape[0] != 1:
        same_dim(node, shape[0], channels, f"operand {index} ({node.spec.operand_name(index)}) and channels")


def instance_norm(node: Node) -> list[ResultType]:
    """Infer the type of ``x``, ``[N, H, W, C]`` or ``[N, C, D]``. ``gamma`` and ``beta`` are ``[C]`` or ``[1]``."""
    x = shape_of(node, 0, (3, 4))
    if x is not None:
        for index in (1, 2):
            _scales(node, index, x[1] if len(x) == 3 else x[3])
    return result(node, node.operand(0).dtype, x)


def rms_norm(node: Node) -> list[ResultType]:
    """Infer the type of ``x [..., C]`` of rank 3 or 4. ``gamma`` is ``[C]`` or ``[1]``."""
    x = shape_of(node, 0, (3, 4))
    if x is not None:
        _scales(node, 1, x[-1])
    return result(node, node.operand(0).dtype, x)


def rope(node: Node) -> list[ResultType]:
    """Infer the type of ``x [B, heads, tokens, d]`` with even ``d``. Tables of rank 4 must broadcast to it."""
    x = shape_of(node, 0, 4)
    if x is not None:
        if x[3] is not None and x[3] % 2:
            raise node.error(f"the last dimension is {x[3]}; it must be even")
        for index in (1, 2):
            table = shape_of(node, index, 4)
            if table is not None:
                same_dim(node, table[3], x[3], f"{node.spec.operand_name(index)} and the input's last dimension")
    return result(node, node.operand(0).dtype, x)


def attention(node: Node) -> list[ResultType]:
    """Infer the type of ``x [1, 1, D]``. Weights are ``[D, D]``, caches ``[1, S, heads, D/heads]``."""
    x = shape_of(node, 0, 3)
    if x is not None and any(d not in (None, 1) for d in x[:2]):
        raise node.error(f"the input has the shape {shape_text(x)}; it must be one token of one batch, [1, 1, D]")
    width: int | None = None if x is None else x[2]
    for index in range(1, 5):
        weights: Shape | None = shape_of(node, index, 2)
        if weights is not None:
            width = same_dim(node, width, weights[0], f"{node.spec.operand_name(index)}'s rows and the input")
            width = same_dim(node, width, weights[1], f"{node.spec.operand_name(index)}'s columns and the input")
    for index in (8, 9):
        cache = shape_of(node, index, 4)
        if cache is not None and None not in (*cache[2:], width) and (cache[2] or 0) * (cache[3] or 0) != width:
            raise node.error(f"{cache[2]} heads of {cache[3]} do not make the input's {width} features")
    return result(node, node.operand(0).dtype, x)


_op = OperatorFamily(__name__, verify=None)

SPECS = (
    _op("INSTANCE_NORM", "input gamma beta", "normalisation over the pixels of each image"),
    _op("RMS_NORM", "input gamma", "division by the root mean square of the last axis", quant=QuantRule(left=(1,))),
    _op("ROPE", "input sin_table cos_table", "rotary position embedding", options="RoPEOptions"),
    _op(
        "ATTENTION",
        "input wq wk wv wo position_cos position_sin mask k_cache* v_cache* position",
        "attention of one token over cached keys and values",
        options=None,
        quant=real_only("the caches that it writes have no recorded range"),
        traits=STATEFUL,
        macs="attention",
    ),
)
