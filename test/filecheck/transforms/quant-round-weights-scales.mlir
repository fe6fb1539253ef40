// RUN: odc-opt %s --quant-round-weights='codes="%S/Inputs/codes.npz" scales="%S/Inputs/scales.npz"' | filecheck %s
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes.npz" scales="%S/Inputs/scales-one.npz"' 2>&1 | filecheck %s --check-prefix ONE
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes.npz" scales="%S/Inputs/scales-other.npz"' 2>&1 | filecheck %s --check-prefix OTHER

// Other codes and scales of weights that are made real again.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
  %r = circle.dequantize(%w) : (tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>) -> tensor<2x2xf32>
  %0 = circle.fully_connected(%x, %r) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("dense")
  func.return %0 : tensor<1x2xf32>
}
// CHECK: %[[W:.*]] = circle.const [13, -7, 0, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.125, 0.75}>>
// CHECK: circle.dequantize(%[[W]]) : (tensor<2x2x!quant.uniform<i8:f32:0, {0.125, 0.75}>>)
// ONE: error: 1 scales in place of 2; as many positive ones are needed
// OTHER: error: scales without codes
