// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu' | filecheck %s

// Rows as they lie.
func.func @largest(%x: tensor<2x3x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3xi64> {
  %a = circle.const [-1] : tensor<1xi32>
  %0 = circle.arg_max(%x, %a) : (tensor<2x3x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<2x3xi64>
  func.return %0 : tensor<2x3xi64>
}
// CHECK-LABEL: func.func @largest(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.argmax %{{.*}} : tensor<2x3x4x!quant.uniform<i8:f32, 0.5:3>> -> tensor<2x3xi64>
// CHECK-NEXT: odc.yield %[[V0]]

// -----

// The smallest code along an inner axis: codes in the opposite order, transposed.
func.func @smallest(%x: tensor<2x3x4x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<2x4xi32> {
  %a = circle.const [1] : tensor<1xi32>
  %0 = circle.arg_min(%x, %a) : (tensor<2x3x4x!quant.uniform<u8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<2x4xi32>
  func.return %0 : tensor<2x4xi32>
}
// CHECK-LABEL: func.func @smallest(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} in_zero 3 out_zero 252 scale <-1073741824, 1> clamp(0, 255)
// CHECK-NEXT: %[[V1:.*]] = npu.move %[[V0]] copies [array<i32: 0, 0, 0, 2, 12, 12, 3, 4, 1, 4, 1, 3>]
// CHECK-NEXT: npu.argmax %[[V1]] : tensor<2x4x3x!quant.uniform<u8:f32, 0.5:252>> -> tensor<2x4xi32>

// -----

// Codes of 16 bits are turned round by a negative multiplier: -1 - code.
func.func @smallest_int16(%x: tensor<3x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<3xi32> {
  %a = circle.const [1] : tensor<1xi32>
  %0 = circle.arg_min(%x, %a) : (tensor<3x4x!quant.uniform<i16:f32, 0.5>>, tensor<1xi32>) -> tensor<3xi32>
  func.return %0 : tensor<3xi32>
}
// CHECK-LABEL: func.func @smallest_int16(
// CHECK: npu.scale %{{.*}} out_zero -1 scale <-1073741824, 1> clamp(-32768, 32767)

// -----

// Slices at a computed position.
func.func @updated(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<2x1x4x!quant.uniform<i8:f32, 0.5:3>>, %s: tensor<3xi32>) -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5:3>> {
  %0 = circle.dynamic_update_slice(%x, %z, %s) : (tensor<2x5x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x1x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<3xi32>) -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<2x5x4x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @updated(
// CHECK: npu.program @segment_0
// CHECK: npu.update %{{.*}} at %{{.*}}[1] to %{{.*}} : tensor<2x5x4x

// -----

// Rows of two tables by computed numbers: one list of numbers for both.
func.func @rows(%t: tensor<2x9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<3x5xi32>) -> tensor<2x3x5x4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.gather(%t, %i) {axis = 1} : (tensor<2x9x4x!quant.uniform<i8:f32, 0.5>>, tensor<3x5xi32>) -> tensor<2x3x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<2x3x5x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @rows(
// CHECK: npu.program @segment_0
// CHECK: %[[T:.*]] = npu.reshape %{{.*}} -> tensor<1x2x9x4x
// CHECK-NEXT: %[[I:.*]] = npu.reshape %{{.*}} -> tensor<1x15xi32>
// CHECK-NEXT: %[[V0:.*]] = npu.gather %[[T]][%[[I]]] : {{.*}} -> tensor<1x2x15x4x
// CHECK-NEXT: npu.reshape %[[V0]] : {{.*}} -> tensor<2x3x5x4x

// -----

// Numbers that are known are strided copies.
func.func @known_rows(%t: tensor<9x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x4x!quant.uniform<i8:f32, 0.5>> {
  %i = circle.const [7, 1] : tensor<2xi32>
  %0 = circle.gather(%t, %i) : (tensor<9x4x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<2x4x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<2x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @known_rows(
// CHECK: npu.program @segment_0
// CHECK: npu.move
