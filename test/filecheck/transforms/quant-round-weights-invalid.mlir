// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-shape.npz"' 2>&1 | filecheck %s --check-prefix SHAPE
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-range.npz"' 2>&1 | filecheck %s --check-prefix RANGE
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/corrections-real.npz"' 2>&1 | filecheck %s --check-prefix REAL
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/codes.npz" scales="%S/Inputs/scales.npz"' 2>&1 | filecheck %s --check-prefix SCALES
// RUN: not odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections.npz"' 2>&1 | filecheck %s --check-prefix BIAS

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("dense")
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// SHAPE: error: codes of the shape [2] for weights [2, 2]
// RANGE: error: codes from -7 to 128; int8 has -128 to 127
// REAL: error: the weights are int8, the codes float64; both must be integers
// BIAS: error: the operator has no constant biases
// SCALES: error: the operator computes with the scales of its weights, which cannot change alone
