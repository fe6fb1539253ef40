// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=split_mean_axes,transform_min_relu_to_relu6,fuse_rsqrt' | filecheck %s

func.func @split_mean_axes(%0: tensor<1x4x5x3xf32>) -> tensor<1x1x5x1xf32> {
  %1 = circle.const [1, 3] : tensor<2xi32>
  %2 = circle.mean(%0, %1) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<2xi32>) -> tensor<1x1x5x1xf32>
  func.return %2 : tensor<1x1x5x1xf32>
}
// CHECK-LABEL: func.func @split_mean_axes(
// CHECK: circle.mean({{.*}} -> tensor<1x1x5x3xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x1x5x1xf32>
// CHECK: func.return

// -----

func.func @split_mean_axes_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x1x1x3xf32> {
  %1 = circle.const [2, 1] : tensor<2xi32>
  %2 = circle.mean(%0, %1) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<2xi32>) -> tensor<1x1x1x3xf32>
  func.return %2 : tensor<1x1x1x3xf32>
}
// CHECK-LABEL: func.func @split_mean_axes_not(
// CHECK: circle.mean({{.*}} -> tensor<1x1x1x3xf32>
// CHECK: func.return

// -----

func.func @transform_min_relu_to_relu6(%0: tensor<9xf32>) -> tensor<9xf32> {
  %1 = circle.const [6.0] : tensor<1xf32>
  %2 = circle.minimum(%0, %1) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  %3 = circle.relu(%2) : (tensor<9xf32>) -> tensor<9xf32>
  func.return %3 : tensor<9xf32>
}
// CHECK-LABEL: func.func @transform_min_relu_to_relu6(
// CHECK-NOT: circle.minimum(
// CHECK-NOT: circle.relu(
// CHECK: circle.relu6({{.*}} -> tensor<9xf32>
// CHECK: func.return

// -----

func.func @transform_min_relu_to_relu6_not(%0: tensor<9xf32>) -> tensor<9xf32> {
  %1 = circle.const [5.0] : tensor<1xf32>
  %2 = circle.minimum(%0, %1) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  %3 = circle.relu(%2) : (tensor<9xf32>) -> tensor<9xf32>
  func.return %3 : tensor<9xf32>
}
// CHECK-LABEL: func.func @transform_min_relu_to_relu6_not(
// CHECK: circle.minimum({{.*}} -> tensor<9xf32>
// CHECK: circle.relu({{.*}} -> tensor<9xf32>
// CHECK: func.return

// -----

func.func @fuse_rsqrt(%0: tensor<3xf32>) -> tensor<3xf32> {
  %1 = circle.const [1.0] : tensor<1xf32>
  %2 = circle.sqrt(%0) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.div(%1, %2) : (tensor<1xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %3 : tensor<3xf32>
}
// CHECK-LABEL: func.func @fuse_rsqrt(
// CHECK-NOT: circle.div(
// CHECK-NOT: circle.sqrt(
// CHECK: circle.rsqrt({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @fuse_rsqrt_not(%0: tensor<3xf32>) -> tensor<3xf32> {
  %1 = circle.const [1.0] : tensor<1xf32>
  %2 = circle.exp(%0) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.div(%1, %2) : (tensor<1xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %3 : tensor<3xf32>
}
// CHECK-LABEL: func.func @fuse_rsqrt_not(
// CHECK: circle.exp({{.*}} -> tensor<3xf32>
// CHECK: circle.div({{.*}} -> tensor<3xf32>
// CHECK: func.return
