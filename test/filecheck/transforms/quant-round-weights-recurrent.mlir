// RUN: odc-opt %s --quant-round-weights='codes="%S/Inputs/codes-recurrent.npz"' | filecheck %s

// One of two matrices, by what the operator table calls it.
func.func @main(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
  %r = circle.const [5, 6, 7, 8] : tensor<2x2x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [0.0, 0.0] : tensor<2xf32>
  %s = circle.variable : tensor<1x2xf32>
  %0 = circle.dequantize(%w) : (tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x2xf32>
  %1 = circle.dequantize(%r) : (tensor<2x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x2xf32>
  %2 = circle.unidirectional_sequence_rnn(%x, %0, %1, %b, %s) : (tensor<1x3x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<1x2xf32>) -> tensor<1x3x2xf32> loc("rnn")
  func.return %2 : tensor<1x3x2xf32>
}
// CHECK-DAG: circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.25{{0*}}>>
// CHECK-DAG: circle.const [13, -7, 0, 127] : tensor<2x2x!quant.uniform<i8:f32, 0.5{{0*}}>>
