// RUN: odc-opt %s --split-input-file -p npu-swap-axes | filecheck %s

// Taps, strides and padding change places; weights [O, kh, kw, I] get the other order of taps.
npu.program @convolution(%x: tensor<1x5x1x2xui8>) -> tensor<1x3x1x1xui8> {
  %y = npu.conv %x kernel [2, 3] stride [2, 1] pads [1, 1, 0, 1] weights <"0x0102030405060708090a0b0c"> i8 zeros(0, 0, 0) clamp(0, 255) bias <1> multiplier <1073741824> exponent <0> : tensor<1x5x1x2xui8> -> tensor<1x3x1x1xui8>
  odc.yield %y : tensor<1x3x1x1xui8>
}
// CHECK: npu.reshape %{{.*}} : tensor<1x5x1x2xui8> -> tensor<1x1x5x2xui8>
// CHECK-NEXT: npu.conv %{{.*}} kernel [3, 2] stride [1, 2] pads [1, 1, 1, 0] weights <"0x010207080304090a05060b0c">
// CHECK-SAME: tensor<1x1x5x2xui8> -> tensor<1x1x3x1xui8>
// CHECK-NEXT: npu.reshape %{{.*}} : tensor<1x1x3x1xui8> -> tensor<1x3x1x1xui8>

// -----

// Depthwise weights are [kh, kw, O].
npu.program @depthwise(%x: tensor<1x4x1x2xui8>) -> tensor<1x2x1x2xui8> {
  %y = npu.conv depthwise %x kernel [3, 1] weights <"0x010203040506"> i8 zeros(0, 0, 0) clamp(0, 255) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x1x2xui8> -> tensor<1x2x1x2xui8>
  odc.yield %y : tensor<1x2x1x2xui8>
}
// CHECK: npu.conv depthwise %{{.*}} kernel [1, 3] weights <"0x010203040506">
// CHECK-SAME: tensor<1x1x4x2xui8> -> tensor<1x1x2x2xui8>

// -----

npu.program @pooling(%x: tensor<1x4x1x2xui8>) -> tensor<1x2x1x2xui8> {
  %y = npu.pool max %x kernel [2, 1] stride [2, 1] clamp(0, 255) : tensor<1x4x1x2xui8> -> tensor<1x2x1x2xui8>
  odc.yield %y : tensor<1x2x1x2xui8>
}
// CHECK: npu.pool max %{{.*}} kernel [1, 2] stride [1, 2] clamp(0, 255) : tensor<1x1x4x2xui8> -> tensor<1x1x2x2xui8>

// -----

// Left alone: single pixels, and images that are wider before or after.
npu.program @others(%x: tensor<1x1x1x2xui8>, %z: tensor<1x4x2x2xui8>) -> (tensor<1x1x1x2xui8>, tensor<1x3x1x2xui8>) {
  %y = npu.pool max %x kernel [1, 1] clamp(0, 255) : tensor<1x1x1x2xui8> -> tensor<1x1x1x2xui8>
  %w = npu.pool max %z kernel [2, 2] clamp(0, 255) : tensor<1x4x2x2xui8> -> tensor<1x3x1x2xui8>
  odc.yield %y, %w : tensor<1x1x1x2xui8>, tensor<1x3x1x2xui8>
}
// CHECK-LABEL: @others
// CHECK-NOT: npu.reshape
