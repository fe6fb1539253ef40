// RUN: odc-opt %s --split-input-file --print-diagnostics --quant-flip-sign='to=int8' | filecheck %s
// RUN: odc-opt %s --split-input-file --print-diagnostics --quant-flip-sign='to=uint8' | filecheck %s --check-prefix UNSIGNED

func.func @main(%x: tensor<2x!quant.uniform<u8:f32, 0.25:3>>) -> tensor<2xi32> {
  %0 = circle.cast(%x) {in_data_type = uint8, out_data_type = int32} : (tensor<2x!quant.uniform<u8:f32, 0.25:3>>) -> tensor<2xi32> loc("y")
  func.return %0 : tensor<2xi32>
}
// CHECK: its values cannot be converted to int8: it depends on the codes themselves (pass quant-flip-sign, op CAST, tensor 'y')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<u8:f32, 0.25:3>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.25:3>> {
  %w = circle.const [136, 124, 1, 255] : tensor<2x2x!quant.uniform<u8:f32:0, {0.25:128, 0.5:130}>> loc("w")
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<u8:f32, 0.25:3>>, tensor<2x2x!quant.uniform<u8:f32:0, {0.25:128, 0.5:130}>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.25:3>>
  func.return %0 : tensor<1x2x!quant.uniform<u8:f32, 0.25:3>>
}
// CHECK: its values cannot be converted to int8: weights 'w' would have the zero point 2; other readers require 0 for signed weights (pass quant-flip-sign, op FULLY_CONNECTED)

// -----

func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [136, 124, 1, 255] : tensor<2x2x!quant.uniform<u8:f32, 0.25:128>> loc("w")
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<2x2x!quant.uniform<u8:f32, 0.25:128>>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: its values cannot be converted to int8: weights 'w' of float activations change their meaning with the sign (pass quant-flip-sign, op FULLY_CONNECTED)

// -----

func.func @main(%x: tensor<2x2x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<2x!quant.uniform<i8:f32, 0.25:3>> {
  %axis = circle.const [1] : tensor<1xi32>
  %0 = circle.reduce_prod(%x, %axis) {keep_dims = false} : (tensor<2x2x!quant.uniform<i8:f32, 0.25:3>>, tensor<1xi32>) -> tensor<2x!quant.uniform<i8:f32, 0.25:3>>
  func.return %0 : tensor<2x!quant.uniform<i8:f32, 0.25:3>>
}
// UNSIGNED: its values cannot be converted to uint8: a product of quantised uint8 is not supported; int8 and int16 are (pass quant-flip-sign, op REDUCE_PROD)
