// RUN: odc-opt %s --split-input-file --quant-fake-quantize | filecheck %s

// Values are rounded behind what makes them; the rounded one has the name. Constants hold what their codes stand for.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %w = circle.const [2.1, -1.0, 0.5, 4.1] : tensor<2x2xf32> loc("w")
  %b = circle.const [1.01, -1.0] : tensor<2xf32> loc("b")
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125:3>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("y")
  func.return %0 : tensor<1x2xf32>
}
// CHECK: func.func @main(%[[X:.*]]: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32>
// CHECK-NOT: quant.arguments
// CHECK: %[[Q:.*]] = circle.quantize(%[[X]]) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> loc("x_quantized")
// CHECK-NEXT: %[[D:.*]] = circle.dequantize(%[[Q]]) : {{.*}} -> tensor<1x2xf32> loc("x_dequantized")
// CHECK-NEXT: %[[W:.*]] = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32> loc("w")
// CHECK-NEXT: %[[B:.*]] = circle.const [1.0, -1.0] : tensor<2xf32> loc("b")
// CHECK-NEXT: %[[Y:.*]] = circle.fully_connected(%[[D]], %[[W]], %[[B]]) : {{.*}} loc("y_real")
// CHECK-NEXT: %[[YQ:.*]] = circle.quantize(%[[Y]]) : {{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>> loc("y_quantized")
// CHECK-NEXT: %[[R:.*]] = circle.dequantize(%[[YQ]]) : {{.*}} loc("y")
// CHECK-NEXT: func.return %[[R]]

// -----

// What one operator wants in other codes is rounded again for it alone; what stays real is not rounded.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.relu(%x) attributes {quant.operands = [f32], quant.results = [f32]} : (tensor<4xf32>) -> tensor<4xf32> loc("a")
  %1 = circle.abs(%0) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<4xf32>) -> tensor<4xf32> loc("b")
  %2 = circle.add(%1, %1) attributes {
    quant.operands = [!quant.uniform<i16:f32, 0.25>, !quant.uniform<i16:f32, 0.25>], quant.results = [!quant.uniform<i16:f32, 1.0>]
  } : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("c")
  func.return %2 : tensor<4xf32>
}
// CHECK: %[[A:.*]] = circle.relu(%{{.*}}) : {{.*}} loc("a")
// CHECK-NEXT: circle.quantize(%[[A]])
// CHECK-NEXT: %[[AR:.*]] = circle.dequantize({{.*}} loc("a_dequantized")
// CHECK-NEXT: circle.abs(%[[AR]])
// CHECK-NEXT: circle.quantize(
// CHECK-NEXT: %[[B:.*]] = circle.dequantize({{.*}} loc("b")
// CHECK-NEXT: circle.quantize(%[[B]]) : {{.*}} -> tensor<4x!quant.uniform<i16:f32, 0.25>>
// CHECK-NEXT: %[[WIDE:.*]] = circle.dequantize({{.*}} loc("b_dequantized")
// CHECK-NEXT: circle.add(%[[WIDE]], %[[WIDE]])

// -----

// With codes as inputs, an input is rounded for everybody.
builtin.module attributes {quant.io = "quantized"} {
  func.func @main(%x: tensor<4xf32> loc("input")) -> tensor<4xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
    %0 = circle.exp(%x) : (tensor<4xf32>) -> tensor<4xf32>
    func.return %0 : tensor<4xf32>
  }
}
// CHECK: circle.quantize({{.*}} loc("input_quantized")
// CHECK-NEXT: %[[X:.*]] = circle.dequantize({{.*}} loc("input_dequantized")
// CHECK-NEXT: circle.exp(%[[X]])

// -----

// A variable is written where it is.
func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %v = circle.variable {quant.results = [!quant.uniform<i8:f32, 0.5>]} : tensor<1x4xf32>
  %0 = circle.add(%x, %v) attributes {
    quant.operands = [f32, !quant.uniform<i8:f32, 0.5>], quant.results = [f32]
  } : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %0 : tensor<1x4xf32>
}
// CHECK: %[[V:.*]] = circle.variable
// CHECK-NEXT: circle.add(%{{.*}}, %[[V]])

// -----

// Functions without an assignment are left alone.
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = circle.relu(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
// CHECK: func.func @main(%[[X:.*]]: tensor<2xf32>)
// CHECK-NEXT: circle.relu(%[[X]])
