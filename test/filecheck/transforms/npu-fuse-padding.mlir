// RUN: odc-opt %s --split-input-file --npu-fuse-padding | filecheck %s

// The convolution pads by both amounts and reads what was padded.
func.func @into_convolution(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.pad %x pads [0, 1, 2, 0] zero 7 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x6x5x1x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.conv %0 kernel [2, 2] stride [2, 2] pads [0, 0, 0, 1] weights <"0x01020304"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x6x5x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @into_convolution(%x: 
// CHECK-NEXT: npu.conv %x kernel [2, 2] stride [2, 2] pads [0, 1, 2, 1]

// -----

// A pool leaves padding out of its windows, so what it reads has to be padded for real.
func.func @before_pool(%x: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>> {
  %0 = npu.pad %x pads [1, 1, 0, 0] zero 7 : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.pool max %0 kernel [2, 2] clamp (-128, 127) : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
  func.return %1 : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
}
// CHECK-LABEL: func.func @before_pool(
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %{{.*}} kernel [1, 1] pads [1, 1, 0, 0] weights <"0x0101"> i8 zeros(7, 0, 7) clamp(-128, 127) bias <0, 0> multiplier <1073741824, 1073741824> exponent <1, 1>
// CHECK-NEXT: npu.pool max %[[P]]
