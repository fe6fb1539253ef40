// RUN: not odc-opt %s --quant-split-columns='sizes="%S/Inputs/column-sizes.npz"' 2>&1 | filecheck %s --check-prefix OTHER
// RUN: not odc-opt %s --quant-split-columns='sizes="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<1x3x3x1xf32> loc("x")) -> tensor<1x3x3x1xf32> {
  %w = circle.const [2.0, 8.0] : tensor<1x1x2x1xf32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x3x3x1xf32>, tensor<1x1x2x1xf32>) -> tensor<1x3x3x1xf32>
  func.return %0 : tensor<1x3x3x1xf32>
}
// OTHER: error: the input 'x' has 9 elements, the recorded sizes are for 6 (pass quant-split-columns); record them with this model
// FILE: error: cannot read sizes of elements: No such file or directory (in /no/such/file.npz
