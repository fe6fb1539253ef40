// RUN: odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-shared.npz"' | filecheck %s
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-apart.npz"' 2>&1 | filecheck %s --check-prefix APART

// Behind one DEQUANTIZE for all.
func.func @behind(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
  %r = circle.dequantize(%w) : (tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x2xf32>
  %0 = circle.fully_connected(%x, %r) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("first")
  %1 = circle.fully_connected(%0, %r) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("second")
  func.return %1 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @behind(
// CHECK-NEXT: %[[W:.*]] = circle.const [13, -7, 0, 127]
// CHECK-NEXT: %[[R:.*]] = circle.dequantize(%[[W]])
// CHECK-NEXT: %[[F:.*]] = circle.fully_connected(%{{.*}}, %[[R]])
// CHECK-NEXT: circle.fully_connected(%[[F]], %[[R]])
// APART: error: operators that keep their weights share these weights
