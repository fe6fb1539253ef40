// RUN: odc-opt %s --print-diagnostics --quant-fake-quantize | filecheck %s

func.func @main(%x: tensor<1x2xf32>, %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: the bias is computed at run time, so it cannot be quantised (pass quant-fake-quantize, op FULLY_CONNECTED)
