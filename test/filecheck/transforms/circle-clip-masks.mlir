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

// Truths whose numbers something else reads, which keeps them.
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
// CHECK: [[FAR:%.+]] = circle.const [-3.0e+38]
// CHECK: [[NEAR:%.+]] = circle.const [-2048.0]
// CHECK: [[KEPT:%.+]] = circle.select_v2({{.*}}, [[FAR]])
// CHECK: [[MASK:%.+]] = circle.select_v2({{.*}}, [[NEAR]])
// CHECK: circle.add({{.*}}, [[MASK]])
// CHECK: circle.abs([[KEPT]])

// -----

// A sum that something else reads, or that is given back, stays beside the one that SOFTMAX reads.
func.func @sums_elsewhere(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %m = circle.const [0.0, -1.0e+9] : tensor<2xf32>
  %0 = circle.add(%x, %m) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.relu(%0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @sums_elsewhere(
// CHECK: [[FAR:%.+]] = circle.const [0.0, -1.0e+09]
// CHECK: [[NEAR:%.+]] = circle.const [0.0, -2048.0]
// CHECK: [[KEPT:%.+]] = circle.add({{.*}}, [[FAR]])
// CHECK: [[SUM:%.+]] = circle.add({{.*}}, [[NEAR]])
// CHECK: [[SHARES:%.+]] = circle.softmax([[SUM]])
// CHECK: [[POSITIVE:%.+]] = circle.relu([[KEPT]])
// CHECK: return [[KEPT]], [[SHARES]], [[POSITIVE]]

// -----

// What only moves, selects, limits, adds, subtracts and scales is no obstacle; numbers in other units are other ones.
func.func @on_the_way(%x: tensor<1x2x2xf32>, %c: tensor<1x2xi1>, %s: tensor<2xi32>) -> tensor<2x2xf32> {
  %axis = circle.const [1] : tensor<i32>
  %shape = circle.const [2, 2] : tensor<2xi32>
  %z = circle.const [0.0] : tensor<f32>
  %m = circle.const [-3.4028235e+38] : tensor<f32>
  %n = circle.const [0.0, 1.0e+30] : tensor<2xf32>
  %half = circle.const [0.5] : tensor<f32>
  %0 = circle.select_v2(%c, %z, %m) : (tensor<1x2xi1>, tensor<f32>, tensor<f32>) -> tensor<1x2xf32>
  %1 = circle.expand_dims(%0, %axis) : (tensor<1x2xf32>, tensor<i32>) -> tensor<1x1x2xf32>
  %2 = circle.add(%x, %1) : (tensor<1x2x2xf32>, tensor<1x1x2xf32>) -> tensor<1x2x2xf32>
  %3 = circle.sub(%2, %n) : (tensor<1x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2xf32>
  %4 = circle.mul(%3, %half) : (tensor<1x2x2xf32>, tensor<f32>) -> tensor<1x2x2xf32>
  %5 = circle.reshape(%4, %shape) : (tensor<1x2x2xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %6 = circle.softmax(%5) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %6 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @on_the_way(
// CHECK-DAG: [[LOW:%.+]] = circle.const [-4096.0]
// CHECK-DAG: [[HIGH:%.+]] = circle.const [0.0, 4096.0]
// CHECK: circle.select_v2({{.*}}, [[LOW]])
// CHECK: circle.sub({{.*}}, [[HIGH]])

// -----

// Whole numbers times a large one are whole multiples of it; those of a real number may be anything.
func.func @multiples(%x: tensor<2x2xf32>, %c: tensor<1x2xi32>, %r: tensor<1x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %one = circle.const [1.0] : tensor<f32>
  %m = circle.const [-1.0e+9] : tensor<f32>
  %0 = circle.cast(%c) {in_data_type = int32, out_data_type = float32} : (tensor<1x2xi32>) -> tensor<1x2xf32>
  %1 = circle.sub(%one, %0) : (tensor<f32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  %2 = circle.mul(%1, %m) : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
  %3 = circle.add(%x, %2) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %4 = circle.softmax(%3) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %5 = circle.sub(%one, %r) : (tensor<f32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  %6 = circle.mul(%5, %m) : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
  %7 = circle.add(%x, %6) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %8 = circle.softmax(%7) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %4, %8 : tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @multiples(
// CHECK-DAG: [[FAR:%.+]] = circle.const [-1.0e+09]
// CHECK-DAG: [[NEAR:%.+]] = circle.const [-2048.0]
// CHECK: [[WHOLE:%.+]] = circle.sub(
// CHECK: circle.mul([[WHOLE]], [[NEAR]])
// CHECK: [[REAL:%.+]] = circle.sub(
// CHECK: circle.mul([[REAL]], [[FAR]])

// -----

// A row that is hidden altogether, and numbers that hide nothing.
func.func @left(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %row = circle.const [0.0, 0.0, -1.0e+9, -1.0e+9] : tensor<2x2xf32>
  %small = circle.const [0.0, -2047.0] : tensor<2xf32>
  %0 = circle.add(%x, %row) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.add(%x, %small) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %3 = circle.softmax(%2) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @left(
// CHECK-NOT: -2048.0
// CHECK-NOT: clipped
