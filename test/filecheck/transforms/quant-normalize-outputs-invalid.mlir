// RUN: not odc-opt %s --quant-normalize-outputs='ranges="%S/Inputs/output-ranges-three.npz"' 2>&1 | filecheck %s --check-prefix THREE
// RUN: not odc-opt %s --quant-normalize-outputs='ranges="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("y")
  func.return %0 : tensor<1x2xf32>
}
// THREE: error: the output 'y' has 2 columns, the recorded ranges are for 3 (pass quant-normalize-outputs); record them with this model
// FILE: error: {{.*}}/no/such/file.npz
