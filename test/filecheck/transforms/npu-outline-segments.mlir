// RUN: odc-opt %s --split-input-file -p odc-set-target,npu-outline-segments | filecheck %s

// The segment takes what it reads and gives what others read; its constants move in.
func.func @two_results(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4xf32>
  %0 = circle.add(%x, %c) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.relu(%0) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.relu6(%1) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.logistic(%1) attributes {odc.placed = "host"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %2, %3 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @two_results(
// CHECK-NEXT: %[[R:.*]], %[[S:.*]] = odc.segment @segment_0(%{{.*}}) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) for "npu-256" circle {
// CHECK-NEXT: ^{{.*}}(%[[A:.*]]: tensor<4xf32>):
// CHECK-NEXT: %[[C:.*]] = circle.const [1.0, 2.0, 3.0, 4.0]
// CHECK-NEXT: %[[V0:.*]] = circle.add(%[[A]], %[[C]]) attributes {odc.placed = "npu"}
// CHECK-NEXT: %[[V1:.*]] = circle.relu(%[[V0]])
// CHECK-NEXT: %[[V2:.*]] = circle.relu6(%[[V1]])
// CHECK-NEXT: odc.yield %[[V1]], %[[V2]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[H:.*]] = circle.logistic(%[[R]])
// CHECK-NEXT: func.return %[[S]], %[[H]]

// -----

// A constant that a host operator reads too is copied.
func.func @shared_constant(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %c = circle.const [1.0, 2.0] : tensor<2xf32>
  %0 = circle.add(%x, %c) attributes {odc.segment = 0} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = circle.mul(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %0, %1 : tensor<2xf32>, tensor<2xf32>
}
// CHECK-LABEL: func.func @shared_constant(
// CHECK-NEXT: %[[C:.*]] = circle.const
// CHECK-NEXT: odc.segment
// CHECK: circle.mul(%{{.*}}, %[[C]])

// -----

// The value and a view of it both leave: the value does, and the view is made behind the segment.
func.func @value_and_view(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x2xf32>) {
  %s = circle.const [2, 2] : tensor<2xi32>
  %0 = circle.relu(%x) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.reshape(%0, %s) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  func.return %0, %1 : tensor<4xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @value_and_view(
// CHECK: %[[R:.*]] = odc.segment @segment_0(%{{.*}}) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK: %[[V:.*]] = circle.reshape(%[[R]], %{{.*}}) attributes {odc.placed = "host", odc.reason = "segment-result: a view of a value that leaves the segment"}
// CHECK-NEXT: func.return %[[R]], %[[V]]

// -----

// A view of what only passes through is made outside, also when the segment reads it.
func.func @view_of_input(%x: tensor<4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %s = circle.const [2, 2] : tensor<2xi32>
  %0 = circle.reshape(%x, %s) attributes {odc.segment = 0} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %1 = circle.relu(%0) attributes {odc.segment = 0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %0, %1 : tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @view_of_input(
// CHECK: %[[R:.*]] = odc.segment @segment_0(%[[X:.*]]) : (tensor<4xf32>) -> tensor<2x2xf32>
// CHECK: circle.reshape
// CHECK-NEXT: circle.relu
// CHECK: %[[V:.*]] = circle.reshape(%[[X]], %{{.*}}) attributes {odc.placed = "host"
// CHECK-NEXT: func.return %[[V]], %[[R]]

// -----

// Views of views: what is dropped or inserted depends on the shape before, so all of them are made again.
func.func @chain_of_views(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4x1xf32>) {
  %s = circle.const [1, 4, 1] : tensor<3xi32>
  %0 = circle.relu(%x) attributes {odc.segment = 0} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.reshape(%0, %s) attributes {odc.segment = 0} : (tensor<4xf32>, tensor<3xi32>) -> tensor<1x4x1xf32>
  %2 = circle.squeeze(%1) {squeeze_dims = [0]} attributes {odc.segment = 0} : (tensor<1x4x1xf32>) -> tensor<4x1xf32>
  func.return %0, %2 : tensor<4xf32>, tensor<4x1xf32>
}
// CHECK-LABEL: func.func @chain_of_views(
// CHECK: %[[R:.*]] = odc.segment @segment_0(%{{.*}}) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK: %[[A:.*]] = circle.reshape(%[[R]], %{{.*}})
// CHECK-NEXT: %[[B:.*]] = circle.squeeze(%[[A]]) {squeeze_dims = [0]}
// CHECK-NEXT: func.return %[[R]], %[[B]]

// -----

// A function has the name already: a segment's is that of its program in the module.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.relu(%x) attributes {odc.placed = "npu", odc.segment = 0} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func @segment_0(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: odc.segment @segment_0_1(
