// RUN: odc-opt %s --split-input-file --circle-fold-constants | filecheck %s
// RUN: odc-opt %s --split-input-file --circle-fold-constants='limit-bytes=8' | filecheck %s --check-prefix SMALL

// A chain that computes with shapes ends as one constant; SHAPE needs to know its operand's type only.
func.func @shapes(%x: tensor<1x8x4xf32>) -> tensor<1x32xf32> {
  %b = circle.const [1] : tensor<1xi32>
  %e = circle.const [3] : tensor<1xi32>
  %one = circle.const [1] : tensor<1xi32>
  %0 = circle.shape(%x) {out_type = int32} : (tensor<1x8x4xf32>) -> tensor<3xi32>
  %1 = circle.strided_slice(%0, %b, %e, %one) : (tensor<3xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %2 = circle.reshape(%x, %1) : (tensor<1x8x4xf32>, tensor<2xi32>) -> tensor<8x4xf32>
  %3 = circle.relu(%2) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %s = circle.const [1, 32] : tensor<2xi32>
  %4 = circle.reshape(%3, %s) : (tensor<8x4xf32>, tensor<2xi32>) -> tensor<1x32xf32>
  func.return %4 : tensor<1x32xf32>
}
// CHECK-LABEL: func.func @shapes(
// CHECK: %[[S:.*]] = circle.const [8, 4] : tensor<2xi32>
// CHECK-NEXT: circle.reshape(%{{.*}}, %[[S]])

// -----

func.func @zeros(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = circle.zeros_like(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = circle.maximum(%x, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %1 : tensor<2xf32>
}
// CHECK-LABEL: func.func @zeros(
// CHECK: %[[Z:.*]] = circle.const [0.0, 0.0] : tensor<2xf32>
// CHECK-NEXT: circle.maximum(%{{.*}}, %[[Z]])

// -----

// The shape of a value whose dimensions are not all known is computed at run time.
func.func @open_shape(%x: tensor<?x8xf32>) -> tensor<2xi32> {
  %0 = circle.shape(%x) {out_type = int32} : (tensor<?x8xf32>) -> tensor<2xi32>
  %1 = circle.add(%0, %0) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  func.return %1 : tensor<2xi32>
}
// CHECK-LABEL: func.func @open_shape(
// CHECK: circle.shape

// -----

// Weights stored as codes become numbers, within the limit.
func.func @dequantize(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = circle.const [2, -2, 4, 6] : tensor<4x!quant.uniform<i8:f32, 0.5:2>>
  %0 = circle.dequantize(%c) : (tensor<4x!quant.uniform<i8:f32, 0.5:2>>) -> tensor<4xf32>
  %1 = circle.add(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
// CHECK-LABEL: func.func @dequantize(
// CHECK: %[[C:.*]] = circle.const [0.0, -2.0, 1.0, 2.0] : tensor<4xf32>
// CHECK-NEXT: circle.add(%{{.*}}, %[[C]])
// SMALL-LABEL: func.func @dequantize(
// SMALL: circle.dequantize

// -----

// What the function returns stays the result of an operator.
func.func @returned() -> tensor<2xf32> {
  %c = circle.const [1.0, -2.0] : tensor<2xf32>
  %0 = circle.relu(%c) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
// CHECK-LABEL: func.func @returned(
// CHECK: circle.relu
