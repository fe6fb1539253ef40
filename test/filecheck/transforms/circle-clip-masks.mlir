// RUN: odc-opt %s --split-input-file --circle-clip-masks | filecheck %s

// A causal mask on either side; a beta under 1 takes larger numbers.
func.func @sums(%x: tensor<1x2x2xf32>) -> (tensor<1x2x2xf32>, tensor<1x2x2xf32>) {
  %m = circle.const [0.0, -3.4028235e+38, 0.5, -1.0] : tensor<2x2xf32>
  %n = circle.const [0.0, -1.0e+30, 0.0, -2048.0] : tensor<2x2xf32>
  %0 = circle.add(%x, %m) : (tensor<1x2x2xf32>, tensor<2x2xf32>) -> tensor<1x2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %2 = circle.add(%n, %x) : (tensor<2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  %3 = circle.softmax(%2) {beta = 0.5} : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  func.return %1, %3 : tensor<1x2x2xf32>, tensor<1x2x2xf32>
}
// CHECK-LABEL: func.func @sums(
// CHECK: circle.const [0.0, -2048.0, 0.5, -1.0]
// CHECK: circle.const [0.0, -4096.0, 0.0, -2048.0]

// -----

func.func @selection(%x: tensor<2x2xf32>, %c: tensor<2x2xi1>) -> tensor<2x2xf32> {
  %m = circle.const [-1.0e+9] : tensor<f32>
  %0 = circle.select_v2(%c, %x, %m) : (tensor<2x2xi1>, tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @selection(
// CHECK: circle.const [-2048.0]

// -----

// A mask of truths becomes numbers, which two layers add to their scores.
func.func @truths(%x: tensor<2x2xf32>, %c: tensor<1x2xi1>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %z = circle.const [0.0] : tensor<1xf32>
  %m = circle.const [-3.4028235e+38] : tensor<1xf32>
  %n = circle.select_v2(%c, %z, %m) : (tensor<1x2xi1>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2xf32>
  %0 = circle.add(%x, %n) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.add(%n, %1) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %3 = circle.softmax(%2) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @truths(
// CHECK: circle.const [-2048.0]

// -----

// Truths whose numbers something else reads.
func.func @read_elsewhere(%x: tensor<2x2xf32>, %c: tensor<1x2xi1>) -> (tensor<2x2xf32>, tensor<1x2xf32>) {
  %z = circle.const [0.0] : tensor<1xf32>
  %m = circle.const [-3.0e+38] : tensor<1xf32>
  %n = circle.select_v2(%c, %z, %m) : (tensor<1x2xi1>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2xf32>
  %0 = circle.add(%x, %n) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.abs(%n) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %1, %2 : tensor<2x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NOT: -2048.0

// -----

// A row that is hidden altogether, numbers that hide nothing, a sum that something else reads or that is given back.
func.func @left(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %row = circle.const [0.0, 0.0, -1.0e+9, -1.0e+9] : tensor<2x2xf32>
  %small = circle.const [0.0, -2047.0] : tensor<2xf32>
  %m = circle.const [0.0, -1.0e+9] : tensor<2xf32>
  %0 = circle.add(%x, %row) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.add(%x, %small) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %3 = circle.softmax(%2) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %4 = circle.add(%x, %m) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %5 = circle.softmax(%4) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %6 = circle.relu(%4) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %7 = circle.add(%x, %m) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %8 = circle.softmax(%7) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1, %3, %5, %6, %7, %8 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @left(
// CHECK-NOT: -2048.0
// CHECK-NOT: clipped
