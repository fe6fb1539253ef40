// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_add_to_fullyconnected_bias,fuse_mul_to_fullyconnected_weights' | filecheck %s

func.func @fuse_add_to_fullyconnected_bias(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.add(%0, %1) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %3 = circle.const [-0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5] : tensor<3x4xf32>
  %4 = circle.const [-0.2, 0.5, 1.9] : tensor<3xf32>
  %5 = circle.fully_connected(%2, %3, %4) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_add_to_fullyconnected_bias(
// CHECK-NOT: circle.add(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_add_to_fullyconnected_bias_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4] : tensor<2x4xf32>
  %2 = circle.add(%0, %1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = circle.const [0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3] : tensor<3x4xf32>
  %4 = circle.const [-0.2, 1.0, -0.9] : tensor<3xf32>
  %5 = circle.fully_connected(%2, %3, %4) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_add_to_fullyconnected_bias_not(
// CHECK: circle.add({{.*}} -> tensor<2x4xf32>
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_to_fullyconnected_weights(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.mul(%0, %1) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %3 = circle.const [-0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5] : tensor<3x4xf32>
  %4 = circle.const [-0.2, 0.5, 1.9] : tensor<3xf32>
  %5 = circle.fully_connected(%2, %3, %4) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_to_fullyconnected_weights(
// CHECK-NOT: circle.mul(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_to_fullyconnected_weights_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.add(%0, %1) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %3 = circle.const [-0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5] : tensor<3x4xf32>
  %4 = circle.const [-0.2, 0.5, 1.9] : tensor<3xf32>
  %5 = circle.fully_connected(%2, %3, %4) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_to_fullyconnected_weights_not(
// CHECK-NOT: circle.add(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return
