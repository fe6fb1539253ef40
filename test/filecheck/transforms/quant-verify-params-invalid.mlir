// RUN: odc-opt %s --split-input-file --print-diagnostics --quant-verify-params='scheme=int8' | filecheck %s

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:1, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:1, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: weights have their scales along axis 1, not 0 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'w')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.2500004}>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.2500004}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: the scale of the bias in channel 1 is 0.250000387, input times weights is 0.25 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'b')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32, 0.125>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32, 0.125>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: a bias has as many scales as the weights, 2, not 1 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'b')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25:1}>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25:1}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: a bias has the zero point 0, not 1 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'b')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2xi64, #circle.qparams<scale = [0.125, 0.25], zero_point = [0, 0]>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2xi64, #circle.qparams<scale = [0.125, 0.25], zero_point = [0, 0]>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: a bias of activations of int8 is int32, not int64 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'b')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w")
  %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
}
// CHECK: an activation has one scale, this one has 2 (pass quant-verify-params, op FULLY_CONNECTED)

// -----

func.func @main(%x: tensor<2x!quant.uniform<i16:f32, 0.5:3>> loc("x")) -> tensor<2x!quant.uniform<i16:f32, 0.5>> {
  %0 = circle.relu(%x) : (tensor<2x!quant.uniform<i16:f32, 0.5:3>>) -> tensor<2x!quant.uniform<i16:f32, 0.5>>
  func.return %0 : tensor<2x!quant.uniform<i16:f32, 0.5>>
}
// CHECK: codes of 16 bits have the zero point 0, not 3 (pass quant-verify-params, op RELU, tensor 'x')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>> {
  %0 = circle.logistic(%x) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>> loc("p")
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.25>>
}
// CHECK: the result must have scale 0.00390625 and zero point -128, it has scale 0.25 and zero point 0 (pass quant-verify-params, op LOGISTIC, tensor 'p')

// -----

func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>> {
  %s = circle.const [1, 2] : tensor<2xi32>
  %0 = circle.reshape(%x, %s) {new_shape = [1, 2]} : (tensor<2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>> loc("y")
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.25>>
}
// CHECK: codes are moved between int8 with scale 0.5 and zero point 3 and int8 with scale 0.25 and zero point 0; both must be the same (pass quant-verify-params, op RESHAPE, tensor 'y')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, %y: tensor<1x2x!quant.uniform<i8:f32, 0.25>> loc("y")) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>> {
  %0 = circle.concatenation(%x, %y) {axis = 0} : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK: codes are moved between int8 with scale 0.5 and zero point 3 and int8 with scale 0.25 and zero point 0; both must be the same (pass quant-verify-params, op CONCATENATION, tensor 'y')

// -----

func.func @main(%x: tensor<1x2x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:3>> {
  %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i16:f32:0, {0.25, 0.5}>>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<u8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i16:f32:0, {0.25, 0.5}>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:3>> loc("y")
  func.return %0 : tensor<1x2x!quant.uniform<u8:f32, 0.5:3>>
}
// CHECK: weights of int16 do not go with an input of uint8; supported are int8, uint8, int4, uint4 (pass quant-verify-params, op FULLY_CONNECTED, tensor 'y')

// -----

func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, %w: tensor<1x1x1x1x!quant.uniform<i8:f32, 0.25:-2>> loc("w")) -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>> {
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x1x1x1x!quant.uniform<i8:f32, 0.25:-2>>) -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK: signed weights have the zero point 0, not -2 (pass quant-verify-params, op CONV_2D, tensor 'w')
