// RUN: odc-opt %s --split-input-file --quant-round-weights='codes="%S/Inputs/codes.npz"' | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-round-weights='scales="%S/Inputs/scales.npz"' | filecheck %s --check-prefix NOTHING
// RUN: odc-opt %s --split-input-file --quant-round-weights | filecheck %s --check-prefix NOTHING

// Other codes of the same type.
func.func @direct(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("dense")
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @direct(
// CHECK: %[[W:.*]] = circle.const [13, -7, 0, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {{.*}}>>
// CHECK: circle.fully_connected(%{{.*}}, %[[W]])
// NOTHING-LABEL: func.func @direct(
// NOTHING: circle.const [12, -7, 1, 127]

// -----

// Weights behind a DEQUANTIZE.
func.func @behind(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
  %r = circle.dequantize(%w) : (tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>) -> tensor<2x2xf32>
  %0 = circle.fully_connected(%x, %r) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("dense")
  func.return %0 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @behind(
// CHECK: %[[W:.*]] = circle.const [13, -7, 0, 127]
// CHECK: %[[R:.*]] = circle.dequantize(%[[W]])
// CHECK: circle.fully_connected(%{{.*}}, %[[R]])
