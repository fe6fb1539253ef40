// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_mean_with_mean,fuse_transpose_with_mean,fuse_mul_with_div,transform_min_max_to_relu6,transform_sqrt_div_to_rsqrt_mul,replace_sub_with_add' | filecheck %s

func.func @fuse_mean_with_mean(%0: tensor<1x4x5x3xf32>) -> tensor<1x3xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2 = circle.mean(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xi32>) -> tensor<1x5x3xf32>
  %3 = circle.const [1] : tensor<1xi32>
  %4 = circle.mean(%2, %3) : (tensor<1x5x3xf32>, tensor<1xi32>) -> tensor<1x3xf32>
  func.return %4 : tensor<1x3xf32>
}
// CHECK-LABEL: func.func @fuse_mean_with_mean(
// CHECK: circle.mean({{.*}} -> tensor<1x3xf32>
// CHECK: func.return

// -----

func.func @fuse_mean_with_mean_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x1x3xf32> {
  %1 = circle.const [2] : tensor<1xi32>
  %2 = circle.mean(%0, %1) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<1xi32>) -> tensor<1x4x1x3xf32>
  %3 = circle.const [1] : tensor<1xi32>
  %4 = circle.mean(%2, %3) : (tensor<1x4x1x3xf32>, tensor<1xi32>) -> tensor<1x1x3xf32>
  func.return %4 : tensor<1x1x3xf32>
}
// CHECK-LABEL: func.func @fuse_mean_with_mean_not(
// CHECK: circle.mean({{.*}} -> tensor<1x4x1x3xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x1x3xf32>
// CHECK: func.return

// -----

func.func @fuse_transpose_with_mean(%0: tensor<1x4x5x3xf32>) -> tensor<1x3xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.const [2, 3] : tensor<2xi32>
  %4 = circle.mean(%2, %3) : (tensor<1x3x4x5xf32>, tensor<2xi32>) -> tensor<1x3xf32>
  func.return %4 : tensor<1x3xf32>
}
// CHECK-LABEL: func.func @fuse_transpose_with_mean(
// CHECK-NOT: circle.transpose(
// CHECK: circle.mean({{.*}} -> tensor<1x3xf32>
// CHECK: func.return

// -----

func.func @fuse_transpose_with_mean_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x3x4xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.const [3] : tensor<1xi32>
  %4 = circle.mean(%2, %3) : (tensor<1x3x4x5xf32>, tensor<1xi32>) -> tensor<1x3x4xf32>
  func.return %4 : tensor<1x3x4xf32>
}
// CHECK-LABEL: func.func @fuse_transpose_with_mean_not(
// CHECK: circle.transpose({{.*}} -> tensor<1x3x4x5xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x3x4xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_div(%0: tensor<3xf32>) -> tensor<3xf32> {
  %1 = circle.const [2.0, -2.6, 0.4] : tensor<3xf32>
  %2 = circle.div(%1, %0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.const [2.0] : tensor<1xf32>
  %4 = circle.mul(%2, %3) : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
  func.return %4 : tensor<3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_div(
// CHECK-NOT: circle.mul(
// CHECK: circle.div({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_div_not(%0: tensor<3xf32>, %1: tensor<3xf32>) -> tensor<3xf32> {
  %2 = circle.div(%0, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.const [2.0] : tensor<1xf32>
  %4 = circle.mul(%2, %3) : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
  func.return %4 : tensor<3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_div_not(
// CHECK: circle.div({{.*}} -> tensor<3xf32>
// CHECK: circle.mul({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @transform_min_max_to_relu6(%0: tensor<9xf32>) -> tensor<9xf32> {
  %1 = circle.const [6.0] : tensor<1xf32>
  %2 = circle.minimum(%0, %1) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  %3 = circle.const [0.0] : tensor<1xf32>
  %4 = circle.maximum(%2, %3) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  func.return %4 : tensor<9xf32>
}
// CHECK-LABEL: func.func @transform_min_max_to_relu6(
// CHECK-NOT: circle.maximum(
// CHECK-NOT: circle.minimum(
// CHECK: circle.relu6({{.*}} -> tensor<9xf32>
// CHECK: func.return

// -----

func.func @transform_min_max_to_relu6_not(%0: tensor<9xf32>) -> tensor<9xf32> {
  %1 = circle.const [6.5] : tensor<1xf32>
  %2 = circle.minimum(%0, %1) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  %3 = circle.const [-0.5] : tensor<1xf32>
  %4 = circle.maximum(%2, %3) : (tensor<9xf32>, tensor<1xf32>) -> tensor<9xf32>
  func.return %4 : tensor<9xf32>
}
// CHECK-LABEL: func.func @transform_min_max_to_relu6_not(
// CHECK: circle.minimum({{.*}} -> tensor<9xf32>
// CHECK: circle.maximum({{.*}} -> tensor<9xf32>
// CHECK: func.return

// -----

func.func @transform_sqrt_div_to_rsqrt_mul(%0: tensor<3xf32>, %1: tensor<3xf32>) -> tensor<3xf32> {
  %2 = circle.sqrt(%1) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.div(%0, %2) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %3 : tensor<3xf32>
}
// CHECK-LABEL: func.func @transform_sqrt_div_to_rsqrt_mul(
// CHECK-NOT: circle.div(
// CHECK-NOT: circle.sqrt(
// CHECK: circle.rsqrt({{.*}} -> tensor<3xf32>
// CHECK: circle.mul({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @transform_sqrt_div_to_rsqrt_mul_not(%0: tensor<3xf32>, %1: tensor<3xf32>) -> tensor<3xf32> {
  %2 = circle.sqrt(%0) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.div(%2, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %3 : tensor<3xf32>
}
// CHECK-LABEL: func.func @transform_sqrt_div_to_rsqrt_mul_not(
// CHECK: circle.sqrt({{.*}} -> tensor<3xf32>
// CHECK: circle.div({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @replace_sub_with_add(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.sub(%0, %1) {activation = relu} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @replace_sub_with_add(
// CHECK-NOT: circle.sub(
// CHECK: circle.add({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @replace_sub_with_add_not(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [2.0, -2.6, 0.4, -0.6] : tensor<4xf32>
  %2 = circle.sub(%1, %0) : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @replace_sub_with_add_not(
// CHECK: circle.sub({{.*}} -> tensor<2x4xf32>
// CHECK: func.return
