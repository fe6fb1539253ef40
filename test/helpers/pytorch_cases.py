"""Arguments of each overload that the importer converts: edge shapes, element types and options.

An entry is a tuple of arguments, with a dict of keywords at the end where there are any. Tensors in it are inputs.
"""

from __future__ import annotations

import math
from typing import Any

import torch

torch.manual_seed(0)


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return torch.rand(shape) * (high - low) + low


def whole(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def truth(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


def distinct(*shape: int) -> torch.Tensor:
    """Numbers without ties, so that indices are unique."""
    return torch.randperm(math.prod(shape)).reshape(shape).float() / 3 - 2


X, SCALAR, IMAGE = real(2, 3, 4), real(), real(2, 4, 6, 5)
POSITIVE = real(2, 5, low=0.1, high=4)
SPECIAL = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -1.5])
INDEX = torch.tensor([[0, 2], [1, 0]])

_ANY = [(X,), (SCALAR,), (real(0, 3),)]
_UNIT = [(real(2, 5, low=-0.95, high=0.95),)]
_TWO = [(X, real(4)), (SCALAR, X), (real(2, 1, 4), real(3, 1)), (X, whole(3, 4)), (whole(3), whole(2, 3))]
_NUMBER = [(X, 1.5), (X, 2), (whole(3, 4), 2), (whole(3), 0.5)]
_COMPARED = [*_TWO, (truth(3, 4), truth(4)), (whole(5, dtype=torch.int8), whole(5, dtype=torch.int8))]
_COMPARED_NUMBER = [*_NUMBER, (truth(4), True), (torch.tensor([1, 2, 3]), 2)]
_NONZERO = [(X, torch.tensor([1.5, -2.0, 0.5, 3.0])), (whole(3), torch.tensor([2, -2, 3])), (X, torch.tensor([3]))]
_BITS = [(whole(8, low=-(2**31), high=2**31 - 1), whole(8, low=-(2**31), high=2**31 - 1)), (truth(5), truth(5))]
_BITS_NUMBER = [(whole(8), 6), (truth(5), True), (whole(4, dtype=torch.int32), -3)]
_DIMS = [(X, [1]), (X, [0, 2], True), (X, [-1]), (X, [0, 1, 2])]
_ONE_DIM = [(X, 1), (X, -1, True)]
_LOGICAL = [(truth(2, 3), truth(3)), (X, whole(4)), (whole(3), truth(3))]
_POOLS = [
    (IMAGE, [2, 2]),
    (IMAGE, [3, 3], [2, 2], [1, 1]),
    (IMAGE, [3, 3], [1, 1], [1, 1]),
    (IMAGE, [3, 2], [2, 2], [1, 0], {"ceil_mode": True}),
    (real(4, 6, 5), [2, 3]),
]

