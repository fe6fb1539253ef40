// RUN: odc-opt %s --split-input-file -p circle-opt,quant | filecheck %s

// Given types are kept, also of weights whose largest code is -128. TANH is a function of codes with PyTorch's scale.
builtin.module attributes {circle.metadata = [{name = "odc.source_lines", data = #circle.blob<"0x7b7d">}]} {
  func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32> {
    %q = circle.quantize(%x) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:131>>
    %d = circle.dequantize(%q) : (tensor<1x2x!quant.uniform<u8:f32, 0.5:131>>) -> tensor<1x2xf32>
    %codes = circle.const [-128, 1, 2, 3] : tensor<2x2x!quant.uniform<i8:f32, 0.25>> loc("codes")
    %w = circle.dequantize(%codes) : (tensor<2x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x2xf32> loc("w")
    %b = circle.const [1.0, -1.0] : tensor<2xf32> loc("b")
    %0 = circle.fully_connected(%d, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("y")
    %1 = circle.quantize(%0) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
    %2 = circle.dequantize(%1) : (tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>) -> tensor<1x2xf32>
    %3 = circle.tanh(%2) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("t")
    %4 = circle.quantize(%3) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.005:3>>
    %5 = circle.dequantize(%4) : (tensor<1x2x!quant.uniform<i8:f32, 0.005:3>>) -> tensor<1x2xf32> loc("out")
    func.return %5 : tensor<1x2xf32>
  }
}
// CHECK-NOT: quant.given
// CHECK: %[[W:.*]] = circle.const [-128, 1, 2, 3] : tensor<2x2x!quant.uniform<i8:f32, 0.25>>
// CHECK-NEXT: %[[B:.*]] = circle.const [8, -8] : tensor<2x!quant.uniform<i32:f32, 0.125>>
// CHECK-NEXT: %[[Y:.*]] = circle.fully_connected(%{{.*}}, %[[W]], %[[B]]) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, {{.*}}) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
// CHECK-NEXT: %[[D:.*]] = circle.dequantize(%[[Y]])
// CHECK-NEXT: %[[T:.*]] = circle.tanh(%[[D]])
// CHECK-NEXT: %[[Q:.*]] = circle.quantize(%[[T]]) : {{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.005:3>>
// CHECK-NEXT: %[[OUT:.*]] = circle.dequantize(%[[Q]]) : {{.*}} loc("out")
// CHECK-NEXT: func.return %[[OUT]]

// -----

// A layer with real weights stays float, and its result is rounded as before. So does a layer whose result is not rounded.
builtin.module attributes {circle.metadata = [{name = "odc.source_lines", data = #circle.blob<"0x7b7d">}]} {
  func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32> {
    %q = circle.quantize(%x) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
    %d = circle.dequantize(%q) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2xf32>
    %w = circle.const [0.1, 0.7, 1.1, 1.3] : tensor<2x2xf32> loc("w")
    %v = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32> loc("v")
    %b = circle.const [1.0, -1.0] : tensor<2xf32> loc("b")
    %0 = circle.fully_connected(%d, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("y")
    %1 = circle.quantize(%0) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
    %2 = circle.dequantize(%1) : (tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>) -> tensor<1x2xf32>
    %3 = circle.fully_connected(%2, %v, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("out")
    func.return %3 : tensor<1x2xf32>
  }
}
// CHECK: %[[Y:.*]] = circle.fully_connected({{.*}}) attributes {{{.*}}"PyTorch did not quantise its weights 'w'"} : {{.*}} -> tensor<1x2xf32>
// CHECK-NEXT: %[[Q:.*]] = circle.quantize(%[[Y]]) : {{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.125:3>>
// CHECK-NEXT: %[[D:.*]] = circle.dequantize(%[[Q]])
// CHECK-NEXT: %[[OUT:.*]] = circle.fully_connected(%[[D]]
// CHECK-NEXT: func.return %[[OUT]]

// -----

// Roundings of other origin stay.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %q = circle.quantize(%x) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  %d = circle.dequantize(%q) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2xf32>
  %0 = circle.relu(%d) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %1 = circle.quantize(%0) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  %2 = circle.dequantize(%1) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2xf32>
  func.return %2 : tensor<1x2xf32>
}
// CHECK: circle.relu(%{{.*}}) : (tensor<1x2xf32>) -> tensor<1x2xf32>
