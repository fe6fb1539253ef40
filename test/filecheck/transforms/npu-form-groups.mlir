// RUN: odc-opt %s --split-input-file --npu-form-groups | filecheck %s

// A padding with one reader that pads itself makes a group with it; the longest pattern wins.
func.func @main(%x: tensor<1x4x4x2xf32>, %p: tensor<4x2xi32>, %w: tensor<2x3x3x2xf32>, %s: tensor<2xi32>, %m: tensor<3x32xf32>) -> (tensor<1x4x4x2xf32>, tensor<1x3xf32>) {
  %none = circle.none
  %0 = circle.pad(%x, %p) attributes {odc.placed = "npu"} : (tensor<1x4x4x2xf32>, tensor<4x2xi32>) -> tensor<1x6x6x2xf32>
  %1 = circle.conv_2d(%0, %w, %none) {padding = valid, stride = [1, 1]} attributes {odc.placed = "npu"} : (tensor<1x6x6x2xf32>, tensor<2x3x3x2xf32>, none) -> tensor<1x4x4x2xf32>
  %2 = circle.reshape(%1, %s) attributes {odc.placed = "npu"} : (tensor<1x4x4x2xf32>, tensor<2xi32>) -> tensor<2x16xf32>
  %3 = circle.reshape(%2, %s) attributes {odc.placed = "npu"} : (tensor<2x16xf32>, tensor<2xi32>) -> tensor<1x32xf32>
  %4 = circle.fully_connected(%3, %m, %none) attributes {odc.placed = "npu"} : (tensor<1x32xf32>, tensor<3x32xf32>, none) -> tensor<1x3xf32>
  func.return %1, %4 : tensor<1x4x4x2xf32>, tensor<1x3xf32>
}
// CHECK: circle.pad({{.*}}) attributes {odc.placed = "npu", odc.group = 1 : i64}
// CHECK-NEXT: circle.conv_2d({{.*}} attributes {odc.placed = "npu", odc.group = 1 : i64}
// CHECK-NEXT: circle.reshape({{.*}}) attributes {odc.placed = "npu", odc.group = 0 : i64}
// CHECK-NEXT: circle.reshape({{.*}}) attributes {odc.placed = "npu", odc.group = 0 : i64}
// CHECK-NEXT: circle.fully_connected({{.*}} attributes {odc.placed = "npu", odc.group = 0 : i64}

// -----

// A float island is a group; if one of its operators is on the host, so are all.
func.func @main(%x: tensor<1x8x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x8x!quant.uniform<i8:f32, 0.5>>, tensor<1x8x!quant.uniform<i8:f32, 0.5>>) {
  %0 = circle.dequantize(%x) attributes {odc.placed = "npu"} : (tensor<1x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x8xf32>
  %1 = circle.gelu(%0) attributes {odc.placed = "npu"} : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %2 = circle.quantize(%1) attributes {odc.placed = "npu"} : (tensor<1x8xf32>) -> tensor<1x8x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.dequantize(%x) attributes {odc.placed = "npu"} : (tensor<1x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x8xf32>
  %4 = circle.gelu(%3) attributes {odc.placed = "host", odc.reason = "annotation: placed by the user"} : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %5 = circle.quantize(%4) attributes {odc.placed = "npu"} : (tensor<1x8xf32>) -> tensor<1x8x!quant.uniform<i8:f32, 0.5>>
  func.return %2, %5 : tensor<1x8x!quant.uniform<i8:f32, 0.5>>, tensor<1x8x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: circle.dequantize(%x) attributes {odc.placed = "npu", odc.group = 0 : i64}
// CHECK-NEXT: circle.gelu({{.*}} attributes {odc.placed = "npu", odc.group = 0 : i64}
// CHECK-NEXT: circle.quantize({{.*}} attributes {odc.placed = "npu", odc.group = 0 : i64}
// CHECK-NEXT: circle.dequantize(%x) attributes {odc.placed = "host", odc.reason = "island: an operator beside it is on the host"}
// CHECK-NEXT: circle.gelu({{.*}} attributes {odc.placed = "host", odc.reason = "annotation: placed by the user"}
// CHECK-NEXT: circle.quantize({{.*}} attributes {odc.placed = "host", odc.reason = "island: an operator beside it is on the host"}

// -----

// No group: the padding has two readers, and what the NPU cannot run is in none.
func.func @main(%x: tensor<1x4x4x2xf32>, %p: tensor<4x2xi32>, %w: tensor<2x3x3x2xf32>) -> (tensor<1x4x4x2xf32>, tensor<1x6x6x2xf32>) {
  %none = circle.none
  %0 = circle.pad(%x, %p) attributes {odc.placed = "npu"} : (tensor<1x4x4x2xf32>, tensor<4x2xi32>) -> tensor<1x6x6x2xf32>
  %1 = circle.conv_2d(%0, %w, %none) {padding = valid, stride = [1, 1]} attributes {odc.placed = "npu"} : (tensor<1x6x6x2xf32>, tensor<2x3x3x2xf32>, none) -> tensor<1x4x4x2xf32>
  %2 = circle.pad(%1, %p) attributes {odc.placed = "host"} : (tensor<1x4x4x2xf32>, tensor<4x2xi32>) -> tensor<1x6x6x2xf32>
  %3 = circle.conv_2d(%2, %w, %none) {padding = valid, stride = [1, 1]} attributes {odc.placed = "npu"} : (tensor<1x6x6x2xf32>, tensor<2x3x3x2xf32>, none) -> tensor<1x4x4x2xf32>
  func.return %3, %0 : tensor<1x4x4x2xf32>, tensor<1x6x6x2xf32>
}
// CHECK-NOT: odc.group
