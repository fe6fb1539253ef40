// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_batchnorm_with_conv,fuse_batchnorm_with_dwconv,fuse_batchnorm_with_tconv,fuse_preactivation_batchnorm' | filecheck %s

func.func @fuse_batchnorm_with_conv(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_conv(
// CHECK-NOT: circle.mul(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_batchnorm_with_conv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_conv_not(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_batchnorm_with_dwconv(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3] : tensor<1x2x2x3xf32>
  %2 = circle.const [-0.6, 1.6, -1.2] : tensor<3xf32>
  %3 = circle.depthwise_conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x5x3xf32>, tensor<1x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.const [0.4, -1.0, 1.4] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %5 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_dwconv(
// CHECK-NOT: circle.mul(
// CHECK: circle.depthwise_conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fuse_batchnorm_with_dwconv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3] : tensor<1x2x2x3xf32>
  %2 = circle.const [-0.6, 1.6, -1.2] : tensor<3xf32>
  %3 = circle.depthwise_conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], depth_multiplier = 1, activation = relu} : (tensor<1x4x5x3xf32>, tensor<1x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.const [0.4, -1.0, 1.4] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %5 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_dwconv_not(
// CHECK: circle.depthwise_conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fuse_batchnorm_with_tconv(%0: tensor<1x4x5x3xf32>) -> tensor<1x8x10x2xf32> {
  %1 = circle.const [1, 8, 10, 2] : tensor<4xi32>
  %2 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %3 = circle.const [1.1, 0.3] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = same, stride = [2, 2]} : (tensor<4xi32>, tensor<2x2x2x3xf32>, tensor<1x4x5x3xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  %5 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %6 = circle.mul(%4, %5) : (tensor<1x8x10x2xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  func.return %6 : tensor<1x8x10x2xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_tconv(
// CHECK-NOT: circle.mul(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: func.return

// -----

func.func @fuse_batchnorm_with_tconv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x8x10x2xf32> {
  %1 = circle.const [1, 8, 10, 2] : tensor<4xi32>
  %2 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %3 = circle.const [1.1, 0.3] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = same, stride = [2, 2], activation = relu} : (tensor<4xi32>, tensor<2x2x2x3xf32>, tensor<1x4x5x3xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  %5 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %6 = circle.mul(%4, %5) : (tensor<1x8x10x2xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  func.return %6 : tensor<1x8x10x2xf32>
}
// CHECK-LABEL: func.func @fuse_batchnorm_with_tconv_not(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: func.return

// -----

func.func @fuse_preactivation_batchnorm(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8, 1.1, 0.3, -0.6, -0.8, -0.8, 1.4, -1.5, -0.6, -0.3, 0.2, 0.6, -1.2] : tensor<3x2x2x3xf32>
  %2 = circle.const [-1.7, -0.0, 1.2] : tensor<3xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<3x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.const [1.0, 1.3, 0.9] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %6 = circle.const [0.3, -0.2, 0.8] : tensor<3xf32>
  %7 = circle.add(%5, %6) {activation = relu} : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %8 = circle.const [-0.8, 0.1, -0.1, 0.5, 0.2, 2.6, 1.5, 1.5, -2.0, -0.3, -0.6, 0.5, -2.3, 1.2, 1.1, -1.3, -1.0, -0.8, 0.0, 0.6, 2.0, -0.2, 0.8, 0.2, 1.8, 0.7, 1.4, -1.1, -0.2, -0.8, 1.5, 0.7, -0.3, -0.5, 0.5, -0.7] : tensor<3x2x2x3xf32>
  %9 = circle.const [-0.9, 0.5, 2.5] : tensor<3xf32>
  %10 = circle.conv_2d(%7, %8, %9) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<3x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %11 = circle.add(%3, %10) : (tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %11 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_preactivation_batchnorm(
// CHECK-NOT: circle.mul(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fuse_preactivation_batchnorm_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8, 1.1, 0.3, -0.6, -0.8, -0.8, 1.4, -1.5, -0.6, -0.3, 0.2, 0.6, -1.2] : tensor<3x2x2x3xf32>
  %2 = circle.const [-1.7, -0.0, 1.2] : tensor<3xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<3x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.const [-1.0, -1.3, -0.9] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %6 = circle.const [0.3, -0.2, 0.8] : tensor<3xf32>
  %7 = circle.add(%5, %6) {activation = relu} : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %8 = circle.const [-0.8, 0.1, -0.1, 0.5, 0.2, 2.6, 1.5, 1.5, -2.0, -0.3, -0.6, 0.5, -2.3, 1.2, 1.1, -1.3, -1.0, -0.8, 0.0, 0.6, 2.0, -0.2, 0.8, 0.2, 1.8, 0.7, 1.4, -1.1, -0.2, -0.8, 1.5, 0.7, -0.3, -0.5, 0.5, -0.7] : tensor<3x2x2x3xf32>
  %9 = circle.const [-0.9, 0.5, 2.5] : tensor<3xf32>
  %10 = circle.conv_2d(%7, %8, %9) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<3x2x2x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %11 = circle.add(%3, %10) : (tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %11 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_preactivation_batchnorm_not(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return