CASES: dict[str, list[tuple[Any, ...]]] = {
    **{f"{name}.default": _ANY for name in ("cos", "exp", "relu6", "sin", "tanh", "sigmoid", "silu", "gelu", "mish")},
    **{
        f"{name}.default": _ANY for name in ("hardswish", "hardsigmoid", "expm1", "exp2", "sinh", "cosh", "atan", "tan")
    },
    **{f"{name}.default": [*_ANY, (whole(3, 4, dtype=torch.int32),)] for name in ("abs", "neg", "relu", "sign")},
    **{f"{name}.default": [*_ANY, (real(9, low=-9, high=9),)] for name in ("ceil", "floor", "trunc")},
    "round.default": [(torch.tensor([0.5, 1.5, 2.5, -0.5, -1.4, 3.7]),)],
    **{f"{name}.default": [(POSITIVE,), (whole(4, low=1),)] for name in ("sqrt", "rsqrt", "log", "log2", "log10")},
    **{f"{name}.default": [(POSITIVE,), (whole(4, low=1),)] for name in ("log1p", "reciprocal")},
    **{f"{name}.default": _UNIT for name in ("asin", "acos", "atanh")},
    "acosh.default": [(real(9, low=1.1, high=9),)],
    "asinh.default": [(real(9, low=-9, high=9),)],
    "erf.default": [(real(50, low=-4, high=4),), (torch.zeros(2, 2),), (SCALAR,)],
    "log_sigmoid_forward.default": [(real(9, low=-30, high=30),)],
    **{f"{name}.Tensor": _TWO for name in ("mul", "rsub")},
    **{f"{name}.Scalar": _NUMBER for name in ("mul", "rsub")},
    **{f"{name}.Tensor": [*_TWO, (X, X, {"alpha": 2})] for name in ("add", "sub")},
    **{f"{name}.Scalar": [*_NUMBER, (X, 1.5, 2)] for name in ("add", "sub")},
    "div.Tensor": [*_NONZERO, (whole(4), torch.tensor(2.0))],
    "div.Scalar": _NUMBER,
    "div.Tensor_mode": [(*case, {"rounding_mode": mode}) for case in _NONZERO for mode in ("floor", "trunc", None)],
    "div.Scalar_mode": [(*case, {"rounding_mode": mode}) for case in _NUMBER for mode in ("floor", "trunc")],
    "floor_divide.default": _NONZERO,
    **{f"{name}.Tensor": _NONZERO for name in ("remainder", "fmod")},
    **{f"{name}.Scalar": [(X, 1.5), (whole(3, 4), 2), (whole(5), -3)] for name in ("remainder", "fmod")},
    "pow.Tensor_Tensor": [(POSITIVE, real(5)), (whole(3, low=1), torch.tensor([0, 1, 2]))],
    "pow.Tensor_Scalar": [(POSITIVE, e) for e in (0.5, -0.5, -1, 1, 2, 3, 2.5, 0)] + [(X, 2), (X, 3), (whole(4), 2)],
    "pow.Scalar": [(2, X), (1.5, SCALAR)],
    **{f"{name}.default": _TWO for name in ("maximum", "minimum")},
    "atan2.default": [(X, real(4)), (SCALAR, X)],
    **{f"{name}.Tensor": _COMPARED for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{name}.Scalar": _COMPARED_NUMBER for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"logical_{name}.default": _LOGICAL for name in ("and", "or", "xor")},
    "logical_not.default": [(truth(2, 3),), (X,), (whole(5),)],
    **{f"bitwise_{name}.Tensor": _BITS for name in ("and", "or", "xor")},
    **{f"bitwise_{name}.Scalar": _BITS_NUMBER for name in ("and", "or", "xor")},
    "bitwise_not.default": [(truth(4),), (whole(5),)],
    "clamp.default": [
        (X, -1, 1),
        (X, 0),
        (X, None, 0.5),
        (X, 0, 6),
        (whole(5), -2, 2),
        (X, -0.5, 1.5),
        (whole(5), 0.5),
    ],
    "clamp.Tensor": [(X, real(4, low=-1, high=0), real(4, low=0, high=1)), (X, SCALAR)],
    "hardtanh.default": [(X,), (X, 0, 6), (X, -0.5, 0.25), (X, 0, 1)],
    "where.self": [(truth(3, 1), X, real(4)), (truth(4), whole(4), X)],
    "where.ScalarSelf": [(truth(3, 4), 1.5, X)],
    "where.ScalarOther": [(truth(3, 4), X, -1)],
    "where.Scalar": [(truth(3), 1.5, 2.0)],
    **{f"{name}.default": [(SPECIAL,), (whole(3),)] for name in ("isnan", "isinf")},
    "softplus.default": [(real(9, low=-30, high=30),), (X, 2, 20), (X, 2, 1)],
    "elu.default": [(X,), (X, 0.7), (X, 1.6, 1.05, 1), (X, 1, 1, 0.5)],
    "prelu.default": [(X, real(3)), (X, real(1)), (IMAGE, real(4))],
    "_prelu_kernel.default": [(X, real(1, 3, 1))],
    "leaky_relu.default": [(X,), (X, 0.3)],
    "mean.default": [(X,), (SCALAR,)],
    "mean.dim": [*_DIMS, (X, None)],
    "sum.default": [(X,), (whole(3),), (truth(5),)],
    "sum.dim_IntList": [*_DIMS, (X, None), (truth(3, 4), [0]), (whole(3, 4), [1], True)],
    "prod.default": [(X,)],
    "prod.dim_int": _ONE_DIM,
    **{f"{name}.default": [*_DIMS, (X, []), (whole(3, 4), [1])] for name in ("amax", "amin")},
    **{f"{name}.default": [(X,), (whole(3, 4),)] for name in ("max", "min")},
    **{f"{name}.default": [(truth(2, 3),), (X,)] for name in ("any", "all")},
    **{f"{name}.dim": [(truth(2, 3), 1), (X, -1, True)] for name in ("any", "all")},
    **{f"{name}.dims": [(truth(2, 3, 4), [0, 2]), (X, None)] for name in ("any", "all")},
    "var.dim": [(X, [1]), (X, [0, 2], False, True)],
    "var.correction": [(X, [1], {"correction": 0}), (X, None, {"correction": 2}), (X, [0, 1], {"keepdim": True})],
    **{
        f"{name}.default": [(distinct(3, 5),), (distinct(3, 5), 1), (distinct(3, 5), 0, True)]
        for name in ("argmax", "argmin")
    },
    **{f"{name}.dim": [(distinct(3, 5), 1), (distinct(3, 5), 0, True), (SCALAR, 0)] for name in ("max", "min")},
    "topk.default": [(distinct(3, 7), 2), (distinct(7, 3), 4, 0, False), (distinct(2, 6, 3), 3, 1)],
    "sort.default": [(distinct(3, 7),), (distinct(7, 3), 0, True), (SCALAR,)],
    "sort.stable": [(torch.tensor([2.0, 1.0, 2.0, 1.0]), {"stable": True})],
    "cumsum.default": [(X, 1), (X, -1), (whole(3, 4), 0), (truth(5), 0), (SCALAR, 0)],
    # Layers
    "convolution.default": [
        (real(2, 3, 7, 6), real(5, 3, 3, 3), real(5), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (real(2, 3, 8, 8), real(5, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
        (real(1, 4, 7, 7), real(6, 2, 3, 2), real(6), [1, 2], [0, 1], [2, 1], False, [0, 0], 2),
        (real(1, 4, 7, 7), real(8, 1, 3, 3), real(8), [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
        (real(2, 3, 9), real(4, 3, 3), real(4), [2], [1], [1], False, [0], 1),
        (real(2, 4, 9), real(4, 1, 3), None, [1], [2], [2], False, [0], 4),
        (real(1, 2, 5, 4, 6), real(4, 2, 3, 2, 3), real(4), [1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 1),
        (real(1, 4, 3, 4, 4), real(4, 2, 2, 2, 2), None, [1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 2),
        (real(2, 3, 5, 4), real(3, 5, 3, 3), real(5), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
        (real(2, 3, 5, 4), real(3, 5, 4, 4), real(5), [2, 2], [1, 1], [1, 1], True, [0, 0], 1),
        (real(1, 4, 5, 4), real(4, 3, 2, 3), None, [3, 2], [0, 1], [1, 2], True, [1, 0], 2),
        (real(2, 3, 6), real(3, 4, 3), real(4), [2], [0], [1], True, [1], 1),
        (real(1, 2, 3, 4, 3), real(2, 3, 2, 3, 2), real(3), [2, 1, 2], [0, 1, 0], [1, 1, 1], True, [0, 0, 0], 1),
    ],
    "max_pool2d_with_indices.default": [*_POOLS, (IMAGE, [2, 2], [1, 1], [1, 1], [2, 2])],
    "max_pool3d_with_indices.default": [
        (real(1, 2, 5, 4, 6), [2, 2, 3]),
        (real(1, 2, 5, 4, 6), [3, 3, 3], [2, 2, 2], [1, 1, 1]),
    ],
    "avg_pool2d.default": [
        *_POOLS,
        (IMAGE, [3, 3], [2, 2], [1, 1], False, False),
        (IMAGE, [2, 2], [], [0, 0], False, True, 3),
        (IMAGE, [3, 3], [2, 2], [1, 1], True, False),
        (IMAGE, [3, 3], [1, 1], [1, 1], False, False),
    ],
    "avg_pool3d.default": [(real(1, 2, 5, 4, 6), [2, 2, 3]), (real(1, 2, 5, 4, 6), [3, 3, 3], [2, 2, 2], [1, 1, 1])],
    "avg_pool1d.default": [(real(2, 3, 9), [3], [2], [1])],
    **{
        f"{name}.default": [(IMAGE, [1, 1]), (IMAGE, [3, 5]), (IMAGE, [4, 3])]
        for name in ("_adaptive_avg_pool2d", "adaptive_avg_pool2d")
    },
    **{
        f"{name}.default": [(real(1, 2, 4, 5, 6), [2, 3, 4])]
        for name in ("_adaptive_avg_pool3d", "adaptive_avg_pool3d")
    },
    "adaptive_avg_pool1d.default": [(real(2, 3, 9), [4]), (real(2, 3, 9), [1])],
    "adaptive_max_pool1d.default": [(real(2, 3, 9), [4])],
    "adaptive_max_pool2d.default": [(IMAGE, [1, 1]), (IMAGE, [4, 3]), (IMAGE, [3, 5])],
    "adaptive_max_pool3d.default": [(real(1, 2, 4, 5, 6), [2, 3, 4])],
    "linear.default": [(X, real(5, 4), real(5)), (real(4), real(5, 4)), (real(0, 4), real(5, 4))],
    "mm.default": [(real(3, 4), real(4, 5)), (whole(3, 4), whole(4, 2))],
    "bmm.default": [(real(2, 3, 4), real(2, 4, 5))],
    "matmul.default": [
        *[(real(2, 3, 4), real(4, 5)), (real(2, 1, 3, 4), real(5, 4, 2))],
        *[
            (real(2, 3, 4), real(4)),
            (real(3), real(2, 3, 4)),
            (real(4), real(4)),
            (real(2, 4), torch.nn.Buffer(real(4))),
        ],
    ],
    "addmm.default": [
        (real(5), real(3, 4), real(4, 5)),
        (real(3, 5), real(3, 4), real(4, 5), {"beta": 0.5, "alpha": 2}),
    ],
    "baddbmm.default": [
        (real(2, 3, 5), real(2, 3, 4), real(2, 4, 5)),
        (real(5), real(2, 3, 4), real(2, 4, 5), {"beta": 0}),
    ],
    "scaled_dot_product_attention.default": [
        (real(2, 2, 3, 4), real(2, 2, 5, 4), real(2, 2, 5, 4)),
        (real(1, 2, 4, 4), real(1, 2, 4, 4), real(1, 2, 4, 4), None, 0.0, True),
        (real(1, 2, 3, 4), real(1, 2, 3, 4), real(1, 2, 3, 4), real(3, 3)),
        (real(1, 2, 3, 4), real(1, 2, 3, 4), real(1, 2, 3, 4), torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1]]).bool()),
        (real(1, 4, 3, 4), real(1, 2, 3, 4), real(1, 2, 3, 4), None, 0.0, False, {"scale": 0.3, "enable_gqa": True}),
    ],
    "_native_batch_norm_legit_no_training.default": [
        (IMAGE, real(4), real(4), torch.nn.Buffer(real(4)), torch.nn.Buffer(real(4, low=0.5)), 0.1, 1e-5),
        (real(3, 4), None, None, torch.nn.Buffer(real(4)), torch.nn.Buffer(real(4, low=0.5)), 0.1, 1e-3),
    ],
    "native_layer_norm.default": [(X, [4], real(4), real(4), 1e-5), (X, [3, 4], None, None, 1e-3)],
    "native_group_norm.default": [
        (IMAGE, real(4), real(4), 2, 4, 30, 2, 1e-5),
        (IMAGE, real(4), real(4), 2, 4, 30, 4, 1e-5),
        (real(2, 4, 5), None, None, 2, 4, 5, 2, 1e-5),
    ],
    "instance_norm.default": [
        (IMAGE, real(4), real(4), None, None, True, 0.1, 1e-5, False),
        (real(2, 3, 9), None, None, None, None, True, 0.1, 1e-5, False),
    ],
    "rms_norm.default": [(X, [4], real(4), 1e-6), (X, [4]), (X, [3, 4], real(3, 4), 1e-5)],
    **{f"{name}.default": [(X, -1, False), (X, 1, False), (SCALAR, 0, False)] for name in ("_softmax", "_log_softmax")},
    "upsample_bilinear2d.vec": [
        (IMAGE, [7, 9], False, None),
        (IMAGE, [7, 9], True, None),
        (IMAGE, None, False, [2.0, 2.0]),
        (IMAGE, None, False, [1.3, 0.7]),
    ],
    "upsample_nearest2d.vec": [(IMAGE, [7, 9], None), (IMAGE, None, [2.0, 2.0]), (IMAGE, None, [1.3, 0.7])],
    "upsample_bicubic2d.vec": [(IMAGE, [7, 9], False, None), (IMAGE, [7, 9], True, None)],
    "upsample_linear1d.vec": [(real(2, 3, 5), [8], False, None), (real(2, 3, 5), None, True, [2.0])],
    "upsample_trilinear3d.vec": [(real(1, 2, 3, 4, 3), [5, 4, 6], False, None)],
    "upsample_nearest1d.vec": [(real(2, 3, 5), [8], None)],
    "upsample_nearest3d.vec": [(real(1, 2, 3, 4, 3), [5, 4, 6], None)],
    "_upsample_nearest_exact1d.vec": [(real(2, 3, 5), [8], None)],
    "_upsample_nearest_exact2d.vec": [(IMAGE, [7, 9], None)],
    "_upsample_nearest_exact3d.vec": [(real(1, 2, 3, 4, 3), [5, 4, 6], None)],
    **{
        f"_upsample_{mode}2d_aa.vec": [(IMAGE, [3, 4], False, None), (IMAGE, [9, 4], False, None)]
        for mode in ("bilinear", "bicubic")
    },
    # Shapes
    **{
        f"{name}.default": [(X,)]
        for name in ("alias", "clone", "detach", "lift_fresh_copy", "lift_fresh", "alias_copy")
    },
    **{f"{name}.default": [(X,)] for name in ("resolve_conj", "contiguous")},
    "dropout.default": [(X, 0.5, False)],
    "_to_copy.default": [(X, {"dtype": dtype}) for dtype in (torch.int64, torch.bool, torch.float64, torch.int8)]
    + [(truth(4), {"dtype": torch.float32})],
    "to.dtype": [(X, torch.int32), (whole(3), torch.float32)],
    "to.dtype_layout": [(X, {"dtype": torch.int32})],
    "type_as.default": [(X, whole(1))],
    "copy.default": [(X, real(4)), (X, whole(3, 1))],
    **{
        f"{name}.default": [(X, [6, 4]), (X, [-1, 2]), (SCALAR, [1, 1]), (real(1), [])]
        for name in ("view", "reshape", "_unsafe_view")
    },
    "unsqueeze.default": [(X, 0), (X, -1), (SCALAR, 0)],
    "squeeze.default": [(real(1, 3, 1),)],
    "squeeze.dim": [(real(1, 3, 1), 0), (real(1, 3, 1), 1)],
    "squeeze.dims": [(real(1, 3, 1), [0, -1])],
    "permute.default": [(X, [2, 0, 1]), (X, [0, -1, 1])],
    "transpose.int": [(X, 0, -1), (X, 1, 1)],
    "t.default": [(real(2, 3),), (real(3),)],
    "expand.default": [(real(3, 1), [2, 3, 4]), (real(3, 1), [-1, 5])],
    "cat.default": [([X, real(2, 1, 4)], 1), ([X, X], -1), ([whole(2), real(3)],), ([real(0), real(3)],)],
    "stack.default": [([real(3), real(3)],), ([X, X], -1)],
    "split_with_sizes.default": [(X, [1, 3], 2), (X, [2], 0)],
    "unbind.int": [(X,), (X, 1)],
    "slice.Tensor": [
        (X, 2, 1, 3),
        (X, 1, -2),
        (X, 2, 0, -1),
        (X, 2, 0, 9, 2),
        (X, 0, 1, 1),
        (X, 1, -9, 2),
        (X, 2, None, None, 3),
    ],
    "select.int": [(X, 1, 0), (X, -1, -1), (real(3), 0, 2)],
    "flip.default": [(X, [0]), (X, [0, -1]), (X, [])],
    "roll.default": [(X, [1], [2]), (X, [-1, 2], [0, 1]), (X, [5])],
    "repeat.default": [(real(3), [2, 2]), (X, [1, 2, 1])],
    "constant_pad_nd.default": [
        (X, [1, 2]),
        (X, [0, 1, 2, 0], 1.5),
        (X, [-1, 1, 0, -1]),
        (X, [1, 1], -math.inf),
        (whole(3), [1, 0], 7),
    ],
    "reflection_pad1d.default": [(real(2, 3, 5), [1, 2])],
    "reflection_pad2d.default": [(IMAGE, [1, 2, 2, 0])],
    "reflection_pad3d.default": [(real(1, 2, 3, 4, 3), [1, 2, 1, 0, 1, 1])],
    "replication_pad1d.default": [(real(2, 3, 5), [1, 2])],
    "replication_pad2d.default": [(IMAGE, [1, 2, 2, 0])],
    "replication_pad3d.default": [(real(1, 2, 3, 4, 3), [1, 2, 1, 0, 1, 1])],
    "full.default": [([2, 3], 1.5), ([], 2), ([2], True)],
    **{f"{name}.default": [([2, 3],), ([2], {"dtype": torch.int64})] for name in ("zeros", "ones")},
    **{f"{name}.default": [(X,), (whole(3),)] for name in ("zeros_like", "ones_like")},
    "full_like.default": [(X, 2), (whole(3), 4)],
    "fill.Scalar": [(X, 2)],
    "fill.Tensor": [(X, SCALAR)],
    "arange.start_step": [(0, 5), (1, 9, 2), (0, 1, 0.25), (5, 0, -1)],
    "scalar_tensor.default": [(1.5,), (2, {"dtype": torch.int64}), (-math.inf,)],
    "embedding.default": [(real(5, 3), whole(2, 4, low=0, high=5))],
    "index_select.default": [(X, 1, torch.tensor([2, 0, 0]))],
    "index.Tensor": [
        (X, [torch.tensor([1, 0, -1])]),
        (X, [None, INDEX]),
        (X, [torch.tensor([0, 1]), torch.tensor([2, -1])]),
        (X, [None, torch.tensor([0, 1]), torch.tensor([[2], [1]])]),
        (X, [torch.tensor([0, 1]), None, torch.tensor([2, 0])]),
        (X, [torch.tensor([[0], [1]]), torch.tensor([0, 2]), torch.tensor([3])]),
    ],
    "gather.default": [
        (X, 1, whole(2, 2, 4, low=0, high=3)),
        (X, -1, whole(1, 3, 2, low=0, high=4)),
        (SCALAR, 0, torch.tensor(0)),
    ],
    "index_put.default": [
        (X, [torch.tensor([1])], real(3, 4)),
        (X, [None, torch.tensor([0, 2])], real(2, 2, 4)),
        (X, [torch.tensor([0, 1]), torch.tensor([2, -1])], real(2, 4)),
        (X, [torch.tensor([0, 1]), torch.tensor([2, 1])], SCALAR),
        (X, [None, torch.tensor([0, 0]), torch.tensor([2, 2])], SCALAR),
        (X, [torch.tensor([0, 0])], real(2, 3, 4), True),
        (X, [torch.tensor([0, 1]), None, torch.tensor([2, 0])], real(2, 3)),
        (X, [truth(2, 3, 4)], SCALAR),
        (X, [truth(2)], torch.tensor(7.0)),
        (whole(5), [torch.tensor([3, 1])], whole(2)),
    ],
    "index_copy.default": [
        (X, 1, torch.tensor([2, 0, 2]), real(2, 3, 4)),
        (X, 0, torch.tensor([1]), real(1, 3, 4)),
        (real(80, 2), 0, torch.arange(79, 9, -1), real(70, 2)),
    ],
    "scatter.src": [
        (X, 1, torch.tensor([[[0, 2]], [[1, 0]]]), real(2, 1, 3)),
        (real(3, 5), 0, torch.tensor([[0, 1, 2, 0, 1]]), real(1, 5)),
    ],
    "scatter.value": [(X, 2, torch.tensor([[[0, 2], [1, 0]]]), 1.5), (whole(4), 0, torch.tensor([1]), 9)],
    "scatter_add.default": [
        (X, 1, torch.tensor([[[0, 2], [0, 1]]]), real(1, 2, 2)),
        (SCALAR, 0, torch.tensor(0), SCALAR),
    ],
    "scatter_reduce.two": [(real(5), 0, torch.tensor([0, 0, 3]), real(3), how) for how in ("sum", "mean")],
    "slice_scatter.default": [(X, real(2, 2, 4), 1, 1), (X, real(2, 3, 2), 2, 0, 9, 2), (X, real(1, 3, 4), 0, -1)],
    "select_scatter.default": [(X, real(2, 4), 1, 0), (X, real(3, 4), 0, -1)],
    "as_strided.default": [(real(12), [3, 2], [4, 1], 1), (X, [2, 2, 2], [12, 1, 4])],
    "diagonal.default": [(real(3, 4),), (X, 1, 1, 2), (X, -1, -1, 0)],
    "unfold.default": [(real(2, 7), 1, 3, 2), (real(7, 2), 0, 2, 1)],
    "col2im.default": [
        (real(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1]),
        (real(12, 12), [4, 6], [2, 2], [1, 2], [1, 0], [2, 1]),
    ],
    "nonzero.default": [(torch.tensor([[0.0, 1.0], [2.0, 0.0]]),)],
    "empty.memory_format": [([0, 3],)],
    "empty_strided.default": [([0, 3], [3, 1])],
    "empty_permuted.default": [([0, 3], [0, 1])],
    "empty_like.default": [(real(0, 3),)],
    "grid_sampler_2d.default": [(IMAGE, real(2, 3, 4, 2, low=-1, high=1), 0, 0, False)],
    # Operators that decompose into others.
    "_cdist_forward.default": [(real(3, 4), real(2, 4), p, None) for p in (1.0, 2.0, math.inf)],
    "_pdist_forward.default": [(real(4, 3),)],
    "_native_batch_norm_legit.no_stats": [(IMAGE, real(4), real(4), True, 0.1, 1e-5), (X, None, None, True, 0.1, 0.1)],
    "addmv.default": [(real(3), real(3, 4), real(4))],
    "bucketize.Tensor": [(X, torch.tensor([-1.0, 0.0, 1.0])), (X, torch.tensor([0.5]), {"right": True})],
    "dist.default": [(X, real(4))],
    "var_mean.correction": [(X, [1]), (X, None, {"correction": 0}), (X, [0, 2], {"keepdim": True})],
}
