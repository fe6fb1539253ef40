// RUN: odc-opt %s --split-input-file --quant-split-columns='sizes="%S/Inputs/column-sizes.npz"' | filecheck %s

// The first column is ten times as large: the others are read four times as large, by a quarter of the weights.
func.func @main(%x: tensor<1x2x3x1xf32> loc("x")) -> tensor<1x2x3x1xf32> {
  %w = circle.const [2.0, 8.0] : tensor<1x1x2x1xf32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x3x1xf32>, tensor<1x1x2x1xf32>) -> tensor<1x2x3x1xf32>
  func.return %0 : tensor<1x2x3x1xf32>
}
// CHECK: %[[F:.*]] = circle.const [1.0, 0.0, 0.0, 4.0, 0.0, 4.0] : tensor<1x3x2xf32>
// CHECK: %[[S:.*]] = circle.mul(%{{[^,]*}}, %[[F]]) {{.*}}quant.precision = "float"{{.*}} -> tensor<1x2x3x2xf32>
// CHECK: %[[W:.*]] = circle.const [2.0, 0.5, 8.0, 2.0] : tensor<1x1x2x2xf32>
// CHECK: circle.conv_2d(%[[S]], %[[W]]

// -----

// Behind a view, which stays real as well.
func.func @main(%x: tensor<1x6xf32> loc("x")) -> tensor<1x2x3x1xf32> {
  %s = circle.const [1, 2, 3, 1] : tensor<4xi32>
  %v = circle.reshape(%x, %s) {new_shape = [1, 2, 3, 1]} : (tensor<1x6xf32>, tensor<4xi32>) -> tensor<1x2x3x1xf32>
  %w = circle.const [2.0, 8.0] : tensor<1x1x2x1xf32>
  %0 = circle.conv_2d(%v, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x3x1xf32>, tensor<1x1x2x1xf32>) -> tensor<1x2x3x1xf32>
  func.return %0 : tensor<1x2x3x1xf32>
}
// CHECK: circle.reshape({{.*}}quant.precision = "float"
// CHECK: circle.mul({{.*}} -> tensor<1x2x3x2xf32>

// -----

// Columns of about one size share a scale well.
func.func @main(%even: tensor<1x2x3x1xf32> loc("even")) -> tensor<1x2x3x1xf32> {
  %w = circle.const [2.0, 8.0] : tensor<1x1x2x1xf32>
  %0 = circle.conv_2d(%even, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x3x1xf32>, tensor<1x1x2x1xf32>) -> tensor<1x2x3x1xf32>
  func.return %0 : tensor<1x2x3x1xf32>
}
// CHECK-NOT: circle.mul

// -----

// Something else reads the input: it stays.
func.func @main(%x: tensor<1x2x3x1xf32> loc("x")) -> (tensor<1x2x3x1xf32>, tensor<1x2x3x1xf32>) {
  %w = circle.const [2.0, 8.0] : tensor<1x1x2x1xf32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x3x1xf32>, tensor<1x1x2x1xf32>) -> tensor<1x2x3x1xf32>
  %1 = circle.relu(%x) : (tensor<1x2x3x1xf32>) -> tensor<1x2x3x1xf32>
  func.return %0, %1 : tensor<1x2x3x1xf32>, tensor<1x2x3x1xf32>
}
// CHECK-NOT: circle.mul
