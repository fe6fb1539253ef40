// RUN: odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections.npz"' | filecheck %s
// RUN: odc-opt %s --quant-correct-biases | filecheck %s --check-prefix NOTHING
// RUN: odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections-large.npz"' | filecheck %s --check-prefix LIMIT

// The layer of that name gets a bias of its own; the other one keeps what both had.
func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>) {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
  %b = circle.const [100, 200] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("dense")
  %1 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("other")
  func.return %0, %1 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[B:.*]] = circle.const [100, 200]
// CHECK: %[[C:.*]] = circle.const [103, 198] : tensor<2x!quant.uniform<i32:f32:0, {{.*}}>>
// CHECK: circle.fully_connected(%{{.*}}, %{{.*}}, %[[C]])
// CHECK: circle.fully_connected(%{{.*}}, %{{.*}}, %[[B]])
// NOTHING: circle.const [100, 200]
// NOTHING-NOT: circle.const
// LIMIT: circle.const [2147483647, -2147483648]
