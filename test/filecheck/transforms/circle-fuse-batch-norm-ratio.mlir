// RUN: odc-opt %s --split-input-file --circle-fuse-batch-norm='most_ratio=4.0' | filecheck %s
// RUN: odc-opt %s --split-input-file --circle-fuse-batch-norm | filecheck %s --check-prefix ANY

// Factors that differ much among the inputs of one output stay before it.
func.func @unlike(%x: tensor<1x2xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.0, 2.0] : tensor<1x2xf32>
  %m = circle.const [3.0, 1.0] : tensor<2xf32>
  %c = circle.const [0.5, -8.0] : tensor<2xf32>
  %0 = circle.sub(%x, %m) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.mul(%0, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %2 = circle.fully_connected(%1, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %2 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @unlike(
// CHECK: circle.sub
// CHECK: %[[S:.*]] = circle.mul
// CHECK: circle.fully_connected(%[[S]], %
// ANY-LABEL: func.func @unlike(
// ANY-NOT: circle.mul
// ANY: circle.const [0.5, -16.0]

// -----

// Alike, and 0, which leaves nothing: they go into the weights.
func.func @alike(%x: tensor<1x3xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.0, 2.0, 4.0] : tensor<1x3xf32>
  %c = circle.const [0.5, -2.0, 0.0] : tensor<3xf32>
  %0 = circle.mul(%x, %c) : (tensor<1x3xf32>, tensor<3xf32>) -> tensor<1x3xf32>
  %1 = circle.fully_connected(%0, %w) : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x1xf32>
  func.return %1 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @alike(
// CHECK-NOT: circle.mul
// CHECK: circle.const [0.5, -4.0, 0.0]

// -----

// Each output of a depthwise layer has one input: no scale is shared.
func.func @depthwise(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %w = circle.const [1.0, 2.0] : tensor<1x1x1x2xf32>
  %c = circle.const [0.5, 100.0] : tensor<2xf32>
  %0 = circle.mul(%x, %c) : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %1 = circle.depthwise_conv_2d(%0, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %1 : tensor<1x2x2x2xf32>
}
// CHECK-LABEL: func.func @depthwise(
// CHECK-NOT: circle.mul
// CHECK: circle.const [0.5, 200.0]
