// RUN: not odc-opt %s --quant-correct-biases='corrections="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE
// RUN: not odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections-other.npz"' 2>&1 | filecheck %s --check-prefix OTHER
// RUN: not odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections-three.npz"' 2>&1 | filecheck %s --check-prefix THREE
// RUN: not odc-opt %s --quant-correct-biases='corrections="%S/Inputs/corrections-real.npz"' 2>&1 | filecheck %s --check-prefix REAL
// RUN: not odc-opt %s --quant-round-weights='codes="%S/Inputs/corrections.npz"' --quant-correct-biases='corrections="%S/Inputs/corrections.npz"' 2>&1 | filecheck %s --check-prefix SHAPE

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
  %b = circle.const [100, 200] : tensor<2x!quant.uniform<i32:f32, 0.125>>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x2x!quant.uniform<i8:f32, 0.25>>, tensor<2x!quant.uniform<i32:f32, 0.125>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("dense")
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// FILE: error: cannot read corrections: No such file or directory (in /no/such/file.npz
// OTHER: error: no operator has a result of this name
// THREE: error: 3 corrections for a bias of 2 channels
// REAL: error: the bias is int32, the correction float64; both must be of one kind
// SHAPE: error: codes of the shape [2] for weights [2, 2]
