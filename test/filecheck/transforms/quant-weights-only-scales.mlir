// RUN: odc-opt %s --split-input-file --quant-weights-only | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-weights-only='dtype=int4' | filecheck %s --check-prefix RANGE
// RUN: odc-opt %s --split-input-file --quant-weights-only='dtype=int4 scales=fitted' | filecheck %s --check-prefix FITTED

// Weights that are multiples of a quarter keep every one of them: the scale is the grid's, not a 127th of the range.
func.func @main(%x: tensor<1x9xf32>) -> tensor<1x1xf32> {
  %w = circle.const [0.25, -0.5, 0.75, -1.0, 1.25, -1.5, 1.75, -2.0, 25.0] : tensor<1x9xf32> loc("w")
  %0 = circle.fully_connected(%x, %w) : (tensor<1x9xf32>, tensor<1x9xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK: circle.const [1, -2, 3, -4, 5, -6, 7, -8, 100] : tensor<1x9x!quant.uniform<i8:f32, 0.25>> loc("w")

// -----

// With four bits, clipping the one large weight by less than a step leaves the others nearer to their codes.
func.func @main(%x: tensor<1x9xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.6, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6, 7.001] : tensor<1x9xf32> loc("w")
  %0 = circle.fully_connected(%x, %w) : (tensor<1x9xf32>, tensor<1x9xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// RANGE: i4:f32, 1.0001428
// FITTED: i4:f32, 0.86012
