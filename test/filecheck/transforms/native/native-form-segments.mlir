// RUN: odc-opt %s --split-input-file --native-form-segments | filecheck %s

// Everything that is ready before the host operator makes one segment, the rest another.
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

// -----

// Views alone are no work.
func.func @view(%x: tensor<4xf32>) -> tensor<2x2xf32> {
  %s = circle.const [2, 2] : tensor<2xi32>
  %0 = circle.reshape(%x, %s) attributes {odc.placed = "cpu"} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  func.return %0 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @view(
// CHECK: circle.reshape({{.*}}) attributes {odc.placed = "host", odc.reason = "segment-size: views only"}
