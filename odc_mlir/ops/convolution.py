"""Convolutions of images and volumes, and fully connected layers."""

from __future__ import annotations

from odc_mlir.ops.quantization import product
from odc_mlir.ops.spec import Operand, OpSpec

_X = Operand("input")
_FILTER = Operand("filter")
_BIAS = Operand("bias", optional=True)
_RESULT = (Operand("output"),)
_INFER = "odc_mlir.ops.infer.convolution"
_KERNELS = "odc_mlir.runtime.kernels.convolution"
_MACS = "odc_mlir.ops.macs"

SPECS = (
    OpSpec(
        "CONV_2D",
        (_X, _FILTER, _BIAS),
        _RESULT,
        "Conv2DOptions",
        f"{_INFER}:conv_2d",
        f"{_KERNELS}:conv_2d",
        f"{_INFER}:verify_conv_2d",
        max_version=8,
        quant=product(axis=0),
        summary="2-D convolution of NHWC images with filters [O, kh, kw, I], in C / I groups",
        macs=f"{_MACS}:conv_2d",
    ),
    OpSpec(
        "DEPTHWISE_CONV_2D",
        (_X, _FILTER, _BIAS),
        _RESULT,
        "DepthwiseConv2DOptions",
        f"{_INFER}:depthwise_conv_2d",
        f"{_KERNELS}:depthwise_conv_2d",
        f"{_INFER}:verify_depthwise_conv_2d",
        max_version=7,
        quant=product(axis=3),
        summary="2-D convolution of each channel with its own filters [1, kh, kw, C*M]",
        macs=f"{_MACS}:depthwise_conv_2d",
    ),
    OpSpec(
        "TRANSPOSE_CONV",
        (Operand("output_shape", dtypes=("int32",)), _FILTER, _X, _BIAS),
        _RESULT,
        "TransposeConvOptions",
        f"{_INFER}:transpose_conv",
        f"{_KERNELS}:transpose_conv",
        f"{_INFER}:verify_transpose_conv",
        max_version=5,
        quant=product(axis=0, input=2, bias=3),
        summary="transposed 2-D convolution: each pixel adds its filter taps to the result",
        macs=f"{_MACS}:transpose_conv",
    ),
    OpSpec(
        "CONV_3D",
        (Operand("input"), Operand("filter"), Operand("bias", optional=True)),
        (Operand("output"),),
        "Conv3DOptions",
        "odc_mlir.ops.infer.volume:conv_3d",
        "odc_mlir.runtime.kernels.volume:conv_3d",
        "odc_mlir.ops.infer.volume:verify_conv_3d",
        quant=product(axis=4),
        summary="convolution of NDHWC volumes with filters [kd, kh, kw, I, O]",
        macs=f"{_MACS}:conv_3d",
    ),
    OpSpec(
        "CONV_3D_TRANSPOSE",
        (
            Operand("output_shape", dtypes=("int32",)),
            Operand("filter"),
            Operand("input"),
            Operand("bias", optional=True),
        ),
        (Operand("output"),),
        "Conv3DOptions",
        "odc_mlir.ops.infer.volume:conv_3d_transpose",
        "odc_mlir.runtime.kernels.volume:conv_3d_transpose",
        "odc_mlir.ops.infer.volume:verify_conv_3d_transpose",
        quant=product(axis=3, input=2, bias=3),
        summary="transposed convolution of volumes: each element adds its filter taps [kd, kh, kw, O, I] to the result",
        macs=f"{_MACS}:conv_3d_transpose",
    ),
    OpSpec(
        "FULLY_CONNECTED",
        (_X, Operand("weights"), _BIAS),
        (*_RESULT, Operand("workspace", optional=True)),
        "FullyConnectedOptions",
        f"{_INFER}:fully_connected",
        "odc_mlir.runtime.kernels.fully_connected:fully_connected",
        f"{_INFER}:verify_fully_connected",
        max_version=14,
        quant=product(axis=0),
        summary="rows of the input times weights [O, I], plus bias",
        macs=f"{_MACS}:fully_connected",
    ),
)
