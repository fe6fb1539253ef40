// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_depth_to_space,fuse_channel_shuffle,fuse_transpose_with_fully_connected' | filecheck %s

func.func @fuse_depth_to_space(%0: tensor<1x2x3x3xf32>) -> tensor<1x4x6x2xf32> {
  %1 = circle.const [1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2, -0.9, 0.6, 0.6, -0.2, -0.8, 0.2, -2.5, 0.7, 0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8, 1.1, 0.3, -0.6, -0.8, -0.8, 1.4, -1.5, -0.6, -0.3, 0.2, 0.6, -1.2, -1.7, -0.0, 1.2, 0.8, 0.2, -0.3, 0.3, -0.2, 0.8, -0.8, 0.1, -0.1, 0.5, 0.2, 2.6, 1.5, 1.5, -2.0, -0.3] : tensor<8x2x2x3xf32>
  %2 = circle.const [-0.6, 0.5, -2.3, 1.2, 1.1, -1.3, -1.0, -0.8] : tensor<8xf32>
  %3 = circle.conv_2d(%0, %1, %2) {padding = same, stride = [1, 1]} : (tensor<1x2x3x3xf32>, tensor<8x2x2x3xf32>, tensor<8xf32>) -> tensor<1x2x3x8xf32>
  %4 = circle.const [1, 2, 3, 2, 2, 2] : tensor<6xi32>
  %5 = circle.reshape(%3, %4) {new_shape = [1, 2, 3, 2, 2, 2]} : (tensor<1x2x3x8xf32>, tensor<6xi32>) -> tensor<1x2x3x2x2x2xf32>
  %6 = circle.const [0, 1, 4, 2, 5, 3] : tensor<6xi32>
  %7 = circle.transpose(%5, %6) : (tensor<1x2x3x2x2x2xf32>, tensor<6xi32>) -> tensor<1x2x2x3x2x2xf32>
  %8 = circle.const [1, 4, 6, 2] : tensor<4xi32>
  %9 = circle.reshape(%7, %8) {new_shape = [1, 4, 6, 2]} : (tensor<1x2x2x3x2x2xf32>, tensor<4xi32>) -> tensor<1x4x6x2xf32>
  func.return %9 : tensor<1x4x6x2xf32>
}
// CHECK-LABEL: func.func @fuse_depth_to_space(
// CHECK-NOT: circle.transpose(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x2x3x8xf32>
// CHECK: circle.depth_to_space({{.*}} -> tensor<1x4x6x2xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x2x2x3x2x2xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x4x6x2xf32>
// CHECK: func.return

// -----

func.func @fuse_depth_to_space_not(%0: tensor<1x2x3x8xf32>) -> tensor<1x4x6x2xf32> {
  %1 = circle.const [1, 2, 3, 2, 2, 2] : tensor<6xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [1, 2, 3, 2, 2, 2]} : (tensor<1x2x3x8xf32>, tensor<6xi32>) -> tensor<1x2x3x2x2x2xf32>
  %3 = circle.const [0, 1, 4, 2, 5, 3] : tensor<6xi32>
  %4 = circle.transpose(%2, %3) : (tensor<1x2x3x2x2x2xf32>, tensor<6xi32>) -> tensor<1x2x2x3x2x2xf32>
  %5 = circle.const [1, 4, 6, 2] : tensor<4xi32>
  %6 = circle.reshape(%4, %5) {new_shape = [1, 4, 6, 2]} : (tensor<1x2x2x3x2x2xf32>, tensor<4xi32>) -> tensor<1x4x6x2xf32>
  func.return %6 : tensor<1x4x6x2xf32>
}
// CHECK-LABEL: func.func @fuse_depth_to_space_not(
// CHECK: circle.reshape({{.*}} -> tensor<1x2x3x2x2x2xf32>
// CHECK: circle.transpose({{.*}} -> tensor<1x2x2x3x2x2xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x4x6x2xf32>
// CHECK: func.return

// -----

