// RUN: odc-opt %s --split-input-file --quant-flip-sign='to=int8' | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-flip-sign='to=int8' --quant-flip-sign='to=uint8' | filecheck %s --check-prefix BACK

// Codes and zero points move by 128, inputs and outputs included; whole numbers stay.
func.func @main(%x: tensor<2x!quant.uniform<u8:f32, 0.25:3>>, %n: tensor<2xui8>) -> (tensor<2x!quant.uniform<u8:f32, 1.0:7>>, tensor<2xui8>) {
  %c = circle.const [100, 200] : tensor<2x!quant.uniform<u8:f32, 0.5:128>>
  %0 = circle.add(%x, %c) : (tensor<2x!quant.uniform<u8:f32, 0.25:3>>, tensor<2x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<2x!quant.uniform<u8:f32, 1.0:7>>
  func.return %0, %n : tensor<2x!quant.uniform<u8:f32, 1.0:7>>, tensor<2xui8>
}
// CHECK: func.func @main(%{{.*}}: tensor<2x!quant.uniform<i8:f32, 0.25:-125>>, %{{.*}}: tensor<2xui8>) -> (tensor<2x!quant.uniform<i8:f32, 1.0:-121>>, tensor<2xui8>)
// CHECK: circle.const [-28, 72] : tensor<2x!quant.uniform<i8:f32, 0.5>>
// BACK: func.func @main(%{{.*}}: tensor<2x!quant.uniform<u8:f32, 0.25:3>>, %{{.*}}: tensor<2xui8>) -> (tensor<2x!quant.uniform<u8:f32, 1.0:7>>, tensor<2xui8>)
// BACK: circle.const [100, 200] : tensor<2x!quant.uniform<u8:f32, 0.5:128>>

// -----

// Weights per channel, fixed parameters, conversions; biases and wider codes stay.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<u8:f32, 0.00390625>> {
  %w = circle.const [136, 124, 1, 255] : tensor<2x2x!quant.uniform<u8:f32:0, {0.25:128, 0.5:128}>>
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>
  %0 = circle.quantize(%x) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:128>>
  %1 = circle.fully_connected(%0, %w, %b) : (tensor<1x2x!quant.uniform<u8:f32, 0.5:128>>, tensor<2x2x!quant.uniform<u8:f32:0, {0.25:128, 0.5:128}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.25:100>>
  %2 = circle.logistic(%1) : (tensor<1x2x!quant.uniform<u8:f32, 0.25:100>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.00390625>>
  func.return %2 : tensor<1x2x!quant.uniform<u8:f32, 0.00390625>>
}
// CHECK: circle.const [8, -4, -127, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>
// CHECK: circle.quantize({{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
// CHECK: circle.logistic({{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>>
