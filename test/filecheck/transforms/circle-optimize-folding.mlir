// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fold_add_v2,fold_mul,fold_cast,fold_gather,fold_reshape,fold_squeeze,fold_shape,fold_dequantize,fold_densify,fold_sparse_to_dense,fold_dwconv,fold_fully_connected' | filecheck %s

func.func @fold_add_v2(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.const [0.4, -0.6] : tensor<2xf32>
  %2 = circle.const [1.0] : tensor<1xf32>
  %3 = circle.add(%1, %2) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  %4 = circle.mul(%0, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %4 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_add_v2(
// CHECK-NOT: circle.add(
// CHECK: circle.mul({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_add_v2_not(%0: tensor<2xf32>, %1: tensor<2xf32>) -> tensor<2xf32> {
  %2 = circle.const [1.0] : tensor<1xf32>
  %3 = circle.add(%1, %2) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  %4 = circle.mul(%0, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %4 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_add_v2_not(
// CHECK: circle.add({{.*}} -> tensor<2xf32>
// CHECK: circle.mul({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_mul(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.const [0.4, -0.6] : tensor<2xf32>
  %2 = circle.const [3.0] : tensor<1xf32>
  %3 = circle.mul(%1, %2) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  %4 = circle.add(%0, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %4 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_mul(
// CHECK-NOT: circle.mul(
// CHECK: circle.add({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_mul_not(%0: tensor<2xf32>, %1: tensor<2xf32>) -> tensor<2xf32> {
  %2 = circle.const [3.0] : tensor<1xf32>
  %3 = circle.mul(%1, %2) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  %4 = circle.add(%0, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %4 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_mul_not(
// CHECK: circle.mul({{.*}} -> tensor<2xf32>
// CHECK: circle.add({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_cast(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.const [3, 4] : tensor<2xi32>
  %2 = circle.cast(%1) {in_data_type = int32} : (tensor<2xi32>) -> tensor<2xf32>
  %3 = circle.add(%0, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %3 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_cast(
// CHECK-NOT: circle.cast(
// CHECK: circle.add({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_cast_not(%0: tensor<2xi32>) -> tensor<2xf32> {
  %1 = circle.cast(%0) {in_data_type = int32} : (tensor<2xi32>) -> tensor<2xf32>
  func.return %1 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_cast_not(
// CHECK: circle.cast({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_gather(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2] : tensor<4x3xf32>
  %2 = circle.const [1, 3] : tensor<2xi32>
  %3 = circle.gather(%1, %2) : (tensor<4x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
  %4 = circle.add(%0, %3) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %4 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fold_gather(
// CHECK-NOT: circle.gather(
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fold_gather_not(%0: tensor<4x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [1, 3] : tensor<2xi32>
  %2 = circle.gather(%0, %1) : (tensor<4x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
  %3 = circle.relu(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %3 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fold_gather_not(
// CHECK: circle.gather({{.*}} -> tensor<2x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fold_reshape(%0: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %1 = circle.const [-0.5, -0.2, -2.0, -0.2] : tensor<4xf32>
  %2 = circle.const [2, 2] : tensor<2xi32>
  %3 = circle.reshape(%1, %2) {new_shape = [2, 2]} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %4 = circle.add(%0, %3) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %4 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @fold_reshape(
// CHECK-NOT: circle.reshape(
// CHECK: circle.add({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @fold_reshape_not(%0: tensor<4xf32>) -> tensor<2x2xf32> {
  %1 = circle.const [2, 2] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [2, 2]} : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %3 = circle.relu(%2) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %3 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @fold_reshape_not(
// CHECK: circle.reshape({{.*}} -> tensor<2x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @fold_squeeze(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.const [0.4, -0.6] : tensor<1x2xf32>
  %2 = circle.squeeze(%1) {squeeze_dims = [0]} : (tensor<1x2xf32>) -> tensor<2xf32>
  %3 = circle.add(%0, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %3 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_squeeze(
// CHECK-NOT: circle.squeeze(
// CHECK: circle.add({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_squeeze_not(%0: tensor<1x2xf32>) -> tensor<2xf32> {
  %1 = circle.squeeze(%0) {squeeze_dims = [0]} : (tensor<1x2xf32>) -> tensor<2xf32>
  %2 = circle.relu(%1) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}
// CHECK-LABEL: func.func @fold_squeeze_not(
// CHECK: circle.squeeze({{.*}} -> tensor<2xf32>
// CHECK: circle.relu({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @fold_shape(%0: tensor<4xf32>, %1: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %2 = circle.shape(%1) {out_type = int32} : (tensor<2x2xf32>) -> tensor<2xi32>
  %3 = circle.reshape(%0, %2) : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  func.return %3 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @fold_shape(
// CHECK-NOT: circle.shape(
// CHECK: circle.reshape({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @fold_shape_not(%0: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %1 = circle.relu(%0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %1 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @fold_shape_not(
// CHECK: circle.relu({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @fold_dequantize(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const #circle.blob<"0xdd378ebeda2b"> : tensor<3xf16>
  %2 = circle.dequantize(%1) : (tensor<3xf16>) -> tensor<3xf32>
  %3 = circle.mul(%0, %2) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fold_dequantize(
// CHECK-NOT: circle.dequantize(
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fold_dequantize_not(%0: tensor<2x3xf16>) -> tensor<2x3xf32> {
  %1 = circle.dequantize(%0) : (tensor<2x3xf16>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fold_dequantize_not(
// CHECK: circle.dequantize({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fold_densify(%0: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %1 = circle.const #circle.blob<"0x0000803f0000004000004040"> sparse {traversal_order = array<i32: 0, 1>, block_map = array<i32>, dims = [{format = "dense", dense_size = 3 : i32}, {format = "sparse_csr", dense_size = 0 : i32, segments = ["<i4", #circle.blob<"0x00000000010000000200000003000000">], indices = ["<i4", #circle.blob<"0x000000000100000002000000">]}]} : tensor<3x3xf32>
  %2 = circle.densify(%1) : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %3 = circle.add(%0, %2) : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  func.return %3 : tensor<3x3xf32>
}
// CHECK-LABEL: func.func @fold_densify(
// CHECK-NOT: circle.densify(
// CHECK: circle.add({{.*}} -> tensor<3x3xf32>
// CHECK: func.return

// -----

func.func @fold_densify_not(%0: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %1 = circle.const [3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2] : tensor<3x3xf32>
  %2 = circle.add(%0, %1) : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  func.return %2 : tensor<3x3xf32>
}
// CHECK-LABEL: func.func @fold_densify_not(
// CHECK: circle.add({{.*}} -> tensor<3x3xf32>
// CHECK: func.return

// -----

func.func @fold_sparse_to_dense(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [2.0, -2.6] : tensor<2xf32>
  %2 = circle.const [0, 2] : tensor<2x1xi32>
  %3 = circle.const [3] : tensor<1xi32>
  %4 = circle.const [0.5] : tensor<1xf32>
  %5 = circle.sparse_to_dense(%2, %3, %1, %4) : (tensor<2x1xi32>, tensor<1xi32>, tensor<2xf32>, tensor<1xf32>) -> tensor<3xf32>
  %6 = circle.add(%0, %5) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %6 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fold_sparse_to_dense(
// CHECK-NOT: circle.sparse_to_dense(
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fold_sparse_to_dense_not(%0: tensor<2xf32>, %1: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %2 = circle.const [0, 2] : tensor<2x1xi32>
  %3 = circle.const [3] : tensor<1xi32>
  %4 = circle.const [0.5] : tensor<1xf32>
  %5 = circle.sparse_to_dense(%2, %3, %0, %4) : (tensor<2x1xi32>, tensor<1xi32>, tensor<2xf32>, tensor<1xf32>) -> tensor<3xf32>
  %6 = circle.add(%1, %5) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %6 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fold_sparse_to_dense_not(
// CHECK: circle.sparse_to_dense({{.*}} -> tensor<3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fold_dwconv(%0: tensor<1x3x3x2xf32>) -> tensor<1x3x3x2xf32> {
  %1 = circle.const [1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1, 0.7] : tensor<1x3x3x2xf32>
  %2 = circle.const [-2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1] : tensor<1x2x2x2xf32>
  %3 = circle.const [0.0, -0.1] : tensor<2xf32>
  %4 = circle.depthwise_conv_2d(%1, %2, %3) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x3x3x2xf32>, tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x3x3x2xf32>
  %5 = circle.add(%0, %4) : (tensor<1x3x3x2xf32>, tensor<1x3x3x2xf32>) -> tensor<1x3x3x2xf32>
  func.return %5 : tensor<1x3x3x2xf32>
}
// CHECK-LABEL: func.func @fold_dwconv(
// CHECK-NOT: circle.depthwise_conv_2d(
// CHECK: circle.add({{.*}} -> tensor<1x3x3x2xf32>
// CHECK: func.return

// -----

func.func @fold_dwconv_not(%0: tensor<1x3x3x2xf32>) -> tensor<1x3x3x2xf32> {
  %1 = circle.const [1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5] : tensor<1x2x2x2xf32>
  %2 = circle.const [1.9, -0.3] : tensor<2xf32>
  %3 = circle.depthwise_conv_2d(%0, %1, %2) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x3x3x2xf32>, tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x3x3x2xf32>
  %4 = circle.relu(%3) : (tensor<1x3x3x2xf32>) -> tensor<1x3x3x2xf32>
  func.return %4 : tensor<1x3x3x2xf32>
}
// CHECK-LABEL: func.func @fold_dwconv_not(
// CHECK: circle.depthwise_conv_2d({{.*}} -> tensor<1x3x3x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x3x3x2xf32>
// CHECK: func.return

// -----

func.func @fold_fully_connected(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7] : tensor<2x4xf32>
  %2 = circle.const [-1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5] : tensor<3x4xf32>
  %3 = circle.const [1.9, -0.3, -0.2] : tensor<3xf32>
  %4 = circle.fully_connected(%1, %2, %3) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %5 = circle.add(%0, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %5 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fold_fully_connected(
// CHECK-NOT: circle.fully_connected(
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @fold_fully_connected_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %4 = circle.relu(%3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %4 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @fold_fully_connected_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<2x3xf32>
// CHECK: func.return
