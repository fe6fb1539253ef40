// RUN: odc-opt %s --split-input-file --npu-elide-reshapes | filecheck %s

// There and back again: nothing is left.
func.func @round_trip(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.reshape %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<1x6x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<1x6x!quant.uniform<i8:f32, 0.5>> -> tensor<2x3x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<2x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @round_trip(%x: 
// CHECK-NEXT: func.return %x

// -----

// A view of a view reads the source; the one between stays where something else reads it.
func.func @chain(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> (tensor<6x!quant.uniform<i8:f32, 0.5>>, tensor<3x2x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reshape %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<6x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<6x!quant.uniform<i8:f32, 0.5>> -> tensor<3x2x!quant.uniform<i8:f32, 0.5>>
  func.return %0, %1 : tensor<6x!quant.uniform<i8:f32, 0.5>>, tensor<3x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @chain(%x: 
// CHECK-NEXT: %[[A:.*]] = npu.reshape %x : {{.*}} -> tensor<6x
// CHECK-NEXT: %[[B:.*]] = npu.reshape %x : {{.*}} -> tensor<3x2x
// CHECK-NEXT: func.return %[[A]], %[[B]]

// -----

// A change of quantisation is no round trip, even if the shape is the same again.
func.func @other_scale(%x: tensor<6x!quant.uniform<i8:f32, 0.5>>) -> tensor<6x!quant.uniform<i8:f32, 0.25>> {
  %0 = npu.reshape %x : tensor<6x!quant.uniform<i8:f32, 0.5>> -> tensor<6x!quant.uniform<i8:f32, 0.25>>
  func.return %0 : tensor<6x!quant.uniform<i8:f32, 0.25>>
}
// CHECK-LABEL: func.func @other_scale(
// CHECK-NEXT: npu.reshape

// -----

// Two heads share each matrix, which is read where it lies, and multiplies their rows together; matrices that follow one another are repeated by a move.
npu.program @shared(%a: tensor<4x1x2x8x!quant.uniform<i8:f32, 0.5>>, %b: tensor<2x8x3x!quant.uniform<i8:f32, 0.5>>) -> (tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %b copies [array<i32: 0, 0, 0, 2, 24, 48, 2, 0, 24, 24, 1, 1>] : tensor<2x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2x2x8x3x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<2x2x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>>
  %2 = npu.matmul %a, %1 scale <1073741824, 0> clamp(-128, 127) : tensor<4x1x2x8x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>
  %3 = npu.move %b copies [array<i32: 0, 0, 0, 2, 0, 48, 48, 1, 1>] : tensor<2x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>>
  %4 = npu.matmul %a, %3 scale <1073741824, 0> clamp(-128, 127) : tensor<4x1x2x8x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>
  odc.yield %2, %4 : tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: npu.program @shared(
// CHECK-SAME: %[[A:.*]]: tensor<4x1x2x8x{{.*}}, %[[B:.*]]: tensor<2x8x3x
// CHECK-DAG: %[[V:.*]] = npu.reshape %[[B]] {{.*}} -> tensor<2x1x8x3x
// CHECK-DAG: %[[L:.*]] = npu.reshape %[[A]] {{.*}} -> tensor<2x1x4x8x
// CHECK: %[[Y:.*]] = npu.matmul %[[L]], %[[V]] {{.*}} -> tensor<2x1x4x3x
// CHECK-NEXT: npu.reshape %[[Y]] {{.*}} -> tensor<4x1x2x3x
// CHECK: %[[M:.*]] = npu.move %[[B]]
// CHECK: npu.matmul %[[A]], %[[M]]

// -----

// Matrices that are repeated and then turned, as keys are, are turned once each.
npu.program @turned(%a: tensor<4x1x2x8x!quant.uniform<i8:f32, 0.5>>, %b: tensor<2x3x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.move %b copies [array<i32: 0, 0, 0, 2, 24, 48, 2, 0, 24, 24, 1, 1>] : tensor<2x3x8x!quant.uniform<i8:f32, 0.5>> -> tensor<2x2x3x8x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<2x2x3x8x!quant.uniform<i8:f32, 0.5>> -> tensor<4x3x8x!quant.uniform<i8:f32, 0.5>>
  %2 = npu.move %1 copies [array<i32: 0, 0, 0, 4, 24, 24, 8, 1, 3, 3, 8, 1>] : tensor<4x3x8x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>>
  %3 = npu.matmul %a, %2 scale <1073741824, 0> clamp(-128, 127) : tensor<4x1x2x8x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x8x3x!quant.uniform<i8:f32, 0.5>> -> tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>
  odc.yield %3 : tensor<4x1x2x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: npu.program @turned(
// CHECK-SAME: %[[A:.*]]: tensor<4x1x2x8x{{.*}}, %[[B:.*]]: tensor<2x3x8x
// CHECK: %[[T:.*]] = npu.move %[[B]] copies [array<i32: 0, 0, 0, 2, 24, 24, 8, 1, 3, 3, 8, 1>] {{.*}} -> tensor<2x1x8x3x
// CHECK: %[[Y:.*]] = npu.matmul %{{.*}}, %[[T]] {{.*}} -> tensor<2x1x4x3x
// CHECK-NEXT: npu.reshape %[[Y]] {{.*}} -> tensor<4x1x2x3x

// -----

// All images share one matrix already. A move arranges its elements.
func.func @one_matrix(%a: tensor<2x1x2x3x!quant.uniform<i8:f32, 0.5>>, %b: tensor<1x1x5x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x1x2x5x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.move %b copies [array<i32: 0, 0, 0, 3, 1, 5, 5, 3, 1>] : tensor<1x1x5x3x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x3x5x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.matmul %a, %0 scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x2x3x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x3x5x!quant.uniform<i8:f32, 0.5>> -> tensor<2x1x2x5x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<2x1x2x5x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @one_matrix
// CHECK: %[[T:.*]] = npu.move
// CHECK-NEXT: npu.matmul %{{.*}}, %[[T]] {{.*}} -> tensor<2x1x2x5x
