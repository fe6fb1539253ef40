// RUN: odc-opt %s --split-input-file --odc-lift-variables | filecheck %s

// A read gives the value that the run starts with, or that was assigned before; the last one goes to the next run.
func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {
  circle.call_once() {init_subgraph_index = @initial} : () -> ()
  %v = circle.var_handle() {container = "net", shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.read_variable(%v) : (tensor<!circle.resource>) -> tensor<2xi8>
  %1 = circle.maximum(%0, %x) : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi8> loc("first")
  circle.assign_variable(%v, %1) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  %w = circle.var_handle() {container = "net", shared_name = "v"} : () -> tensor<!circle.resource>
  %2 = circle.read_variable(%w) : (tensor<!circle.resource>) -> tensor<2xi8>
  %3 = circle.minimum(%2, %x) : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi8> loc("second")
  circle.assign_variable(%w, %3) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return %1 : tensor<2xi8>
}
func.func @initial() {
  %v = circle.var_handle() {container = "net", shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.const [3, 4] : tensor<2xi8>
  circle.assign_variable(%v, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return
}
// CHECK: odc.states = [{output = 1 : i64, input = 1 : i64, initial = #circle.blob<"0x0304">}]
// CHECK: func.func @main(%[[X:.*]]: tensor<2xi8>, %[[V:.*]]: tensor<2xi8> loc("net/v")) -> (tensor<2xi8>, tensor<2xi8>) {
// CHECK-NEXT: %[[FIRST:.*]] = circle.maximum(%[[V]], %[[X]])
// CHECK-NEXT: %[[SECOND:.*]] = circle.minimum(%[[FIRST]], %[[X]])
// CHECK-NEXT: func.return %[[FIRST]], %[[SECOND]]
// CHECK-NOT: @initial

// -----

// Values pass from one variable to the other; what else the first call does stays.
func.func @main(%x: tensor<2xi8> loc("x")) -> tensor<2xi8> {
  circle.call_once() {init_subgraph_index = @initial} : () -> ()
  %a = circle.var_handle() {shared_name = "a"} : () -> tensor<!circle.resource>
  %b = circle.var_handle() {shared_name = "b"} : () -> tensor<!circle.resource>
  %0 = circle.read_variable(%a) : (tensor<!circle.resource>) -> tensor<2xi8>
  %1 = circle.read_variable(%b) : (tensor<!circle.resource>) -> tensor<2xi8>
  circle.assign_variable(%a, %1) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  circle.assign_variable(%b, %x) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return %0 : tensor<2xi8>
}
func.func @initial() {
  %0 = circle.const [0, 0] : tensor<2xi8>
  %a = circle.var_handle() {shared_name = "a"} : () -> tensor<!circle.resource>
  circle.assign_variable(%a, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  %b = circle.var_handle() {shared_name = "b"} : () -> tensor<!circle.resource>
  circle.assign_variable(%b, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  %c = circle.var_handle() {shared_name = "c"} : () -> tensor<!circle.resource>
  circle.assign_variable(%c, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return
}
// CHECK: {output = 1 : i64, input = 1 : i64, initial = #circle.blob<"0x0000">},
// CHECK-NEXT: {output = 2 : i64, input = 2 : i64, initial = #circle.blob<"0x0000">}
// CHECK: func.func @main(%[[X:.*]]: tensor<2xi8> loc("x"), %[[A:.*]]: tensor<2xi8> loc("a"), %[[B:.*]]: tensor<2xi8> loc("b")) -> (tensor<2xi8>, tensor<2xi8>, tensor<2xi8>) {
// CHECK-NEXT: circle.call_once()
// CHECK-NEXT: func.return %[[A]], %[[B]], %[[X]]
// CHECK: func.func @initial()
// CHECK-NEXT: circle.const
// CHECK-NEXT: %[[C:.*]] = circle.var_handle() {shared_name = "c"}
// CHECK-NEXT: circle.assign_variable(%[[C]]
// CHECK-NEXT: func.return