func.func @fuse_channel_shuffle(%0: tensor<1x4x4x1xf32>) -> tensor<1x4x4x4xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4x1x1x1xf32>
  %n = circle.none
  %x = circle.conv_2d(%0, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x1xf32>, tensor<4x1x1x1xf32>, none) -> tensor<1x4x4x4xf32>
  %a = circle.const [1, 4, 4, 2, 2] : tensor<5xi32>
  %b = circle.reshape(%x, %a) {new_shape = [1, 4, 4, 2, 2]} : (tensor<1x4x4x4xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %c = circle.const [0, 1, 2, 4, 3] : tensor<5xi32>
  %d = circle.transpose(%b, %c) : (tensor<1x4x4x2x2xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %e = circle.const [1, 4, 4, 4] : tensor<4xi32>
  %f = circle.reshape(%d, %e) {new_shape = [1, 4, 4, 4]} : (tensor<1x4x4x2x2xf32>, tensor<4xi32>) -> tensor<1x4x4x4xf32>
  %y = circle.relu(%f) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  func.return %y : tensor<1x4x4x4xf32>
}
// CHECK-LABEL: func.func @fuse_channel_shuffle(
// CHECK: circle.const [1.0, 3.0, 2.0, 4.0]
// CHECK-NOT: circle.transpose
// CHECK: func.return

// -----

func.func @fuse_channel_shuffle_not(%0: tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> {
  %a = circle.const [1, 4, 4, 2, 2] : tensor<5xi32>
  %b = circle.reshape(%0, %a) {new_shape = [1, 4, 4, 2, 2]} : (tensor<1x4x4x4xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %c = circle.const [0, 1, 2, 4, 3] : tensor<5xi32>
  %d = circle.transpose(%b, %c) : (tensor<1x4x4x2x2xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %e = circle.const [1, 4, 4, 4] : tensor<4xi32>
  %f = circle.reshape(%d, %e) {new_shape = [1, 4, 4, 4]} : (tensor<1x4x4x2x2xf32>, tensor<4xi32>) -> tensor<1x4x4x4xf32>
  %y = circle.relu(%f) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  func.return %y : tensor<1x4x4x4xf32>
}
// CHECK-LABEL: func.func @fuse_channel_shuffle_not(
// CHECK: circle.transpose
// CHECK: func.return

// -----

func.func @fuse_transpose_with_fully_connected(%0: tensor<1x2x1x3xf32>) -> tensor<1x1xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x2x1x3xf32>, tensor<4xi32>) -> tensor<1x3x2x1xf32>
  %3 = circle.const [1, 6] : tensor<2xi32>
  %4 = circle.reshape(%2, %3) {new_shape = [1, 6]} : (tensor<1x3x2x1xf32>, tensor<2xi32>) -> tensor<1x6xf32>
  %5 = circle.const [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] : tensor<1x6xf32>
  %6 = circle.none
  %7 = circle.fully_connected(%4, %5, %6) : (tensor<1x6xf32>, tensor<1x6xf32>, none) -> tensor<1x1xf32>
  func.return %7 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @fuse_transpose_with_fully_connected(
// CHECK-NOT: circle.transpose(
// CHECK: circle.const [1.0, 3.0, 5.0, 2.0, 4.0, 6.0] : tensor<1x6xf32>
// CHECK: func.return

// -----

func.func @fuse_transpose_with_fully_connected_not(%0: tensor<2x3x4xf32>) -> tensor<3x1xf32> {
  %1 = circle.const [1, 0, 2] : tensor<3xi32>
  %2 = circle.transpose(%0, %1) : (tensor<2x3x4xf32>, tensor<3xi32>) -> tensor<3x2x4xf32>
  %3 = circle.const [3, 8] : tensor<2xi32>
  %4 = circle.reshape(%2, %3) {new_shape = [3, 8]} : (tensor<3x2x4xf32>, tensor<2xi32>) -> tensor<3x8xf32>
  %5 = circle.const [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] : tensor<1x8xf32>
  %6 = circle.none
  %7 = circle.fully_connected(%4, %5, %6) : (tensor<3x8xf32>, tensor<1x8xf32>, none) -> tensor<3x1xf32>
  func.return %7 : tensor<3x1xf32>
}
// CHECK-LABEL: func.func @fuse_transpose_with_fully_connected_not(
// CHECK: circle.transpose(
// CHECK: func.return
