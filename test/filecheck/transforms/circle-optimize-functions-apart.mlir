// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_mul_with_rmsnorm,fuse_activation_function' | filecheck %s

func.func @fuse_mul_with_rmsnorm(%0: tensor<1x2x4xf32>) -> tensor<1x2x4xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.rms_norm(%0, %1) {epsilon = 1.0e-05} : (tensor<1x2x4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
  %3 = circle.const [-0.3, -0.7, -1.1, -0.4] : tensor<4xf32>
  %4 = circle.mul(%2, %3) : (tensor<1x2x4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
  func.return %4 : tensor<1x2x4xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_rmsnorm(
// CHECK-NOT: circle.mul(
// CHECK: circle.rms_norm({{.*}} -> tensor<1x2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_rmsnorm_not(%0: tensor<1x2x4xf32>) -> tensor<1x2x4xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4] : tensor<4xf32>
  %2 = circle.rms_norm(%0, %1) {epsilon = 1.0e-05} : (tensor<1x2x4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
  %3 = circle.const [-0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<1x2x4xf32>
  %4 = circle.mul(%2, %3) : (tensor<1x2x4xf32>, tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  func.return %4 : tensor<1x2x4xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_rmsnorm_not(
// CHECK: circle.rms_norm({{.*}} -> tensor<1x2x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_activation_function(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.relu6(%3) : (tensor<1x4x5x2xf32>) -> tensor<1x4x5x2xf32>
  func.return %4 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_activation_function(
// CHECK-NOT: circle.relu6(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_activation_function_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.tanh(%3) : (tensor<1x4x5x2xf32>) -> tensor<1x4x5x2xf32>
  func.return %4 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_activation_function_not(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: circle.tanh({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return
