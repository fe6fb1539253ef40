// RUN: odc-opt %s --split-input-file --verify-diagnostics --quant-flip-sign='to=int8'

// Errors of the verifier, by the line that they are about.

func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xi32> {
  // expected-error @+1 {{equal}}
  %0 = "circle.relu"(%x) : (tensor<2x3xf32>) -> tensor<2x3xi8>
  // expected-error @below {{equal}}
  %1 = "circle.relu"(%x) : (tensor<2x3xf32>) -> tensor<2x3xi32>
  func.return %1 : tensor<2x3xi32>
}

// -----

// One of the parser.

func.func @main() {
  %0 = circle.no_such_thing : tensor<4xf32> // expected-error {{circle.no_such_thing}}
  func.return
}

// -----

// One of a pass, which names the tensor.

func.func @main(%x: tensor<2x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<2xui8> {
  // expected-error @below {{its values cannot be converted to int8}}
  %y = circle.cast(%x) : (tensor<2x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<2xui8> loc("y")
  func.return %y : tensor<2xui8>
}

// -----

func.func @fine() {
  func.return
}
