// RUN: odc-opt %s --split-input-file --npu-form-segments | filecheck %s
// RUN: odc-opt %s --split-input-file --npu-form-segments='min-operators=2' | filecheck %s --check-prefix TWO

// Two branches, one with a host operator: everything that is ready before it makes one segment, the rest another.
func.func @branches(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = circle.relu(%x) attributes {odc.placed = "npu"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.logistic(%0) attributes {odc.placed = "host"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.relu6(%0) attributes {odc.placed = "npu"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.add(%1, %2) attributes {odc.placed = "npu"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %3, %2 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @branches(
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "npu", odc.segment = 0 : i64}
// CHECK-NEXT: circle.relu6({{.*}}) attributes {odc.placed = "npu", odc.segment = 0 : i64}
// CHECK-NEXT: circle.logistic({{.*}}) attributes {odc.placed = "host"}
// CHECK-NEXT: circle.add({{.*}}) attributes {odc.placed = "npu", odc.segment = 1 : i64}
// TWO-LABEL: func.func @branches(
// TWO: circle.relu6({{.*}}) attributes {odc.placed = "npu", odc.segment = 0 : i64}
// TWO: circle.add({{.*}}) attributes {odc.placed = "host", odc.reason = "segment-size: 1 of at least 2 operators"}

// -----

// A view joins the segment that reads it; a segment of views only is none.
func.func @views(%x: tensor<4xf32>, %s: tensor<2xi32>) -> tensor<2x2xf32> {
  %0 = circle.reshape(%x, %s) attributes {odc.placed = "npu"} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %1 = circle.relu(%0) attributes {odc.placed = "npu"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.logistic(%1) attributes {odc.placed = "host"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %3 = circle.reshape(%2, %s) attributes {odc.placed = "npu"} : (tensor<2x2xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  func.return %3 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @views(
// CHECK: circle.reshape({{.*}}) attributes {odc.placed = "npu", odc.segment = 0 : i64}
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "npu", odc.segment = 0 : i64}
// CHECK: circle.reshape({{.*}}) attributes {odc.placed = "host", odc.reason = "segment-size: views only"}
// TWO-LABEL: func.func @views(
// TWO: circle.relu({{.*}}) attributes {odc.placed = "host", odc.reason = "segment-size: 1 of at least 2 operators"}

// -----

// Without anything for the NPU the order stays as it is.
func.func @host(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.relu(%x) attributes {odc.placed = "host"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
// CHECK-LABEL: func.func @host(
// CHECK-NOT: odc.segment

// -----

// Operators of native code form segments too.
func.func @branches(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = circle.relu(%x) attributes {odc.placed = "cpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.logistic(%0) attributes {odc.placed = "host"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.relu6(%0) attributes {odc.placed = "cpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.add(%1, %2) attributes {odc.placed = "cpu"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %3, %2 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @branches(
// CHECK: circle.relu({{.*}}) attributes {odc.placed = "cpu", odc.segment = 0 : i64}
// CHECK-NEXT: circle.relu6({{.*}}) attributes {odc.placed = "cpu", odc.segment = 0 : i64}
// CHECK-NEXT: circle.logistic({{.*}}) attributes {odc.placed = "host"}
// CHECK-NEXT: circle.add({{.*}}) attributes {odc.placed = "cpu", odc.segment = 1 : i64}
