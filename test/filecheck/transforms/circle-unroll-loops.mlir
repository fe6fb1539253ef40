// RUN: odc-opt %s --split-input-file -p "circle-unroll-loops{limit=8},cse,dce" | filecheck %s

// The number of trips follows from constants; what the loop returns keeps its name, and its functions go.
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = circle.const [0] : tensor<i32>
  %0, %1 = circle.while(%x, %zero) {cond_subgraph_index = @more, body_subgraph_index = @step} : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>) loc(fused["result", "count"])
  func.return %0 : tensor<2xf32>
}
func.func @more(%x: tensor<2xf32>, %i: tensor<i32>) -> tensor<i1> {
  %two = circle.const [2] : tensor<i32>
  %0 = circle.less(%i, %two) : (tensor<i32>, tensor<i32>) -> tensor<i1>
  func.return %0 : tensor<i1>
}
func.func @step(%x: tensor<2xf32>, %i: tensor<i32>) -> (tensor<2xf32>, tensor<i32>) {
  %one = circle.const [1] : tensor<i32>
  %y = circle.tanh(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("y")
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  func.return %y, %next : tensor<2xf32>, tensor<i32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[Y:.*]] = circle.tanh(%x) {{.*}} loc("y/trip0")
// CHECK-NEXT: %[[Z:.*]] = circle.tanh(%[[Y]]) {{.*}} loc("result")
// CHECK-NEXT: func.return %[[Z]]
// CHECK-NOT: func.func

// -----

// Trips read rows of a list and write rows of another one, which becomes one CONCATENATION.
func.func @main(%x: tensor<2x1x3xf32>) -> tensor<2x1x3xf32> {
  %zero = circle.const [0] : tensor<i32>
  %list = circle.const [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] : tensor<2x1x3xf32>
  %0, %1, %2 = circle.while(%zero, %list, %x) {cond_subgraph_index = @more, body_subgraph_index = @step} : (tensor<i32>, tensor<2x1x3xf32>, tensor<2x1x3xf32>) -> (tensor<i32>, tensor<2x1x3xf32>, tensor<2x1x3xf32>)
  %3 = circle.relu(%1) : (tensor<2x1x3xf32>) -> tensor<2x1x3xf32>
  func.return %3 : tensor<2x1x3xf32>
}
func.func @more(%i: tensor<i32>, %list: tensor<2x1x3xf32>, %x: tensor<2x1x3xf32>) -> tensor<i1> {
  %two = circle.const [2] : tensor<i32>
  %0 = circle.less(%i, %two) : (tensor<i32>, tensor<i32>) -> tensor<i1>
  func.return %0 : tensor<i1>
}
func.func @step(%i: tensor<i32>, %list: tensor<2x1x3xf32>, %x: tensor<2x1x3xf32>) -> (tensor<i32>, tensor<2x1x3xf32>, tensor<2x1x3xf32>) {
  %one = circle.const [1] : tensor<i32>
  %first = circle.const [1] : tensor<1xi32>
  %shape = circle.const [1, 1, 3] : tensor<3xi32>
  %zeros = circle.const [0, 0] : tensor<2xi32>
  %row = circle.gather(%x, %i) {axis = 0} : (tensor<2x1x3xf32>, tensor<i32>) -> tensor<1x3xf32>
  %y = circle.tanh(%row) : (tensor<1x3xf32>) -> tensor<1x3xf32>
  %item = circle.reshape(%y, %shape) {new_shape = [1, 1, 3]} : (tensor<1x3xf32>, tensor<3xi32>) -> tensor<1x1x3xf32>
  %place = circle.reshape(%i, %first) {new_shape = [1]} : (tensor<i32>, tensor<1xi32>) -> tensor<1xi32>
  %start = circle.concatenation(%place, %zeros) {axis = 0} : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %written = circle.dynamic_update_slice(%list, %item, %start) : (tensor<2x1x3xf32>, tensor<1x1x3xf32>, tensor<3xi32>) -> tensor<2x1x3xf32>
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  func.return %next, %written, %x : tensor<i32>, tensor<2x1x3xf32>, tensor<2x1x3xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.slice(%x
// CHECK: %[[A:.*]] = circle.reshape({{.*}}) {{.*}} -> tensor<1x1x3xf32>
// CHECK: circle.slice(%x
// CHECK: %[[B:.*]] = circle.reshape({{.*}}) {{.*}} -> tensor<1x1x3xf32>
// CHECK-NEXT: %[[LIST:.*]] = circle.concatenation(%[[A]], %[[B]])
// CHECK-NEXT: circle.relu(%[[LIST]])

// -----

// These stay: the count is an input; nine operators are too many; a random number is an effect; and the result is a
// constant, which no operator computes.
func.func @main(%x: tensor<2xf32>, %n: tensor<i32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<i32>) {
  %zero = circle.const [0] : tensor<i32>
  %seven = circle.const [-7] : tensor<i32>
  %0, %1 = circle.while(%x, %n) {cond_subgraph_index = @more, body_subgraph_index = @step} : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
  %2, %3 = circle.while(%0, %seven) {cond_subgraph_index = @more, body_subgraph_index = @step} : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
  %4, %5 = circle.while(%2, %zero) {cond_subgraph_index = @more, body_subgraph_index = @random} : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
  %6, %7 = circle.while(%4, %zero) {cond_subgraph_index = @more, body_subgraph_index = @step} : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
  func.return %0, %2, %4, %7 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<i32>
}
func.func @more(%x: tensor<2xf32>, %i: tensor<i32>) -> tensor<i1> {
  %two = circle.const [2] : tensor<i32>
  %0 = circle.less(%i, %two) : (tensor<i32>, tensor<i32>) -> tensor<i1>
  func.return %0 : tensor<i1>
}
func.func @step(%x: tensor<2xf32>, %i: tensor<i32>) -> (tensor<2xf32>, tensor<i32>) {
  %one = circle.const [1] : tensor<i32>
  %y = circle.tanh(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  func.return %y, %next : tensor<2xf32>, tensor<i32>
}
func.func @random(%x: tensor<2xf32>, %i: tensor<i32>) -> (tensor<2xf32>, tensor<i32>) {
  %one = circle.const [1] : tensor<i32>
  %shape = circle.const [2] : tensor<1xi32>
  %y = circle.random_uniform(%shape) : (tensor<1xi32>) -> tensor<2xf32>
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  func.return %y, %next : tensor<2xf32>, tensor<i32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.while(%x, %n)
// CHECK: circle.while
// CHECK: circle.while
// CHECK-SAME: @random
// CHECK: circle.while
// CHECK: func.func @more
// CHECK: func.func @step
