// RUN: odc-opt %s --split-input-file -p odc-set-target,npu-mark-supported | filecheck %s

// Every operator gets a place; one on the host says which rule kept it there and what the rule saw.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  %1 = circle.dequantize(%0) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32>
  %2 = circle.relu(%1) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %2 : tensor<1x4xf32>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "npu"}
// CHECK: circle.dequantize({{.*}}) attributes {odc.placed = "host", odc.reason = "operator: DEQUANTIZE has no NPU form"}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "element-type: '' is float32"}

// -----

// Functions behind the first are called by control flow: they run on the host.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  func.return %x : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
func.func @body(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "function: @body is called by control flow"}
