// RUN: odc-opt %s --split-input-file --quant-verify-params | filecheck %s

// Everything in order, up to the rounding of a scale: nothing changes.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x1x!quant.uniform<i8:f32, 0.00390625:-128>> {
    %w = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
    %b = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25000003}>>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>, tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25000003}>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
    %1 = circle.softmax(%0) {beta = 1.0} : (tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>>
    %s = circle.const [2, 1] : tensor<2xi32>
    %2 = circle.reshape(%1, %s) {new_shape = [2, 1]} : (tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>>, tensor<2xi32>) -> tensor<2x1x!quant.uniform<i8:f32, 0.00390625:-128>>
    func.return %2 : tensor<2x1x!quant.uniform<i8:f32, 0.00390625:-128>>
  }
}
// CHECK: func.func @main(
// CHECK: circle.reshape(

// -----

// A module without a scheme may be anything.
func.func @main(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>> {
  %0 = circle.relu(%x) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<1x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.25>>
  func.return %1 : tensor<1x2x!quant.uniform<i8:f32, 0.25>>
}
// CHECK: circle.softmax(
