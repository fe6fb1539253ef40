// RUN: odc-opt %s --split-input-file --quant-normalize-outputs='layers="%S/Inputs/layer-ranges.npz"' | filecheck %s

// Columns become outputs of their own, in their units; what is between stays float, not what else reads one of them.
func.func @main(%x: tensor<1x1xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %b = circle.const [0.2, 500.0] : tensor<2xf32>
  %axis = circle.const [1] : tensor<i32>
  %order = circle.const [1, 0] : tensor<2xi32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("p")
  %1, %2 = circle.split(%axis, %0) {num_splits = 2} : (tensor<i32>, tensor<1x2xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>)
  %3 = circle.transpose(%2, %order) : (tensor<1x1xf32>, tensor<2xi32>) -> tensor<1x1xf32>
  %4 = circle.abs(%2) : (tensor<1x1xf32>) -> tensor<1x1xf32>
  func.return %1, %3, %4 : tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[N:.*]] = circle.fully_connected
// CHECK: circle.const [0.1, 2000.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.mul(%[[N]]{{.*}}quant.precision = "float"
// CHECK: circle.const [0.2, 500.0] : tensor<2xf32>
// CHECK: %[[A:.*]] = circle.add(%[[M]]{{.*}}quant.precision = "float"
// CHECK: circle.split({{.*}}, %[[A]]){{.*}}quant.precision = "float"
// CHECK: circle.transpose({{.*}}quant.precision = "float"
// CHECK: circle.abs(%{{[a-z0-9_]+}}) : (

// -----

// Nothing of the layer is an output.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("p")
  %1 = circle.abs(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %1 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul
