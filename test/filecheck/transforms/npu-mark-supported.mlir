// RUN: odc-opt %s --split-input-file -p odc-set-target,npu-mark-supported | filecheck %s

// Every operator gets a place; one on the host says which rule kept it there and what the rule saw.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  %1 = circle.dequantize(%0) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32>
  %2 = circle.relu(%1) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %2 : tensor<1x4xf32>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "npu"}
// CHECK: circle.dequantize({{.*}}) attributes {odc.placed = "host", odc.reason = "operator: DEQUANTIZE is not supported by the NPU"}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "element-type: '' is float32"}

// -----

// Functions behind the first run on the host.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  func.return %x : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
func.func @body(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "function: @body is not the main function"}

// -----

// Some rows of an image can be searched by themselves, so it need not fit; along another axis it must.
func.func @main(%x: tensor<1x8x8x32x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<1x1024x1024xi32>, tensor<1x1024x32xi32>) {
  %size = circle.const [1024, 1024] : tensor<2xi32>
  %channels = circle.const [3] : tensor<1xi32>
  %rows = circle.const [1] : tensor<1xi32>
  %0 = circle.resize_nearest_neighbor(%x, %size) : (tensor<1x8x8x32x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>>
  %1 = circle.arg_max(%0, %channels) : (tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<1x1024x1024xi32>
  %2 = circle.arg_max(%0, %rows) : (tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<1x1024x32xi32>
  func.return %1, %2 : tensor<1x1024x1024xi32>, tensor<1x1024x32xi32>
}
// CHECK: circle.resize_nearest_neighbor({{.*}}) attributes {odc.placed = "npu"}
// CHECK: circle.arg_max({{.*}}) attributes {odc.placed = "npu"}
// CHECK: circle.arg_max({{.*}}) attributes {odc.placed = "host", odc.reason = "fits-sram: 33685504 bytes of 4194304"}

// -----

// An output of the model is in SRAM as a whole, though its rows are computed one by one.
func.func @main(%x: tensor<1x8x8x32x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>> {
  %size = circle.const [1024, 1024] : tensor<2xi32>
  %0 = circle.resize_nearest_neighbor(%x, %size) : (tensor<1x8x8x32x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<1x1024x1024x32x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK: odc.reason = "fits-sram: 33556480 bytes of 4194304; '' of 33554432 bytes leaves the NPU as a whole"

// -----

// Real operators between 8-bit codes are supported with their conversions; an island gets copies of the operators that it
// shares with other readers. One with 16-bit codes is not supported.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x4x!quant.uniform<u8:f32, 0.5>>, tensor<1x4xf32>, tensor<1x4x!quant.uniform<i16:f32, 0.5>>) {
  %c = circle.const [0.5] : tensor<1xf32>
  %0 = circle.dequantize(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4xf32>
  %1 = circle.sin(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %2 = circle.mul(%1, %c) : (tensor<1x4xf32>, tensor<1xf32>) -> tensor<1x4xf32>
  %3 = circle.quantize(%2) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<u8:f32, 0.5>>
  %4 = circle.cos(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %5 = circle.quantize(%4) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<u8:f32, 0.5>>
  %6 = circle.add(%5, %3) : (tensor<1x4x!quant.uniform<u8:f32, 0.5>>, tensor<1x4x!quant.uniform<u8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<u8:f32, 0.5>>
  %7 = circle.quantize(%4) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>>
  func.return %6, %4, %7 : tensor<1x4x!quant.uniform<u8:f32, 0.5>>, tensor<1x4xf32>, tensor<1x4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK: %[[REST:.*]] = circle.dequantize(%x) attributes {odc.placed = "host"
// CHECK-NEXT: %[[SECOND:.*]] = circle.dequantize(%x) attributes {odc.placed = "npu"}
// CHECK-NEXT: %[[FIRST:.*]] = circle.dequantize(%x) attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.sin(%[[FIRST]]) attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.mul({{.*}} attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.quantize({{.*}} attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.cos(%[[REST]]) attributes {odc.placed = "host"
// CHECK-NEXT: circle.cos(%[[SECOND]]) attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.quantize({{.*}} attributes {odc.placed = "npu"}
// CHECK-NEXT: circle.add
// CHECK-NEXT: circle.quantize({{.*}} attributes {odc.placed = "host"

// -----

// Conversions of real inputs and outputs are the model's interface.
func.func @main(%x: tensor<1x4xf32> loc("x")) -> tensor<1x4xf32> {
  %0 = circle.quantize(%x) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.dequantize(%0) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4xf32> loc("y")
  func.return %1 : tensor<1x4xf32>
}
// CHECK: circle.quantize({{.*}} attributes {odc.placed = "host", odc.reason = "interface: input 'x' is float32; a model quantised with --io quantized takes codes"}
// CHECK: circle.dequantize({{.*}} attributes {odc.placed = "host", odc.reason = "interface: output 'y' is float32; a model quantised with --io quantized gives codes"}
