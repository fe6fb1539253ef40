// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=split_group_dimension,fuse_rope,fuse_instnorm,fuse_preactivation_batchnorm,split_mean_axes' | filecheck %s

// Rows that are groups of channels get a dimension: [N, groups, channels, pixels].
func.func @groups(%x: tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32> {
  %rows = circle.const [2, 12] : tensor<2xi32>
  %image = circle.const [1, 4, 3, 2] : tensor<4xi32>
  %axis = circle.const [-1] : tensor<1xi32>
  %epsilon = circle.const [1.0e-05] : tensor<1xf32>
  %0 = circle.reshape(%x, %rows) {new_shape = [2, 12]} : (tensor<1x4x3x2xf32>, tensor<2xi32>) -> tensor<2x12xf32>
  %1 = circle.mean(%0, %axis) {keep_dims = true} : (tensor<2x12xf32>, tensor<1xi32>) -> tensor<2x1xf32>
  %2 = circle.sub(%0, %1) : (tensor<2x12xf32>, tensor<2x1xf32>) -> tensor<2x12xf32>
  %3 = circle.mul(%2, %2) : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  %4 = circle.mean(%3, %axis) {keep_dims = true} : (tensor<2x12xf32>, tensor<1xi32>) -> tensor<2x1xf32>
  %5 = circle.add(%4, %epsilon) : (tensor<2x1xf32>, tensor<1xf32>) -> tensor<2x1xf32>
  %6 = circle.rsqrt(%5) : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %7 = circle.mul(%2, %6) : (tensor<2x12xf32>, tensor<2x1xf32>) -> tensor<2x12xf32>
  %8 = circle.reshape(%7, %image) {new_shape = [1, 4, 3, 2]} : (tensor<2x12xf32>, tensor<4xi32>) -> tensor<1x4x3x2xf32>
  func.return %8 : tensor<1x4x3x2xf32>
}
// CHECK-LABEL: func.func @groups(
// CHECK: %[[R:.*]] = circle.reshape({{.*}} -> tensor<1x2x2x6xf32>
// CHECK: circle.mean(%[[R]]{{.*}} -> tensor<1x2x2x1xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.rsqrt({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x4x3x2xf32>

// -----

func.func @rotary(%x: tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32> {
  %low = circle.const [0, 0, 0, 0] : tensor<4xi32>
  %high = circle.const [0, 0, 0, 1] : tensor<4xi32>
  %size = circle.const [1, 1, 1, 1] : tensor<4xi32>
  %cosine = circle.const [3.0, 4.0] : tensor<2xf32>
  %sine = circle.const [5.0, 6.0] : tensor<2xf32>
  %0 = circle.slice(%x, %low, %size) : (tensor<1x1x1x2xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x1x1x1xf32>
  %1 = circle.slice(%x, %high, %size) : (tensor<1x1x1x2xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x1x1x1xf32>
  %2 = circle.neg(%1) : (tensor<1x1x1x1xf32>) -> tensor<1x1x1x1xf32>
  %3 = circle.concatenation(%2, %0) {axis = -1} : (tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x1x1x2xf32>
  %4 = circle.mul(%x, %cosine) : (tensor<1x1x1x2xf32>, tensor<2xf32>) -> tensor<1x1x1x2xf32>
  %5 = circle.mul(%3, %sine) : (tensor<1x1x1x2xf32>, tensor<2xf32>) -> tensor<1x1x1x2xf32>
  %6 = circle.add(%4, %5) : (tensor<1x1x1x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  func.return %6 : tensor<1x1x1x2xf32>
}
// CHECK-LABEL: func.func @rotary(
// CHECK-DAG: %[[S:.*]] = circle.const [5.0, 6.0] : tensor<1x1x1x2xf32>
// CHECK-DAG: %[[C:.*]] = circle.const [3.0, 4.0] : tensor<1x1x1x2xf32>
// CHECK: circle.rope(%{{.*}}, %[[S]], %[[C]])
// CHECK-NOT: circle.slice

// -----

func.func @instance(%x: tensor<1x4x5x2xf32>) -> tensor<1x4x5x2xf32> {
  %axes = circle.const [1, 2] : tensor<2xi32>
  %epsilon = circle.const [1.0e-05] : tensor<1xf32>
  %gamma = circle.const [2.0, 3.0] : tensor<2xf32>
  %beta = circle.const [4.0, 5.0] : tensor<2xf32>
  %0 = circle.mean(%x, %axes) {keep_dims = true} : (tensor<1x4x5x2xf32>, tensor<2xi32>) -> tensor<1x1x1x2xf32>
  %1 = circle.sub(%x, %0) : (tensor<1x4x5x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x4x5x2xf32>
  %2 = circle.mul(%1, %1) : (tensor<1x4x5x2xf32>, tensor<1x4x5x2xf32>) -> tensor<1x4x5x2xf32>
  %3 = circle.mean(%2, %axes) {keep_dims = true} : (tensor<1x4x5x2xf32>, tensor<2xi32>) -> tensor<1x1x1x2xf32>
  %4 = circle.add(%3, %epsilon) : (tensor<1x1x1x2xf32>, tensor<1xf32>) -> tensor<1x1x1x2xf32>
  %5 = circle.rsqrt(%4) : (tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  %6 = circle.mul(%1, %5) : (tensor<1x4x5x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x4x5x2xf32>
  %7 = circle.mul(%6, %gamma) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %8 = circle.add(%7, %beta) {activation = relu} : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %8 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @instance(
// CHECK-DAG: %[[G:.*]] = circle.const [2.0, 3.0]
// CHECK-DAG: %[[B:.*]] = circle.const [4.0, 5.0]
// CHECK: circle.instance_norm(%{{.*}}, %[[G]], %[[B]]){{.*}}relu
// CHECK-NOT: circle.mean

// -----

// gamma 2 and beta 6: the first layer gets 3 more, the second twice the weights and 3 less, the sum stays.
func.func @pre_activation(%x: tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32> {
  %w = circle.const [7.0] : tensor<1x1x1x1xf32>
  %b = circle.const [1.0] : tensor<1xf32>
  %gamma = circle.const [2.0] : tensor<1xf32>
  %beta = circle.const [6.0] : tensor<1xf32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %1 = circle.mul(%0, %gamma) : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %2 = circle.add(%1, %beta) {activation = relu} : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %3 = circle.conv_2d(%2, %w, %b) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %4 = circle.add(%0, %3) : (tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32>
  func.return %4 : tensor<1x2x2x1xf32>
}
// CHECK-LABEL: func.func @pre_activation(
// CHECK: %[[B1:.*]] = circle.const [4.0]
// CHECK: %[[X:.*]] = circle.conv_2d(%{{.*}}, %{{.*}}, %[[B1]])
// CHECK: %[[R:.*]] = circle.relu(%[[X]])
// CHECK-DAG: %[[B2:.*]] = circle.const [-2.0]
// CHECK-DAG: %[[W2:.*]] = circle.const [14.0]
// CHECK: %[[Y:.*]] = circle.conv_2d(%[[R]], %[[W2]], %[[B2]])
// CHECK: circle.add(%[[X]], %[[Y]])

// -----

func.func @runs(%x: tensor<2x3x4xf32>) -> tensor<1x3x1xf32> {
  %axes = circle.const [0, 2] : tensor<2xi32>
  %0 = circle.mean(%x, %axes) {keep_dims = true} : (tensor<2x3x4xf32>, tensor<2xi32>) -> tensor<1x3x1xf32>
  func.return %0 : tensor<1x3x1xf32>
}
// CHECK-LABEL: func.func @runs(
// CHECK: circle.mean({{.*}} -> tensor<1x3x4xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x3x1xf32>
