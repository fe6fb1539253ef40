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
