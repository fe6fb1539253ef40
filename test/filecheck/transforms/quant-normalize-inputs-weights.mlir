// RUN: odc-opt %s --split-input-file --quant-normalize-inputs='sizes=weights' | filecheck %s

// The weights of the columns tell their sizes: all have weights of one size afterwards.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.125] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[F:.*]] = circle.const [4.0, 0.125] : tensor<2xf32>
// CHECK: %[[N:.*]] = circle.mul(%{{[^,]*}}, %[[F]]) {{.*}}quant.precision = "float"
// CHECK: %[[W:.*]] = circle.const [1.0, 1.0] : tensor<1x2xf32>
// CHECK: circle.fully_connected(%[[N]], %[[W]])

// -----

// A column without weights says nothing, and others that differ by less may be of one size.
func.func @main(%x: tensor<1x3xf32> loc("x")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.5, 0.0] : tensor<1x3xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul
