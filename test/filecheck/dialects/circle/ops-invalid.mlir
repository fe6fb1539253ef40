// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

func.func @too_few(%x: tensor<1x8x8x3xf32>) {
  // CHECK: takes 2 to 3 operands (input, filter, bias), found 1 (op CONV_2D, tensor 'y')
  %0 = circle.conv_2d(%x) {padding = same, stride = [1, 1]} : (tensor<1x8x8x3xf32>) -> tensor<1x8x8x4xf32> loc("y")
  func.return
}

// -----

func.func @left_out(%x: tensor<2x8xf32>) {
  %none = circle.none
  // CHECK: operand 1 (weights) is required, found none (op FULLY_CONNECTED, tensor 'y')
  %0 = circle.fully_connected(%x, %none) : (tensor<2x8xf32>, none) -> tensor<2x4xf32> loc("y")
  func.return
}

// -----

func.func @results(%x: tensor<2x8xf32>) {
  // CHECK: takes 1 result (output), found 2 (op RELU, tensor 'y')
  %0, %1 = circle.relu(%x) : (tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) loc(fused["y", "z"])
  func.return
}

// -----

func.func @element_type(%x: tensor<2x!circle.string>) {
  // CHECK: the operand is string, the result float32; they must be equal (op CONV_2D, tensor 'y')
  %1 = circle.variable : tensor<1x8x8x3x!circle.string> loc("names")
  %2 = circle.variable : tensor<4x3x3x3xf32>
  %0 = circle.conv_2d(%1, %2) {padding = same, stride = [1, 1]} : (tensor<1x8x8x3x!circle.string>, tensor<4x3x3x3xf32>) -> tensor<1x8x8x4xf32> loc("y")
  func.return
}

// -----

func.func @no_element_of_ours(%x: tensor<2x8xindex>) {
  // CHECK: index is not an element type of a Circle tensor
  %0 = circle.relu(%x) : (tensor<2x8xindex>) -> tensor<2x8xindex> loc("y")
  func.return
}

// -----

func.func @no_tensor(%x: i32) {
  // CHECK: expected a tensor type, found i32
  %0 = circle.relu(%x) : (i32) -> tensor<2x8xf32> loc("y")
  func.return
}

// -----

func.func @shape(%x: tensor<1x8x8x3xf32>, %w: tensor<4x3x3x3xf32>) {
  // CHECK: result must be float32[1, 4, 4, 4], found float32[1, 8, 8, 4] (op CONV_2D, tensor 'y')
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [2, 2]} : (tensor<1x8x8x3xf32>, tensor<4x3x3x3xf32>) -> tensor<1x8x8x4xf32> loc("y")
  func.return
}

// -----

func.func @rank(%x: tensor<2x3xf32>) {
  // CHECK: result must be float32[2, 3], found float32[6] (op RELU, tensor 'y')
  %0 = circle.relu(%x) : (tensor<2x3xf32>) -> tensor<6xf32> loc("y")
  func.return
}

// -----

func.func @dtype(%x: tensor<2x3xf32>) {
  // CHECK: operand 0 (lhs) is float32, the result int8; they must be equal (op ADD
  %0 = circle.add(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi8> loc("y")
  func.return
}

// -----

func.func @option_kind(%x: tensor<2x3xf32>) {
  // CHECK: fused_activation_function is "swish", must be one of none, relu, relu_n1_to_1, relu6, tanh, sign_bit (op ADD, tensor 'y')
  %0 = "circle.add"(%x, %x) <{fused_activation_function = "swish"}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> loc("y")
  func.return
}

// -----

func.func @option_width(%x: tensor<2x3xf32>) {
  // CHECK: axis is 1 : i64, must be i32 (op CONCATENATION, tensor 'y')
  %0 = "circle.concatenation"(%x) <{axis = 1 : i64}> : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("y")
  func.return
}

// -----

func.func @no_function(%c: tensor<i1>, %x: tensor<2x3xf32>) {
  // CHECK: refers to @nowhere, which is not a function of this module (op IF, tensor 'y')
  %0 = circle.if(%c, %x) {then_subgraph_index = @nowhere, else_subgraph_index = @nowhere} : (tensor<i1>, tensor<2x3xf32>) -> tensor<2x3xf32> loc("y")
  func.return
}

// -----

func.func @scales_and_extent(%x: tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>> loc("x")) {
  // CHECK: 2 scales for dimension 1 of extent 3 (op RELU, tensor 'x')
  %0 = circle.relu(%x) : (tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) -> tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>> loc("y")
  func.return
}

// -----

// CHECK: quantised dimension is 2, the tensor has rank 1 (op circle.const, tensor 'w')
%0 = circle.const [1, 2] : tensor<2x!quant.uniform<i8:f32:2, {0.5, 0.25}>> loc("w")

// -----

// CHECK: 4 elements of int8 take 4 bytes, found 2 (op circle.const, tensor 'w')
%0 = circle.const #circle.blob<"0x0102"> : tensor<4xi8> loc("w")

// -----

// CHECK: 3 elements of int4 take 2 bytes, found 3 (op circle.const, tensor 'w')
%0 = circle.const #circle.blob<"0x010203"> : tensor<3xi4> loc("w")

// -----

// CHECK: a constant needs a static shape (op circle.const, tensor 'w')
%0 = circle.const #circle.blob<"0x0102"> : tensor<?xi8> loc("w")

// -----

// CHECK: expected a tensor type, found i8
%0 = circle.variable : i8
