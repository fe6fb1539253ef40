// RUN: not odc-opt %s --quant-normalize-inputs='moments="%S/Inputs/input-moments-three.npz"' 2>&1 | filecheck %s --check-prefix THREE
// RUN: not odc-opt %s --quant-normalize-inputs='moments="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// THREE: error: the input 'x' has 2 channels, the recorded moments are for 3 (pass quant-normalize-inputs); record them with this model
// FILE: error: cannot read channel moments: No such file or directory (in /no/such/file.npz
