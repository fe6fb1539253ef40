"""One small case per operator and variant that the NPU runs, as IR text, with inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.universe import make_context


def q(shape: str, scale: str = "0.05", zero: int = 0, storage: str = "i8") -> str:
    """A tensor type of codes."""
    return f"tensor<{shape}x!quant.uniform<{storage}:f32, {scale}:{zero}>>"


def truths(shape: str) -> str:
    """A tensor type of truths."""
    return f"tensor<{shape}xi1>"


def whole(storage: str) -> str:
    """A tensor type of plain integers."""
    return f"tensor<2x3x8x{storage}>"


def cast(name: str, source: str, target: str, operand: str = "%x") -> str:
    """Lines that convert ``operand`` to the type ``target``, as %name."""
    names = {"i1": "bool"} | {f"{sign}{bits}": f"{word}{bits}" for bits in (8, 16, 32) for sign, word in _SIGNS}
    dtypes = [names[kind[kind.rindex("x") + 1 : -1]] for kind in (source, target)]
    options = f"in_data_type = {dtypes[0]}, out_data_type = {dtypes[1]}"
    return f"%{name} = circle.cast({operand}) {{{options}}} : ({source}) -> {target}\n"


_SIGNS = (("i", "int"), ("ui", "uint"))


def axis(shape: str, dim: int, count: int) -> str:
    """An int8 tensor type with ``count`` scales, all different."""
    scales = ", ".join(f"{0.003 + 0.0007 * i:.4f}" for i in range(count))
    return f"tensor<{shape}x!quant.uniform<i8:f32:{dim}, {{{scales}}}>>"


def codes(count: int, seed: int = 1) -> str:
    """A blob of random bytes."""
    return f'#circle.blob<"0x{np.random.default_rng(seed).bytes(count).hex()}">'


def call(name: str, operands: list[tuple[str, str]], result: str, options: str = "") -> str:
    names, types = zip(*operands, strict=True)
    return f"%y = circle.{name}({', '.join(names)}) {{{options}}} : ({', '.join(types)}) -> {result}"


def conv(
    x: str, weights: str, result: str, options: str, *, bias: int = 0, name: str = "conv_2d", size: int = 0
) -> str:
    """A convolution with ``size`` weight bytes and ``bias`` random biases (0: none)."""
    if bias:
        values = np.random.default_rng(2).integers(-2000, 2000, bias).tolist()
        third, line = f"tensor<{bias}xi32>", f"%b = circle.const {values} : tensor<{bias}xi32>"
    else:
        third, line = "none", "%b = circle.none"
    head = f"%w = circle.const {codes(size)} : {weights}\n{line}\n"
    return head + call(name, [("%x", x), ("%w", weights), ("%b", third)], result, options)


X, W = q("2x6x7x4", zero=-3), axis("5x3x3x4", 0, 5)
U = q("2x6x7x4", zero=130, storage="u8")
L = q("2x3x8", zero=5)
ROWS = q("3x8", zero=5)
MASK = "%m = circle.const [false, true, true, false, true, false, false, true] : tensor<8xi1>"
MEAN_X = q("2x6x7x3", zero=11)
LAST = q("1x1x1x6x4", zero=5)
JOINED = q("2x3", "0.05", 130, "u8"), q("2x2", "0.02", 7, "u8"), q("2x4", "0.03", 20, "u8")
FINE, FINER = q("2x3x8", "0.0003", 5), q("3x8", "0.0002", -7)  # so fine that many codes are compared as equal
T, W16 = truths("2x3x8"), q("2x3x8", storage="i16")
HALF_PIXELS = "half_pixel_centers = true"

# name, types of the arguments %x and %z, body, result type
CASES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "conv": ((X,), conv(X, W, q("2x6x7x5"), "padding = same, stride = [1, 1]", bias=5, size=180), q("2x6x7x5")),
    "conv-stride-dilation": (
        (X,),
        conv(
            X,
            W,
            q("2x1x3x5", "0.1", 7),
            "padding = valid, stride = [2, 1], dilation = [2, 2], activation = relu6",
            size=180,
        ),
        q("2x1x3x5", "0.1", 7),
    ),
    "conv-uint8": (
        (U,),
        conv(
            U,
            q("5x2x2x4", "0.013", 117, "u8"),
            q("2x3x4x5", "0.2", 9, "u8"),
            "padding = same, stride = [2, 2], activation = relu",
            bias=5,
            size=80,
        ),
        q("2x3x4x5", "0.2", 9, "u8"),
    ),
    "conv-int8-weights-with-zero-point": (
        (X,),
        conv(X, q("5x1x1x4", "0.01", 3), q("2x6x7x5"), "padding = valid, stride = [1, 1]", size=20),
        q("2x6x7x5"),
    ),
    "conv-grouped-as-depthwise": (
        (X,),
        conv(X, axis("8x2x3x1", 0, 8), q("2x5x5x8"), "padding = valid, stride = [1, 1]", bias=8, size=48),
        q("2x5x5x8"),
    ),
    "depthwise": (
        (X,),
        conv(
            X,
            axis("1x3x2x8", 3, 8),
            q("2x3x4x8"),
            "padding = same, stride = [2, 2], depth_multiplier = 2",
            bias=8,
            name="depthwise_conv_2d",
            size=48,
        ),
        q("2x3x4x8"),
    ),
    "depthwise-of-one-channel": (
        (q("2x6x7x1", zero=4),),
        conv(
            q("2x6x7x1", zero=4),
            axis("1x3x2x6", 3, 6),
            q("2x6x7x6"),
            "padding = same, stride = [1, 1]",
            bias=6,
            name="depthwise_conv_2d",
            size=36,
        ),
        q("2x6x7x6"),
    ),
    "fully-connected": (
        (L,),
        conv(L, axis("3x8", 0, 3), q("6x3"), "activation = relu", bias=3, name="fully_connected", size=24),
        q("6x3"),
    ),
    "conv-int4-weights": (
        (X,),
        conv(X, q("5x3x3x4", "0.05", 0, "i4"), q("2x6x7x5", "0.5"), "padding = same, stride = [1, 1]", bias=5, size=90),
        q("2x6x7x5", "0.5"),
    ),
    "fully-connected-int4-weights": (
        (L,),
        conv(L, q("3x8", "0.05", 1, "i4"), q("6x3"), "activation = relu", bias=3, name="fully_connected", size=12),
        q("6x3"),
    ),
    "fully-connected-kept-dims": (
        (L,),
        conv(L, q("3x8", "0.02", 6), q("2x3x3"), "keep_num_dims = true", bias=3, name="fully_connected", size=24),
        q("2x3x3"),
    ),
    "batch-matmul": (
        (q("2x3x5x7", zero=-3), q("2x3x7x4", "0.02", 9)),
        call("batch_matmul", [("%x", q("2x3x5x7", zero=-3)), ("%z", q("2x3x7x4", "0.02", 9))], q("2x3x5x4", "0.1", 4)),
        q("2x3x5x4", "0.1", 4),
    ),
    "batch-matmul-int16": (
        (q("3x5x7", "0.0005", storage="i16"), q("3x4x7", "0.0002", storage="i16")),
        call(
            "batch_matmul",
            [("%x", q("3x5x7", "0.0005", storage="i16")), ("%z", q("3x4x7", "0.0002", storage="i16"))],
            q("3x5x4", "0.01", storage="i16"),
            "adjoint_rhs = true",
        ),
        q("3x5x4", "0.01", storage="i16"),
    ),
    "batch-matmul-int16-by-int8": (
        (q("3x5x7", "0.0005", storage="i16"), q("3x7x4", "0.02", 9)),
        call(
            "batch_matmul",
            [("%x", q("3x5x7", "0.0005", storage="i16")), ("%z", q("3x7x4", "0.02", 9))],
            q("3x5x4", "0.004", storage="i16"),
        ),
        q("3x5x4", "0.004", storage="i16"),
    ),
    "batch-matmul-adjoint-uint8": (
        (q("3x7x5", "0.05", 130, "u8"), q("3x4x7", "0.02", 20, "u8")),
        call(
            "batch_matmul",
            [("%x", q("3x7x5", "0.05", 130, "u8")), ("%z", q("3x4x7", "0.02", 20, "u8"))],
            q("3x5x4", "0.3", 90, "u8"),
            "adjoint_lhs = true, adjoint_rhs = true",
        ),
        q("3x5x4", "0.3", 90, "u8"),
    ),
    **{
        f"batch-matmul-row-{storage}": (
            (q("2x1x7x1", zero=zero, storage=storage), q("3x4x7", "0.02", zero, storage)),
            call(
                "batch_matmul",
                [("%x", q("2x1x7x1", zero=zero, storage=storage)), ("%z", q("3x4x7", "0.02", zero, storage))],
                q("2x3x1x4", "0.3", zero, storage),
                "adjoint_lhs = true, adjoint_rhs = true",
            ),
            q("2x3x1x4", "0.3", zero, storage),
        )
        for zero, storage in ((9, "i8"), (0, "i16"))
    },
    "batch-matmul-of-one-right-matrix": (
        (q("2x3x5x7", zero=-3), q("1x4x7", "0.02", 9)),
        call(
            "batch_matmul",
            [("%x", q("2x3x5x7", zero=-3)), ("%z", q("1x4x7", "0.02", 9))],
            q("2x3x5x4", "0.1", 4),
            "adjoint_rhs = true",
        ),
        q("2x3x5x4", "0.1", 4),
    ),
    "batch-matmul-shared": (
        (q("3x2x2x7", zero=-3), q("3x1x7x4", "0.02", 9)),
        call("batch_matmul", [("%x", q("3x2x2x7", zero=-3)), ("%z", q("3x1x7x4", "0.02", 9))], q("3x2x2x4", "0.1", 4)),
        q("3x2x2x4", "0.1", 4),
    ),
    "batch-matmul-broadcast": (
        (q("2x1x5x7", zero=-3), q("3x7x4", "0.02", 9)),
        call("batch_matmul", [("%x", q("2x1x5x7", zero=-3)), ("%z", q("3x7x4", "0.02", 9))], q("2x3x5x4", "0.1", 4)),
        q("2x3x5x4", "0.1", 4),
    ),
    "batch-matmul-by-a-constant": (
        (q("2x5x7", zero=-3),),
        f"%w = circle.const {codes(28)} : {axis('7x4', 1, 4)}\n"
        + call("batch_matmul", [("%x", q("2x5x7", zero=-3)), ("%w", axis("7x4", 1, 4))], q("2x5x4", "0.05", 4)),
        q("2x5x4", "0.05", 4),
    ),
    "batch-matmul-by-constants": (
        (q("2x5x7", zero=-3),),
        f"%w = circle.const {codes(56)} : {q('2x4x7', '0.02', 9)}\n"
        + call(
            "batch_matmul",
            [("%x", q("2x5x7", zero=-3)), ("%w", q("2x4x7", "0.02", 9))],
            q("2x5x4", "0.1", 4),
            "adjoint_rhs = true",
        ),
        q("2x5x4", "0.1", 4),
    ),
    "batch-matmul-of-a-constant": (
        (q("2x7x5", "0.02", 9),),
        f"%w = circle.const {codes(28)} : {q('7x4', '0.05', -3)}\n"
        + call(
            "batch_matmul",
            [("%w", q("7x4", "0.05", -3)), ("%x", q("2x7x5", "0.02", 9))],
            q("2x4x5", "0.1", 4),
            "adjoint_lhs = true",
        ),
        q("2x4x5", "0.1", 4),
    ),
    "concatenation-of-other-scales": (
        (JOINED[0], JOINED[2]),
        f"%c = circle.const {codes(4)} : {JOINED[1]}\n"
        + call(
            "concatenation", list(zip(("%x", "%c", "%z"), JOINED, strict=True)), q("2x9", "0.05", 100, "u8"), "axis = 1"
        ),
        q("2x9", "0.05", 100, "u8"),
    ),
    "reduce-min": (
        (MEAN_X,),
        "%a = circle.const [1, 2] : tensor<2xi32>\n"
        + call("reduce_min", [("%x", MEAN_X), ("%a", "tensor<2xi32>")], q("2x3", zero=11)),
        q("2x3", zero=11),
    ),
    "prelu-int16": (
        (q("2x6x7x4", "0.0005", storage="i16"), q("7x4", "0.0003", storage="i16")),
        call(
            "prelu",
            [("%x", q("2x6x7x4", "0.0005", storage="i16")), ("%z", q("7x4", "0.0003", storage="i16"))],
            q("2x6x7x4", "0.004", storage="i16"),
        ),
        q("2x6x7x4", "0.004", storage="i16"),
    ),
    "dynamic-update-slice-at-a-computed-position": (
        (q("2x5x8", zero=9), q("2x3x8", zero=9), "tensor<3xi32>"),
        call(
            "dynamic_update_slice",
            [("%x", q("2x5x8", zero=9)), ("%z", q("2x3x8", zero=9)), ("%s", "tensor<3xi32>")],
            q("2x5x8", zero=9),
        ),
        q("2x5x8", zero=9),
    ),
    **{
        f"gather-{number}-{storage}-of-{table}-axis-{axis}": (
            (*((q(table, storage=storage),) if computed else ()), f"tensor<{places}x{number}>"),
            ("" if computed else f"%t = circle.const {codes(size)} : {q(table, storage=storage)}\n")
            + call(
                "gather",
                [
                    ("%x" if computed else "%t", q(table, storage=storage)),
                    ("%z" if computed else "%x", f"tensor<{places}x{number}>"),
                ],
                q(result, storage=storage),
                f"axis = {axis}, batch_dims = {batch}",
            ),
            q(result, storage=storage),
        )
        for number, storage, table, places, axis, batch, result, computed, size in (
            ("i32", "i8", "20x24", "2x5", 0, 0, "2x5x24", False, 480),
            ("i64", "i16", "40x24", "7", 0, 0, "7x24", False, 1920),
            ("i64", "u8", "300x128", "3", 0, 0, "3x128", False, 38400),
            ("i32", "u8", "2x6x5", "4", 1, 0, "2x4x5", True, 0),
            ("i32", "i8", "2x3x6x5", "2x4", 2, 1, "2x3x4x5", True, 0),
            ("i64", "i8", "2x9", "11", -1, 0, "2x11", True, 0),
        )
    },
    "dynamic-update-slice": (
        (q("2x3x8"), q("1x2x8")),
        "%s = circle.const [1, 1, 0] : tensor<3xi32>\n"
        + call("dynamic_update_slice", [("%x", q("2x3x8")), ("%z", q("1x2x8")), ("%s", "tensor<3xi32>")], q("2x3x8")),
        q("2x3x8"),
    ),
    "add": ((X, q("2x6x7x4", "0.02", 9)), call("add", [("%x", X), ("%z", q("2x6x7x4", "0.02", 9))], X), X),
    "sub-broadcast": ((X, q("6x1x4", "0.02")), call("sub", [("%x", X), ("%z", q("6x1x4", "0.02"))], X), X),
    "squared-difference": (
        (X, q("7x1", "0.02", 9)),
        call("squared_difference", [("%x", X), ("%z", q("7x1", "0.02", 9))], q("2x6x7x4", "0.5", -128)),
        q("2x6x7x4", "0.5", -128),
    ),
    "squared-difference-int16": (
        (q("2x3x8", "0.01", storage="i16"), q("2x3x8", "0.01", storage="i16")),
        call(
            "squared_difference",
            [("%x", q("2x3x8", "0.01", storage="i16")), ("%z", q("2x3x8", "0.01", storage="i16"))],
            q("2x3x8", "10.0", storage="i16"),
        ),
        q("2x3x8", "10.0", storage="i16"),
    ),
    "mul": ((X, X), call("mul", [("%x", X), ("%z", X)], X, "activation = relu_n1_to_1"), X),
    "add-channels": (
        (X,),
        f"%c = circle.const {codes(4)} : {q('4')}\n" + call("add", [("%c", q("4")), ("%x", X)], X),
        X,
    ),
    "sub-from-scalar": (
        (X,),
        f"%c = circle.const {codes(1)} : {q('1x1')}\n" + call("sub", [("%c", q("1x1")), ("%x", X)], X),
        X,
    ),
    "sub-from-scalar-int16": (
        (q("2x3x8", "0.001", storage="i16"),),
        '%c = circle.const #circle.blob<"0x0010"> : tensor<!quant.uniform<i16:f32, 0.001>>\n'
        + call(
            "sub",
            [("%c", "tensor<!quant.uniform<i16:f32, 0.001>>"), ("%x", q("2x3x8", "0.001", storage="i16"))],
            q("2x3x8", "0.002", storage="i16"),
        ),
        q("2x3x8", "0.002", storage="i16"),
    ),
    "mul-of-scalar-by-constants": (
        ("tensor<!quant.uniform<i8:f32, 0.05>>",),
        f"%c = circle.const {codes(8)} : {q('8')}\n"
        + call("mul", [("%x", "tensor<!quant.uniform<i8:f32, 0.05>>"), ("%c", q("8"))], q("8")),
        q("8"),
    ),
    "mul-channels": (
        (X,),
        f"%c = circle.const {codes(4)} : {q('1x1x1x4', '0.03', 8)}\n"
        + call("mul", [("%c", q("1x1x1x4", "0.03", 8)), ("%x", X)], X, "activation = relu"),
        X,
    ),
    "mul-channels-uint8": (
        (U,),
        f"%c = circle.const {codes(4)} : {q('4', '0.03', 88, 'u8')}\n"
        + call("mul", [("%x", U), ("%c", q("4", "0.03", 88, "u8"))], U),
        U,
    ),
    "average-pool": (
        (X,),
        call("average_pool_2d", [("%x", X)], q("2x3x4x4", zero=-3), "padding = same, stride = [2, 2], filter = [3, 3]"),
        q("2x3x4x4", zero=-3),
    ),
    "max-pool-uint8": (
        (U,),
        call(
            "max_pool_2d",
            [("%x", U)],
            q("2x5x3x4", zero=130, storage="u8"),
            "padding = valid, stride = [1, 2], filter = [2, 3], activation = relu",
        ),
        q("2x5x3x4", zero=130, storage="u8"),
    ),
    **{
        f"mean-{axes}": (
            (MEAN_X,),
            f"%a = circle.const {axes} : tensor<{len(axes)}xi32>\n"
            + call("mean", [("%x", MEAN_X), ("%a", f"tensor<{len(axes)}xi32>")], q(result, "0.03", 2)),
            q(result, "0.03", 2),
        )
        for axes, result in (([1, 2], "2x3"), ([-1], "2x6x7"), ([2, 3], "2x6"), ([0], "6x7x3"), ([2], "2x6x3"))
        + (([0, 2], "6x3"), ([0, 1, 2], "3"), ([1, 3], "2x7"))
    },
    "softmax": (
        (L,),
        call("softmax", [("%x", L)], q("2x3x8", "0.00390625", -128), "beta = 1.5"),
        q("2x3x8", "0.00390625", -128),
    ),
    "rms-norm": (
        (L,),
        "%g = circle.const [1.0, -0.5, 2.0, 1.5, 0.25, 0.0, 1.0, 3.0] : tensor<8xf32>\n"
        + call("rms_norm", [("%x", L), ("%g", "tensor<8xf32>")], q("2x3x8", "0.03", -7), "epsilon = 0.00001"),
        q("2x3x8", "0.03", -7),
    ),
    **{
        f"{name}-{shape}-{axis}-{number}": (
            (q(shape, zero=zero, storage=storage),),
            f"%a = circle.const [{axis}] : tensor<1xi32>\n"
            + call(
                name,
                [("%x", q(shape, zero=zero, storage=storage)), ("%a", "tensor<1xi32>")],
                f"tensor<{result}x{number}>",
            ),
            f"tensor<{result}x{number}>",
        )
        for name, axis, number, shape, storage, zero, result in (
            ("arg_max", -1, "i32", "2x6x7x4", "i8", 3, "2x6x7"),
            ("arg_max", 3, "i64", "2x6x7x4", "u8", 3, "2x6x7"),
            ("arg_max", 1, "i64", "9x12", "i8", 3, "9"),
            ("arg_min", 1, "i32", "2x6x7x4", "i8", 3, "2x7x4"),
            ("arg_min", 0, "i64", "5x7", "i16", 0, "7"),
            ("arg_min", 1, "i32", "5x7", "u8", 0, "5"),
            ("arg_max", 1, "i64", "4200x3", "i8", 3, "4200"),
        )
    },
    "quantize": ((U,), call("quantize", [("%x", U)], q("2x6x7x4", "0.04", 1)), q("2x6x7x4", "0.04", 1)),
    **{
        name: ((L,), call(name, [("%x", L)], q("2x3x8", "0.07", -9)), q("2x3x8", "0.07", -9))
        for name in ("relu", "relu6", "relu_n1_to_1")
    },
    "leaky_relu": (
        (L,),
        call("leaky_relu", [("%x", L)], q("2x3x8", "0.07", -9), "alpha = 0.3"),
        q("2x3x8", "0.07", -9),
    ),
    "logistic": ((L,), call("logistic", [("%x", L)], q("2x3x8", "0.00390625", -128)), q("2x3x8", "0.00390625", -128)),
    "tanh": ((L,), call("tanh", [("%x", L)], q("2x3x8", "0.0078125")), q("2x3x8", "0.0078125")),
    "maximum": ((L, L), call("maximum", [("%x", L), ("%z", L)], L), L),
    "minimum-broadcast": ((L, q("3x1", zero=5)), call("minimum", [("%x", L), ("%z", q("3x1", zero=5))], L), L),
    "maximum-of-scalar": (
        (L,),
        f"%c = circle.const [20] : {q('1', zero=5)}\n" + call("maximum", [("%x", L), ("%c", q("1", zero=5))], L),
        L,
    ),
    "select-rows": (
        (L, L),
        "%m = circle.const [true, false] : tensor<2xi1>\n"
        + call("select", [("%m", "tensor<2xi1>"), ("%x", L), ("%z", L)], L),
        L,
    ),
    "select-v2-mask": (
        (L,),
        f"{MASK}\n%c = circle.const [-128] : {q('1', zero=5)}\n"
        + call("select_v2", [("%m", "tensor<8xi1>"), ("%x", L), ("%c", q("1", zero=5))], L),
        L,
    ),
    "select-v2-broadcast": (
        (q("3x1", zero=5),),
        f"{MASK}\n%c = circle.const [20] : {q('1', zero=5)}\n"
        + call("select_v2", [("%m", "tensor<8xi1>"), ("%c", q("1", zero=5)), ("%x", q("3x1", zero=5))], ROWS),
        ROWS,
    ),
    **{
        name: ((FINE, FINER), call(name, [("%x", FINE), ("%z", FINER)], T), T)
        for name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
    },
    "less-int16": ((W16, W16), call("less", [("%x", W16), ("%z", W16)], T), T),
    "less-numbers": (
        ("tensor<2x3x8xi32>",),
        "%k = circle.const [-3, 32766, 5, 0, -32766, 7, 100, 12] : tensor<8xi32>\n"
        + call("less", [("%k", "tensor<8xi32>"), ("%x", "tensor<2x3x8xi32>")], T),
        T,
    ),
    "logical_and": ((T, truths("8")), call("logical_and", [("%x", T), ("%z", truths("8"))], T), T),
    "logical_or": ((T, truths("8")), call("logical_or", [("%x", T), ("%z", truths("8"))], T), T),
    "logical_not": ((T,), call("logical_not", [("%x", T)], T), T),
    "truths-moved": (
        (T, truths("2x3x1")),
        "%o = circle.const [2, 1, 0] : tensor<3xi32>\n"
        + f"%t = circle.concatenation(%x, %z) {{axis = 2}} : ({T}, {truths('2x3x1')}) -> {truths('2x3x9')}\n"
        + call("transpose", [("%t", truths("2x3x9")), ("%o", "tensor<3xi32>")], truths("9x3x2")),
        truths("9x3x2"),
    ),
    **{
        f"{name}-numbers": (
            (whole(storage), whole("i8")),
            cast("a", whole(storage), whole("i32"))
            + cast("b", whole("i8"), whole("i32"), "%z")
            + call(name, [("%a", whole("i32")), ("%b", whole("i32"))], whole("i32")),
            whole("i32"),
        )
        for name, storage in (("add", "ui8"), ("sub", "i8"), ("mul", "i8"), ("maximum", "i16"), ("minimum", "i16"))
    },
    **{
        f"{name}-{divisor}": (
            (whole("i16"),),
            cast("a", whole("i16"), whole("i32"))
            + f"%k = circle.const [{divisor}] : tensor<1xi32>\n"
            + call(name, [("%a", whole("i32")), ("%k", "tensor<1xi32>")], whole("i32")),
            whole("i32"),
        )
        for name, divisor in (("floor_div", 1), ("floor_div", 64), ("floor_mod", 7), ("floor_mod", 23_000))
    },
    **{
        f"cast-{kind}-{target}": (
            (whole(source),),
            cast("y", whole(source), whole(target)),
            whole(target),
        )
        for kind, source, target in (("int8", "i8", "i16"), ("truths", "i1", "i32"), ("uint8", "ui8", "i32"))
    },
    "select-numbers": (
        (whole("i1"), whole("i8")),
        "%k = circle.const [-1000] : tensor<1xi32>\n"
        + cast("a", whole("i8"), whole("i32"), "%z")
        + call("select_v2", [("%x", whole("i1")), ("%a", whole("i32")), ("%k", "tensor<1xi32>")], whole("i32")),
        whole("i32"),
    ),
    "gather-numbers": (
        ("tensor<2x3xi32>",),
        "%t = circle.const [7, -40000, 5, 1, 2000000, -3, 0, 8] : tensor<4x2xi32>\n"
        + call("gather", [("%t", "tensor<4x2xi32>"), ("%x", "tensor<2x3xi32>")], "tensor<2x3x2xi32>", "axis = 0"),
        "tensor<2x3x2xi32>",
    ),
    "moved-numbers": (
        (whole("i64"), "tensor<2x3x1xi64>"),
        "%o = circle.const [2, 1, 0] : tensor<3xi32>\n"
        f"%t = circle.concatenation(%x, %z) {{axis = 2}} : ({whole('i64')}, tensor<2x3x1xi64>) -> tensor<2x3x9xi64>\n"
        + call("transpose", [("%t", "tensor<2x3x9xi64>"), ("%o", "tensor<3xi32>")], "tensor<9x3x2xi64>"),
        "tensor<9x3x2xi64>",
    ),
    "truths-as-codes": (
        (T,),
        f"%f = circle.cast(%x) {{in_data_type = bool, out_data_type = float32}} : ({T}) -> tensor<2x3x8xf32>\n"
        + call("quantize", [("%f", "tensor<2x3x8xf32>")], W16),
        W16,
    ),
    "select-computed-rows": (
        (truths("2"), L),
        f"%c = circle.const {codes(48)} : {L}\n" + call("select", [("%x", truths("2")), ("%z", L), ("%c", L)], L),
        L,
    ),
    "select-v2-computed-int16": (
        (truths("3x1"), W16),
        f"%c = circle.const {codes(16)} : {q('8', storage='i16')}\n"
        + call("select_v2", [("%x", truths("3x1")), ("%c", q("8", storage="i16")), ("%z", W16)], W16),
        W16,
    ),
    **{
        f"select-v2-{names[1]}-by-truths": (
            (T, L),
            f"%c = circle.const [-7] : {q('1', zero=5)}\n"
            + call(
                "select_v2", [("%x", T), *((name, {"%c": q("1", zero=5), "%z": L}[name]) for name in names.split())], L
            ),
            L,
        )
        for names in ("%c %z", "%z %c")
    },
    "bilinear": (
        (X,),
        "%o = circle.const [11, 5] : tensor<2xi32>\n"
        + call("resize_bilinear", [("%x", X), ("%o", "tensor<2xi32>")], q("2x11x5x4", zero=-3), HALF_PIXELS),
        q("2x11x5x4", zero=-3),
    ),
    "bilinear-uint8": (
        (U,),
        "%o = circle.const [11, 25] : tensor<2xi32>\n"
        + call(
            "resize_bilinear",
            [("%x", U), ("%o", "tensor<2xi32>")],
            q("2x11x25x4", zero=130, storage="u8"),
            "align_corners = true",
        ),
        q("2x11x25x4", zero=130, storage="u8"),
    ),
    "nearest": (
        (X,),
        "%o = circle.const [4, 20] : tensor<2xi32>\n"
        + call("resize_nearest_neighbor", [("%x", X), ("%o", "tensor<2xi32>")], q("2x4x20x4", zero=-3), HALF_PIXELS),
        q("2x4x20x4", zero=-3),
    ),
    "prelu-by-channels": (
        (L,),
        f"%c = circle.const {codes(24)} : {q('3x8', '0.02', 7)}\n"
        + call("prelu", [("%x", L), ("%c", q("3x8", "0.02", 7))], q("2x3x8", "0.07", -9)),
        q("2x3x8", "0.07", -9),
    ),
    "prelu-of-positive-slopes": (
        (L,),
        f"%c = circle.const [-9, -8, 0, 3, 50, 90, 127, 100] : {q('8', '0.02', -9)}\n"
        + call("prelu", [("%x", L), ("%c", q("8", "0.02", -9))], q("2x3x8", "0.03", -20)),
        q("2x3x8", "0.03", -20),
    ),
    "prelu-of-computed-slopes": (
        (q("2x6x7x4", "0.05", 130, "u8"), q("7x4", "0.03", 20, "u8")),
        call(
            "prelu",
            [("%x", q("2x6x7x4", "0.05", 130, "u8")), ("%z", q("7x4", "0.03", 20, "u8"))],
            q("2x6x7x4", "0.4", 60, "u8"),
        ),
        q("2x6x7x4", "0.4", 60, "u8"),
    ),
    "prelu": (
        (L,),
        f"%c = circle.const [-40] : {q('1', '0.02')}\n" + call("prelu", [("%x", L), ("%c", q("1", "0.02"))], L),
        L,
    ),
    **{
        name: ((L,), call(name, [("%x", L)], q("2x3x8", scale, zero)), q("2x3x8", scale, zero))
        for name, scale, zero in (
            ("abs", "0.05", -128),
            ("elu", "0.05", 0),
            ("hard_swish", "0.05", 3),
            ("exp", "2.0", -128),
            ("gelu", "0.05", 3),
            ("sqrt", "0.02", -20),  # and the next one: of codes below zero too
            ("rsqrt", "0.05", -20),
        )
    },
    **{
        f"{name}-int16-{kind}": (
            (q("2x30x8", "0.001", storage="i16"),),
            call(name, [("%x", q("2x30x8", "0.001", storage="i16"))], q("2x30x8", scale, storage="i16")),
            q("2x30x8", scale, storage="i16"),
        )
        for name, kind, scale in (
            ("rsqrt", "one-table", "0.000008"),
            ("rsqrt", "two-tables", "0.0001"),
            ("rsqrt", "five-tables", "0.1"),
            ("sqrt", "cut-off", "0.00012"),
            ("log", "of-zero", "0.0002"),
            ("gelu", "cut-off", "0.00076"),
            ("elu", "cut-off", "0.0006"),
            ("logistic", "other-scale", "0.00005"),
        )
    },
    "pad": (
        (X,),
        "%p = circle.const [0, 0, 1, 2, 3, 0, 0, 0] : tensor<4x2xi32>\n"
        + call("pad", [("%x", X), ("%p", "tensor<4x2xi32>")], q("2x9x10x4", zero=-3)),
        q("2x9x10x4", zero=-3),
    ),
    "pad-and-convolve": (
        (X,),
        "%p = circle.const [0, 0, 1, 1, 1, 1, 0, 0] : tensor<4x2xi32>\n"
        + call("pad", [("%x", X), ("%p", "tensor<4x2xi32>")], q("2x8x9x4", zero=-3)).replace("%y", "%v")
        + "\n"
        + conv(q("2x8x9x4", zero=-3), W, q("2x4x5x5"), "padding = same, stride = [2, 2]", bias=5, size=180).replace(
            "%x", "%v"
        ),
        q("2x4x5x5"),
    ),
    "views": (
        (LAST,),
        "%s = circle.const [6, 4] : tensor<2xi32>\n%a = circle.const [0] : tensor<1xi32>\n"
        "%p = circle.const [1, 2, 0] : tensor<3xi32>\n"
        f"%1 = circle.reshape(%x, %s) : ({LAST}, tensor<2xi32>) -> {q('6x4', zero=5)}\n"
        f"%2 = circle.expand_dims(%1, %a) : ({q('6x4', zero=5)}, tensor<1xi32>) -> {q('1x6x4', zero=5)}\n"
        f"%3 = circle.transpose(%2, %p) : ({q('1x6x4', zero=5)}, tensor<3xi32>) -> {q('6x4x1', zero=5)}\n"
        f"%4 = circle.squeeze(%3) : ({q('6x4x1', zero=5)}) -> {q('6x4', zero=5)}\n"
        + call("tanh", [("%4", q("6x4", zero=5))], q("6x4", "0.0078125")),
        q("6x4", "0.0078125"),
    ),
}


def module_of(name: str) -> ModuleOp:
    """The verified module of a case."""
    arguments, body, result = CASES[name]
    given = ", ".join(f"%{letter}: {type}" for letter, type in zip("xzs", arguments, strict=False))
    text = f"func.func @main({given}) -> {result} {{\n{body}\nfunc.return %y : {result}\n}}"
    module = parse_module(make_context(), text)
    module.verify()
    return module


def _range_of(argument: SSAValue) -> tuple[int, int]:
    """The values that an argument may have: any of its type, but numbers of rows that there are."""
    for use in argument.uses:
        op = use.operation
        if isinstance(op, CircleOp) and op.SPEC.name == "GATHER" and use.index == 1:
            return 0, info_of(op.operands[0]).static_shape[int(op.option("axis"))] - 1
    return DTYPES[info_of(argument).dtype].range


def inputs_of(module: ModuleOp) -> list[NDArray[Any]]:
    """Random codes, extreme ones among them; half of 16-bit ones near zero, where functions bend most."""
    random = np.random.default_rng(3)
    arrays = []
    for argument in main_function(module).args:
        info = info_of(argument)
        low, high = _range_of(argument)
        array = random.integers(low, high + 1, info.static_shape).astype(info.info.numpy)
        if info.dtype == "int16":
            array.flat[::2] = random.integers(-300, 301, -(-array.size // 2))
        array.flat[:2] = (low, high)[: array.size]
        arrays.append(array)
    return arrays
