// RUN: odc-opt %s --split-input-file -p native-set-target,native-mark-supported | filecheck %s

// Every operator gets a place; one on the host says why.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  %1 = circle.relu(%0) attributes {odc.place = "host"} : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  %2 = circle.dequantize(%1) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4xf32>
  %3 = circle.atan2(%2, %2) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %3 : tensor<1x4xf32>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "cpu"}
// CHECK: circle.relu({{.*}}) attributes {odc.place = "host", odc.placed = "host", odc.reason = "annotation: placed by the user"}
// CHECK: circle.dequantize({{.*}}) attributes {odc.placed = "cpu"}
// CHECK: circle.atan2({{.*}}) attributes {odc.placed = "host", odc.reason = "there is no native kernel for this operator"}

// -----

// Functions behind the first stay on the host, and so do unknown shapes, which wait for a run.
func.func @main(%x: tensor<?x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<?x4x!quant.uniform<i8:f32, 0.5:10>> {
  %0 = circle.relu(%x) : (tensor<?x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<?x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %0 : tensor<?x4x!quant.uniform<i8:f32, 0.5:10>>
}
func.func @body(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %0 = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "the shape of '' is not fully known"}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "function: @body is not the main function"}
