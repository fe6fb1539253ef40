// RUN: odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-shared.npz"' | filecheck %s
// RUN: odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-apart.npz"' | filecheck %s --check-prefix APART

// The same codes for all that read a constant: it stays one.
func.func @direct(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("first")
  %1 = circle.fully_connected(%0, %w) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("second")
  func.return %1 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @direct(
// CHECK-NEXT: %[[W:.*]] = circle.const [13, -7, 0, 127]
// CHECK-NEXT: %[[F:.*]] = circle.fully_connected(%{{.*}}, %[[W]])
// CHECK-NEXT: circle.fully_connected(%[[F]], %[[W]])
// APART-LABEL: func.func @direct(
// APART-DAG: circle.const [13, -7, 0, 127]
// APART-DAG: circle.const [13, -7, 0, 126]
