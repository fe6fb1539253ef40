// RUN: odc-opt %s --split-input-file --print-diagnostics --convert-circle-to-quant | filecheck %s

func.func @main(%x: tensor<1x2xf32>, %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: the bias is computed at run time, so it cannot be quantised (pass convert-circle-to-quant, op FULLY_CONNECTED); keep this operator in float

// -----

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %v = circle.variable : tensor<2xf32> loc("state")
  %0 = circle.add(%x, %v) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32, 0.5>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
// CHECK: operand 1 is a variable and cannot be quantised to int8 (pass convert-circle-to-quant, op ADD, tensor 'state'); keep this operator in float

// -----

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = circle.relu(%x) attributes {quant.operands = [i32], quant.results = [f32]} : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
// CHECK: a real value cannot become i32; allowed are f32 and !quant.uniform (pass convert-circle-to-quant, op RELU)
