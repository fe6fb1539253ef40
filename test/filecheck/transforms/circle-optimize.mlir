// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_mul_with_conv,remove_unnecessary_mul limit=1' | filecheck %s

// The product goes into the weights; the sum stays, as its rewrite was not asked for.
func.func @named(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x2x1xf32> {
  %w = circle.const [1.0, 2.0] : tensor<1x1x1x2xf32>
  %b = circle.const [1.0] : tensor<1xf32>
  %factor = circle.const [3.0] : tensor<f32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %1 = circle.mul(%0, %factor) : (tensor<1x2x2x1xf32>, tensor<f32>) -> tensor<1x2x2x1xf32>
  %2 = circle.add(%1, %factor) : (tensor<1x2x2x1xf32>, tensor<f32>) -> tensor<1x2x2x1xf32>
  func.return %2 : tensor<1x2x2x1xf32>
}
// CHECK-LABEL: func.func @named(
// CHECK: %[[C:.*]] = circle.conv_2d
// CHECK-NOT: circle.mul
// CHECK: circle.add(%[[C]]

// -----

// One rewrite is allowed: the second product stays.
func.func @limit(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %one = circle.const [1.0] : tensor<f32>
  %0 = circle.mul(%x, %one) : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
  %1 = circle.mul(%0, %one) : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
  %2 = circle.relu(%1) : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %2 : tensor<1x2x2x2xf32>
}
// CHECK-LABEL: func.func @limit(
// CHECK: circle.mul
// CHECK-NOT: circle.mul
// CHECK: circle.relu
