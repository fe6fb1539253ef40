// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_add_with_conv,fuse_mul_with_conv,fuse_add_with_tconv,fuse_slice_with_tconv,fuse_add_with_fully_connected,fuse_mul_with_fullyconnected,fuse_horizontal_fc_layers' | filecheck %s

func.func @fuse_add_with_conv(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.add(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_conv(
// CHECK-NOT: circle.add(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_add_with_conv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.add(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_conv_not(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_conv(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_conv(
// CHECK-NOT: circle.mul(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_conv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x2xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %2 = circle.const [1.1, 0.3] : tensor<2xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x4x5x3xf32>, tensor<2x2x2x3xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  %4 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %5 = circle.mul(%3, %4) : (tensor<1x4x5x2xf32>, tensor<2xf32>) -> tensor<1x4x5x2xf32>
  func.return %5 : tensor<1x4x5x2xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_conv_not(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x2xf32>
// CHECK: func.return

// -----

func.func @fuse_add_with_tconv(%0: tensor<1x4x5x3xf32>) -> tensor<1x8x10x2xf32> {
  %1 = circle.const [1, 8, 10, 2] : tensor<4xi32>
  %2 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %3 = circle.const [1.1, 0.3] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = same, stride = [2, 2]} : (tensor<4xi32>, tensor<2x2x2x3xf32>, tensor<1x4x5x3xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  %5 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %6 = circle.add(%4, %5) : (tensor<1x8x10x2xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  func.return %6 : tensor<1x8x10x2xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_tconv(
// CHECK-NOT: circle.add(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: func.return

// -----

func.func @fuse_add_with_tconv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x8x10x2xf32> {
  %1 = circle.const [1, 8, 10, 2] : tensor<4xi32>
  %2 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8] : tensor<2x2x2x3xf32>
  %3 = circle.const [1.1, 0.3] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = same, stride = [2, 2], activation = relu} : (tensor<4xi32>, tensor<2x2x2x3xf32>, tensor<1x4x5x3xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  %5 = circle.const [-0.6, -0.8] : tensor<2xf32>
  %6 = circle.add(%4, %5) : (tensor<1x8x10x2xf32>, tensor<2xf32>) -> tensor<1x8x10x2xf32>
  func.return %6 : tensor<1x8x10x2xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_tconv_not(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x8x10x2xf32>
// CHECK: func.return

// -----

func.func @fuse_slice_with_tconv(%0: tensor<1x3x4x3xf32>) -> tensor<1x6x8x2xf32> {
  %1 = circle.const [1, 7, 9, 2] : tensor<4xi32>
  %2 = circle.const [2.0, -2.6, 0.4, -0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2, -0.9, 0.6, 0.6] : tensor<2x3x3x3xf32>
  %3 = circle.const [1.4, -1.5] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = valid, stride = [2, 2], activation = relu} : (tensor<4xi32>, tensor<2x3x3x3xf32>, tensor<1x3x4x3xf32>, tensor<2xf32>) -> tensor<1x7x9x2xf32>
  %5 = circle.const [0, 0, 0, 0] : tensor<4xi32>
  %6 = circle.const [1, 6, 8, 2] : tensor<4xi32>
  %7 = circle.slice(%4, %5, %6) : (tensor<1x7x9x2xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x6x8x2xf32>
  func.return %7 : tensor<1x6x8x2xf32>
}
// CHECK-LABEL: func.func @fuse_slice_with_tconv(
// CHECK-NOT: circle.slice(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x6x8x2xf32>
// CHECK: func.return

// -----

func.func @fuse_slice_with_tconv_not(%0: tensor<1x3x4x3xf32>) -> tensor<1x6x8x2xf32> {
  %1 = circle.const [1, 7, 9, 2] : tensor<4xi32>
  %2 = circle.const [2.0, -2.6, 0.4, -0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2, -0.9, 0.6, 0.6] : tensor<2x3x3x3xf32>
  %3 = circle.const [1.4, -1.5] : tensor<2xf32>
  %4 = circle.transpose_conv(%1, %2, %0, %3) {padding = valid, stride = [2, 2], activation = relu} : (tensor<4xi32>, tensor<2x3x3x3xf32>, tensor<1x3x4x3xf32>, tensor<2xf32>) -> tensor<1x7x9x2xf32>
  %5 = circle.const [0, 1, 1, 0] : tensor<4xi32>
  %6 = circle.const [1, 6, 8, 2] : tensor<4xi32>
  %7 = circle.slice(%4, %5, %6) : (tensor<1x7x9x2xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x6x8x2xf32>
  func.return %7 : tensor<1x6x8x2xf32>
}
// CHECK-LABEL: func.func @fuse_slice_with_tconv_not(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x7x9x2xf32>
// CHECK: circle.slice({{.*}} -> tensor<1x6x8x2xf32>
// CHECK: func.return

// -----

func.func @fuse_add_with_fully_connected(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.const [-0.5, -0.2, 0.5] : tensor<3xf32>
  %5 = circle.add(%3, %4) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_fully_connected(
// CHECK-NOT: circle.add(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_add_with_fully_connected_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) {activation = relu} : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.const [-0.5, -0.2, 0.5] : tensor<3xf32>
  %5 = circle.add(%3, %4) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_add_with_fully_connected_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_fullyconnected(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.const [-0.5, -0.2, 0.5] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_fullyconnected(
// CHECK-NOT: circle.mul(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_mul_with_fullyconnected_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) {activation = relu} : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.const [-0.5, -0.2, 0.5] : tensor<3xf32>
  %5 = circle.mul(%3, %4) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_mul_with_fullyconnected_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_horizontal_fc_layers(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.const [-0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1] : tensor<3x4xf32>
  %5 = circle.const [0.7, -2.8, 1.0] : tensor<3xf32>
  %6 = circle.fully_connected(%0, %4, %5) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %7 = circle.add(%3, %6) {activation = relu} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %7 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_horizontal_fc_layers(
// CHECK-NOT: circle.add(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_horizontal_fc_layers_not(%0: tensor<2x4xf32>, %1: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %2 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %3 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %4 = circle.fully_connected(%0, %2, %3) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %5 = circle.const [-1.0, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7] : tensor<3x4xf32>
  %6 = circle.const [-0.4, -1.1, 0.0] : tensor<3xf32>
  %7 = circle.fully_connected(%1, %5, %6) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %8 = circle.add(%4, %7) {activation = relu} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %8 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fuse_horizontal_fc_layers_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return
