// RUN: odc-opt %s --split-input-file --circle-equalize-channels | filecheck %s
// RUN: odc-opt %s --split-input-file --circle-equalize-channels='powers-of-two=true' | filecheck %s --check-prefix EXACT
// RUN: odc-opt %s --split-input-file --circle-equalize-channels='relu6=recorded' | filecheck %s --check-prefix RECORDED

// Both layers get the geometric mean of the ranges; the bias goes with the first.
func.func @pair(%x: tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32> {
  %w = circle.const [1.0, 64.0] : tensor<2x1x1x1xf32>
  %b = circle.const [1.0, 8.0] : tensor<2xf32>
  %v = circle.const [16.0, 4.0] : tensor<1x1x1x2xf32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x2x2x1xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32, #circle.qparams<min = [0.0], max = [9.0]>>
  %1 = circle.conv_2d(%0, %v) {padding = same, stride = [1, 1]} : (tensor<1x2x2x2xf32, #circle.qparams<min = [0.0], max = [9.0]>>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x1xf32>
  func.return %1 : tensor<1x2x2x1xf32>
}
// CHECK-LABEL: func.func @pair(
// CHECK: %[[W:.*]] = circle.const [4.0, 16.0] : tensor<2x1x1x1xf32>
// CHECK: %[[B:.*]] = circle.const [4.0, 2.0] : tensor<2xf32>
// CHECK: %[[Y:.*]] = circle.conv_2d(%{{[^,]*}}, %[[W]], %[[B]]) {{.*}} -> tensor<1x2x2x2xf32>
// CHECK: %[[V:.*]] = circle.const [4.0, 16.0] : tensor<1x1x1x2xf32>
// CHECK: circle.conv_2d(%[[Y]], %[[V]])

// -----

// Factors as powers of two; a channel that is nothing stays, and no bias grows beyond the largest.
func.func @exact(%x: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.0, 3.0, 0.0, 1.0] : tensor<4x1xf32>
  %b = circle.const [1.0, 0.0, 5.0, 5.0] : tensor<4xf32>
  %v = circle.const [16.0, 1.0, 4.0, 4.0] : tensor<1x4xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<1x4xf32>
  %1 = circle.fully_connected(%0, %v) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x1xf32>
  func.return %1 : tensor<1x1xf32>
}
// EXACT-LABEL: func.func @exact(
// EXACT: circle.const [4.0, 1.5, 0.0, 1.0] : tensor<4x1xf32>
// EXACT: circle.const [4.0, 0.0, 5.0, 5.0] : tensor<4xf32>
// EXACT: circle.const [4.0, 2.0, 4.0, 4.0] : tensor<1x4xf32>

// -----

// Through a pool and a view of whole pixels: the columns of the second layer take turns.
func.func @between(%x: tensor<1x2x4x1xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.0, 4.0] : tensor<2x1x1x1xf32>
  %v = circle.const [4.0, 1.0, 2.0, -0.5] : tensor<1x4xf32>
  %s = circle.const [1, 4] : tensor<2xi32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x4x1xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x2xf32>
  %1 = circle.max_pool_2d(%0) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x4x2xf32>) -> tensor<1x1x2x2xf32>
  %2 = circle.reshape(%1, %s) {new_shape = [1, 4]} : (tensor<1x1x2x2xf32>, tensor<2xi32>) -> tensor<1x4xf32>
  %3 = circle.fully_connected(%2, %v) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x1xf32>
  func.return %3 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @between(
// CHECK: circle.const [2.0, 2.0] : tensor<2x1x1x1xf32>
// CHECK: circle.const [2.0, 2.0, 1.0, -1.0] : tensor<1x4xf32>

// -----

// RELU6 stays, unless what was recorded ends below its clip: it is then RELU.
func.func @relu6(%x: tensor<1x1xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = circle.const [1.0, 4.0] : tensor<2x1xf32>
  %v = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %w2 = circle.const [1.0, 4.0] : tensor<2x1xf32>
  %v2 = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) {activation = relu6} : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32, #circle.qparams<min = [0.0], max = [5.5]>>
  %1 = circle.fully_connected(%0, %v) : (tensor<1x2xf32, #circle.qparams<min = [0.0], max = [5.5]>>, tensor<1x2xf32>) -> tensor<1x1xf32>
  %2 = circle.fully_connected(%x, %w2) {activation = relu6} : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32, #circle.qparams<min = [0.0], max = [6.0]>>
  %3 = circle.fully_connected(%2, %v2) : (tensor<1x2xf32, #circle.qparams<min = [0.0], max = [6.0]>>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %1, %3 : tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @relu6(
// CHECK: circle.fully_connected(%{{.*}}) {activation = relu6}
// CHECK: circle.fully_connected(%{{.*}}) {activation = relu6}
// RECORDED-LABEL: func.func @relu6(
// RECORDED: circle.const [2.0, 2.0] : tensor<2x1xf32>
// RECORDED: circle.fully_connected(%{{.*}}) {activation = relu} : {{.*}} -> tensor<1x2xf32>
// RECORDED: circle.fully_connected(%{{.*}}) {activation = relu6}

// -----

// Left alone: two readers, and an operator that mixes or bends channels.
func.func @left(%x: tensor<1x1xf32>) -> (tensor<1x2xf32>, tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = circle.const [1.0, 4.0] : tensor<2x1xf32>
  %v = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %w2 = circle.const [1.0, 4.0] : tensor<2x1xf32>
  %v2 = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%0, %v) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  %2 = circle.fully_connected(%x, %w2) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32>
  %3 = circle.logistic(%2) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %4 = circle.fully_connected(%3, %v2) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0, %1, %4 : tensor<1x2xf32>, tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @left(
// CHECK: circle.const [1.0, 4.0]
// CHECK-NOT: circle.const [2.0, 2.0]

// -----

// Columns that are returned beside what is made of them all keep their scale, and the output its recorded range.
func.func @returned(%x: tensor<1x1xf32>) -> tensor<1x3xf32, #circle.qparams<min = [-9.0], max = [9.0]>> {
  %w = circle.const [1.0, 64.0, 4.0] : tensor<3x1xf32>
  %v = circle.const [16.0, 4.0, 256.0, 1.0, 1.0, 1.0] : tensor<2x3xf32>
  %begin = circle.const [0, 0] : tensor<2xi32>
  %size = circle.const [1, 1] : tensor<2xi32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<3x1xf32>) -> tensor<1x3xf32, #circle.qparams<min = [-8.0], max = [8.0]>>
  %1 = circle.fully_connected(%0, %v) : (tensor<1x3xf32, #circle.qparams<min = [-8.0], max = [8.0]>>, tensor<2x3xf32>) -> tensor<1x2xf32>
  %2 = circle.slice(%0, %begin, %size) : (tensor<1x3xf32, #circle.qparams<min = [-8.0], max = [8.0]>>, tensor<2xi32>, tensor<2xi32>) -> tensor<1x1xf32>
  %3 = circle.concatenation(%1, %2) {axis = 1} : (tensor<1x2xf32>, tensor<1x1xf32>) -> tensor<1x3xf32, #circle.qparams<min = [-9.0], max = [9.0]>>
  func.return %3 : tensor<1x3xf32, #circle.qparams<min = [-9.0], max = [9.0]>>
}
// CHECK-LABEL: func.func @returned(
// CHECK: circle.const [1.0, 32.0, 64.0] : tensor<3x1xf32>
// CHECK: circle.fully_connected({{.*}} -> tensor<1x3xf32>
// CHECK: circle.concatenation({{.*}} -> tensor<1x3xf32, #circle.qparams<min = [-9.0], max = [9.0]>>
