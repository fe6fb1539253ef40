// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu' | filecheck %s

// Rows of both operands alternate in the result.
func.func @concatenation(%x: tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>, %y: tensor<1x2x2x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x2x12x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.concatenation(%x, %y) {axis = 3} : (tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x2x12x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x2x2x12x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @concatenation(
// CHECK: npu.move %{{.*}}, %{{.*}} copies [array<i32: 0, 0, 0, 4, 4, 12, 4, 1, 1>, array<i32: 1, 0, 4, 4, 8, 12, 8, 1, 1>] : tensor<1x2x2x4x

// -----

// Channels are padded with the zero point.
func.func @pad(%x: tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x6x!quant.uniform<i8:f32, 0.5:-3>> {
  %p = circle.const [0, 0, 0, 0, 0, 0, 1, 1] : tensor<4x2xi32>
  %0 = circle.pad(%x, %p) : (tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5:-3>>, tensor<4x2xi32>) -> tensor<1x2x2x6x!quant.uniform<i8:f32, 0.5:-3>>
  func.return %0 : tensor<1x2x2x6x!quant.uniform<i8:f32, 0.5:-3>>
}
// CHECK-LABEL: func.func @pad(
// CHECK: npu.move %{{.*}} copies [array<i32: 0, 0, 1, 4, 4, 6, 4, 1, 1>] fill -3 : tensor<1x2x2x4x

// -----

// Each result is a move of its own; the constant axis is gone.
func.func @unpack(%x: tensor<4x2x!quant.uniform<i8:f32, 0.5>>) -> (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0, %1 = circle.unpack(%x) {num = 2, axis = 1} : (tensor<4x2x!quant.uniform<i8:f32, 0.5>>) -> (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>)
  func.return %0, %1 : tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @unpack(
// CHECK: npu.move %{{.*}} copies [array<i32: 0, 0, 0, 4, 2, 1>] : tensor<4x2x
// CHECK: npu.move %{{.*}} copies [array<i32: 0, 1, 0, 4, 2, 1>] : tensor<4x2x

// -----

// uint8 codes of another scale are brought to the result's before they are joined.
func.func @joined(%x: tensor<2x!quant.uniform<u8:f32, 0.5:3>>, %z: tensor<3x!quant.uniform<u8:f32, 0.25>>) -> tensor<5x!quant.uniform<u8:f32, 0.5:3>> {
  %0 = circle.concatenation(%x, %z) {axis = 0} : (tensor<2x!quant.uniform<u8:f32, 0.5:3>>, tensor<3x!quant.uniform<u8:f32, 0.25>>) -> tensor<5x!quant.uniform<u8:f32, 0.5:3>>
  func.return %0 : tensor<5x!quant.uniform<u8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @joined(
// CHECK: npu.program @segment_0(%[[X:.*]]: tensor<2x
// CHECK: %[[Z:.*]] = npu.lut %{{.*}} table
// CHECK-NEXT: npu.move %[[X]], %[[Z]] copies
