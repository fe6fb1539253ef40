// RUN: odc-opt %s --circle-infer-shapes | filecheck %s

// Unknown results get the shape that operands and constants imply, and the function's type follows.
// CHECK-LABEL: func.func @constants
// CHECK-SAME: -> tensor<4x6xf32> {
func.func @constants(%x: tensor<2x3x4xf32>) -> tensor<*xf32> {
  %shape = circle.const [4, -1] : tensor<2xi32>
  // CHECK: circle.reshape(%x, %shape) : (tensor<2x3x4xf32>, tensor<2xi32>) -> tensor<4x6xf32>
  %0 = circle.reshape(%x, %shape) : (tensor<2x3x4xf32>, tensor<2xi32>) -> tensor<*xf32>
  // CHECK: circle.relu({{.*}}) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("y")
  %1 = circle.relu(%0) : (tensor<*xf32>) -> tensor<*xf32> loc("y")
  func.return %1 : tensor<*xf32>
}

// What depends on an unknown dimension stays unknown, and what was declared is kept.
// CHECK-LABEL: func.func @unknown
func.func @unknown(%x: tensor<?x8xf32>) {
  // CHECK: circle.relu(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %0 = circle.relu(%x) : (tensor<?x8xf32>) -> tensor<*xf32>
  // CHECK: circle.relu(%x) : (tensor<?x8xf32>) -> tensor<5x8xf32>
  %1 = circle.relu(%x) : (tensor<?x8xf32>) -> tensor<5x8xf32>
  func.return
}

// Quantisation stays with the new shape.
// CHECK-LABEL: func.func @quantised
func.func @quantised(%x: tensor<1x8x!quant.uniform<i8:f32, 0.5>>) {
  // CHECK: -> tensor<1x8x!quant.uniform<i8:f32, 0.25:3>>
  %0 = circle.quantize(%x) : (tensor<1x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x?x!quant.uniform<i8:f32, 0.25:3>>
  func.return
}

// A shape that operators compute counts as a constant. They stay, and a declared shape that is wrong goes.
// CHECK-LABEL: func.func @computed
func.func @computed(%x: tensor<2x3x4xf32>) {
  // CHECK: circle.shape(%x) {out_type = int32} : (tensor<2x3x4xf32>) -> tensor<3xi32>
  %0 = circle.shape(%x) {out_type = int32} : (tensor<2x3x4xf32>) -> tensor<3xi32>
  %1 = circle.const [2, 1, 1] : tensor<3xi32>
  %2 = circle.mul(%0, %1) : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  // CHECK: circle.broadcast_to{{.*}} -> tensor<4x3x4xf32>
  %y = circle.const [1.0] : tensor<1xf32>
  %3 = circle.broadcast_to(%y, %2) : (tensor<1xf32>, tensor<3xi32>) -> tensor<2x3x4xf32>
  func.return
}
