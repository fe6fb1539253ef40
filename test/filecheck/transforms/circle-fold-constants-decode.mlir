// RUN: odc-opt %s -p 'circle-fold-constants{decode=true}' | filecheck %s

// Codes become what they stand for, also beside a value that is computed.
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = circle.const [2, 4] : tensor<2x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.dequantize(%0) : (tensor<2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2xf32>
  %2 = circle.add(%x, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}
// CHECK-NOT: circle.dequantize
// CHECK: circle.const [1.0, 2.0] : tensor<2xf32>
// CHECK: circle.add
