// RUN: odc-opt %s --split-input-file --quant-normalize-inputs='moments="%S/Inputs/input-moments-prepared.npz"' | filecheck %s

// What gives columns of different sizes one size stays float, with all that is on the way to what computes.
func.func @main(%x: tensor<1x2xf32> loc("x"), %i: tensor<1xi32> loc("i")) -> tensor<1x4xf32> {
  %c = circle.const [1.0, 0.01] : tensor<2xf32>
  %t = circle.const [0.5, 0.25, 0.25, 0.5] : tensor<2x2xf32>
  %0 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.tanh(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %2 = circle.gather(%t, %i) {axis = 0} : (tensor<2x2xf32>, tensor<1xi32>) -> tensor<1x2xf32>
  %3 = circle.concatenation(%2, %1) {axis = 1} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
  %4 = circle.softmax(%3) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %4 : tensor<1x4xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.mul({{.*}}quant.precision = "float", quant.reason = "it prepares float inputs
// CHECK: circle.tanh({{.*}}quant.precision = "float"
// CHECK: circle.gather(
// CHECK-NOT: quant.precision
// CHECK: circle.softmax(

// -----

// One factor for all columns changes nothing of what codes can say, nor do operators that move them as they are.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32> {
  %c = circle.const [0.01] : tensor<1xf32>
  %s = circle.const [1, 2] : tensor<2xi32>
  %0 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
  %1 = circle.reshape(%0, %s) : (tensor<1x2xf32>, tensor<2xi32>) -> tensor<1x2xf32>
  %2 = circle.softmax(%1) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %2 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: quant.precision
// CHECK: circle.softmax(

// -----

// Columns of one size need no such thing.
func.func @main(%x: tensor<1x2xf32> loc("even")) -> tensor<1x2xf32> {
  %c = circle.const [1.0, 0.01] : tensor<2xf32>
  %0 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.softmax(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %1 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: quant.precision
// CHECK: circle.softmax(

// -----

// A model that does nothing else is no preparation.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x2xf32> {
  %c = circle.const [1.0, 0.01] : tensor<2xf32>
  %0 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.tanh(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %1 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: quant.precision
// CHECK: circle.tanh(

// -----

// Columns that are cut apart have scales of their own behind that.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  %a = circle.const [0, 0] : tensor<2xi32>
  %b = circle.const [0, 1] : tensor<2xi32>
  %s = circle.const [1, 1] : tensor<2xi32>
  %0 = circle.slice(%x, %a, %s) : (tensor<1x2xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<1x1xf32>
  %1 = circle.slice(%x, %b, %s) : (tensor<1x2xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<1x1xf32>
  %2 = circle.softmax(%0) : (tensor<1x1xf32>) -> tensor<1x1xf32>
  %3 = circle.softmax(%1) : (tensor<1x1xf32>) -> tensor<1x1xf32>
  func.return %2, %3 : tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.slice({{.*}}quant.precision = "float"
// CHECK: circle.slice({{.*}}quant.precision = "float"

// -----

// Joined with other values, columns become as large as the largest of these; layers behind take that back.
func.func @main(%x: tensor<1x2xf32> loc("x"), %i: tensor<1xi32> loc("i")) -> tensor<1x1xf32> {
  %t = circle.const [0.5, 0.25, 0.25, 0.5] : tensor<2x2xf32>
  %w = circle.const [8.0, 4.0, 2.0, 0.01] : tensor<1x4xf32>
  %0 = circle.gather(%t, %i) {axis = 0} : (tensor<2x2xf32>, tensor<1xi32>) -> tensor<1x2xf32> loc("e")
  %1 = circle.concatenation(%0, %x) {axis = -1} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
  %2 = circle.fully_connected(%1, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x1xf32>
  func.return %2 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[F:.*]] = circle.const [0.5, 0.005] : tensor<2xf32>
// CHECK: %[[N:.*]] = circle.mul(%{{[^,]*}}, %[[F]]) {{.*}}quant.precision = "float"
// CHECK: %[[J:.*]] = circle.concatenation(%{{[^,]*}}, %[[N]])
// CHECK-NOT: quant.precision
// CHECK: %[[W:.*]] = circle.const [8.0, 4.0, 4.0, 2.0] : tensor<1x4xf32>
// CHECK: circle.fully_connected(%[[J]], %[[W]])

// -----

// What else reads the joined values cannot take factors back.
func.func @main(%x: tensor<1x2xf32> loc("x"), %i: tensor<1xi32> loc("i")) -> (tensor<1x1xf32>, tensor<1x4xf32>) {
  %t = circle.const [0.5, 0.25, 0.25, 0.5] : tensor<2x2xf32>
  %w = circle.const [8.0, 4.0, 2.0, 0.01] : tensor<1x4xf32>
  %0 = circle.gather(%t, %i) {axis = 0} : (tensor<2x2xf32>, tensor<1xi32>) -> tensor<1x2xf32> loc("e")
  %1 = circle.concatenation(%0, %x) {axis = 1} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
  %2 = circle.fully_connected(%1, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x1xf32>
  func.return %2, %1 : tensor<1x1xf32>, tensor<1x4xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: quant.precision
// CHECK: circle.fully_connected(

// -----

// Inputs that are joined are normalised once, behind that, though each has columns that differ.
func.func @main(%x: tensor<1x2xf32> loc("x"), %t: tensor<1x2xf32> loc("t")) -> tensor<1x1xf32> {
  %w = circle.const [8.0, 4.0, 2.0, 0.01] : tensor<1x4xf32>
  %0 = circle.concatenation(%x, %t) {axis = 1} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
  %1 = circle.fully_connected(%0, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x1xf32>
  func.return %1 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul
// CHECK: %[[J:.*]] = circle.concatenation(%x, %t) {{.*}}quant.precision = "float"
// CHECK: %[[F:.*]] = circle.const [1.0, 0.01, 1.0, 0.25] : tensor<4xf32>
// CHECK: %[[N:.*]] = circle.mul(%[[J]], %[[F]])
// CHECK-NOT: circle.mul
// CHECK: circle.fully_connected(%[[N]],
