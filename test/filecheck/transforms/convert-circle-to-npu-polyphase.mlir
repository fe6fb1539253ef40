// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu' | filecheck %s

// Every second pixel of each axis comes from two taps, the others from one. One channel of four
// components is four channels of one convolution; a move is that of DEPTH_TO_SPACE.
func.func @transposed(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> {
  %o = circle.const [1, 4, 4, 1] : tensor<4xi32>
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8, 9] : tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %0 = circle.transpose_conv(%o, %w, %x, %n) {padding = same, stride_h = 2, stride_w = 2} : (tensor<4xi32>, tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, none) -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @transposed(
// CHECK: npu.program @segment_0
// CHECK: npu.conv %{{.*}} kernel [2, 2] pads [1, 1, 0, 0] weights <"0x09070301000800020000060400000005"> i8 zeros(3, 0, 0)
// CHECK-NEXT: npu.move %{{.*}} copies [array<i32: 0, 0, 0, 2, 8, 8, 2, 2, 4, 2, 4, 2, 2, 1, 1>] :

// -----

// With five channels, the array would multiply more zeros than it saves passes: four convolutions and a move.
func.func @transposed_channels(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x4x5x!quant.uniform<i8:f32, 0.5>> {
  %o = circle.const [1, 4, 4, 5] : tensor<4xi32>
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45] : tensor<5x3x3x1x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %0 = circle.transpose_conv(%o, %w, %x, %n) {padding = same, stride_h = 2, stride_w = 2} : (tensor<4xi32>, tensor<5x3x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, none) -> tensor<1x4x4x5x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x4x4x5x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @transposed_channels(
// CHECK: npu.program @segment_0
// CHECK: npu.conv %{{.*}} kernel [2, 2] pads [1, 1, 0, 0]
// CHECK-NEXT: npu.conv %{{.*}} kernel [2, 1] pads [1, 0, 0, 0]
// CHECK-NEXT: npu.conv %{{.*}} kernel [1, 2] pads [0, 1, 0, 0]
// CHECK-NEXT: npu.conv %{{.*}} kernel [1, 1] weights <"0x050e172029"> i8
// CHECK-NEXT: npu.move %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} copies [array<i32: 0, 0, 0, 1, 20, 80, 2, 10, 40, 2, 5, 10, 5, 1, 1>, array<i32: 1, 0, 5, {{.*}}>, array<i32: 2, 0, 20, {{.*}}>, array<i32: 3, 0, 25, {{.*}}>]

// -----

// Two groups of two channels: each its channels, its weights, its part of the result.
func.func @grouped(%x: tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [1, 2, 3, 4] : tensor<2x1x1x2x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %0 = circle.conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1]} : (tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x1x2x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @grouped(
// CHECK: npu.program @segment_0
// CHECK: npu.move %{{.*}} copies [array<i32: 0, 0, 0, 1, 4, 2, 2, 1, 1>]
// CHECK-NEXT: npu.conv {{.*}} weights <"0x0102"> i8
// CHECK-NEXT: npu.move %{{.*}} copies [array<i32: 0, 2, 0, 1, 4, 2, 2, 1, 1>]
// CHECK-NEXT: npu.conv {{.*}} weights <"0x0304"> i8
// CHECK-NEXT: npu.move %{{.*}}, %{{.*}} copies [array<i32: 0, 0, 0, 1, 1, 2, 1, 1, 1>, array<i32: 1, 0, 1, 1, 1, 2, 1, 1, 1>]
