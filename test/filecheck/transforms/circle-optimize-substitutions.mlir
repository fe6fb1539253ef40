// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=substitute_expand_dims_to_reshape,substitute_squeeze_to_reshape,substitute_pack_to_reshape,substitute_strided_slice_to_reshape,substitute_splitv_to_split,substitute_padv2_to_pad,replace_non_const_fc_with_batch_matmul,replace_cw_mul_add_with_depthwise_conv,decompose_hardswish,decompose_softmax,remove_gather_guard' | filecheck %s

func.func @substitute_expand_dims_to_reshape(%0: tensor<2x3xf32>) -> tensor<2x1x3xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2 = circle.expand_dims(%0, %1) : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<2x1x3xf32>
  func.return %2 : tensor<2x1x3xf32>
}
// CHECK-LABEL: func.func @substitute_expand_dims_to_reshape(
// CHECK-NOT: circle.expand_dims(
// CHECK: circle.reshape({{.*}} -> tensor<2x1x3xf32>
// CHECK: func.return

// -----

func.func @substitute_expand_dims_to_reshape_not(%0: tensor<2x1xf32>) -> tensor<2xf32> {
  %1 = circle.squeeze(%0) {squeeze_dims = [1]} : (tensor<2x1xf32>) -> tensor<2xf32>
  func.return %1 : tensor<2xf32>
}
// CHECK-LABEL: func.func @substitute_expand_dims_to_reshape_not(
// CHECK-NOT: circle.squeeze(
// CHECK: circle.reshape({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @substitute_squeeze_to_reshape(%0: tensor<2x1xf32>) -> tensor<2xf32> {
  %1 = circle.squeeze(%0) {squeeze_dims = [1]} : (tensor<2x1xf32>) -> tensor<2xf32>
  func.return %1 : tensor<2xf32>
}
// CHECK-LABEL: func.func @substitute_squeeze_to_reshape(
// CHECK-NOT: circle.squeeze(
// CHECK: circle.reshape({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @substitute_squeeze_to_reshape_not(%0: tensor<2x3xf32>) -> tensor<2x1x3xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2 = circle.expand_dims(%0, %1) : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<2x1x3xf32>
  func.return %2 : tensor<2x1x3xf32>
}
// CHECK-LABEL: func.func @substitute_squeeze_to_reshape_not(
// CHECK-NOT: circle.expand_dims(
// CHECK: circle.reshape({{.*}} -> tensor<2x1x3xf32>
// CHECK: func.return

// -----

func.func @substitute_pack_to_reshape(%0: tensor<2x3xf32>) -> tensor<2x1x3xf32> {
  %1 = circle.pack(%0) {values_count = 1, axis = 1} : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
  func.return %1 : tensor<2x1x3xf32>
}
// CHECK-LABEL: func.func @substitute_pack_to_reshape(
// CHECK-NOT: circle.pack(
// CHECK: circle.reshape({{.*}} -> tensor<2x1x3xf32>
// CHECK: func.return

// -----

func.func @substitute_pack_to_reshape_not(%0: tensor<2x3xf32>, %1: tensor<2x3xf32>) -> tensor<2x2x3xf32> {
  %2 = circle.pack(%0, %1) {values_count = 2, axis = 1} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2x3xf32>
  func.return %2 : tensor<2x2x3xf32>
}
// CHECK-LABEL: func.func @substitute_pack_to_reshape_not(
// CHECK: circle.pack({{.*}} -> tensor<2x2x3xf32>
// CHECK: func.return

// -----

func.func @substitute_strided_slice_to_reshape(%0: tensor<1x4xf32>) -> tensor<4xf32> {
  %1 = circle.const [0, 0] : tensor<2xi32>
  %2 = circle.const [1, 4] : tensor<2xi32>
  %3 = circle.const [1, 1] : tensor<2xi32>
  %4 = circle.strided_slice(%0, %1, %2, %3) {shrink_axis_mask = 1} : (tensor<1x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<4xf32>
  func.return %4 : tensor<4xf32>
}
// CHECK-LABEL: func.func @substitute_strided_slice_to_reshape(
// CHECK-NOT: circle.strided_slice(
// CHECK: circle.reshape({{.*}} -> tensor<4xf32>
// CHECK: func.return

// -----

func.func @substitute_strided_slice_to_reshape_not(%0: tensor<1x4xf32>) -> tensor<2xf32> {
  %1 = circle.const [0, 0] : tensor<2xi32>
  %2 = circle.const [1, 4] : tensor<2xi32>
  %3 = circle.const [1, 2] : tensor<2xi32>
  %4 = circle.strided_slice(%0, %1, %2, %3) {shrink_axis_mask = 1} : (tensor<1x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2xf32>
  func.return %4 : tensor<2xf32>
}
// CHECK-LABEL: func.func @substitute_strided_slice_to_reshape_not(
// CHECK: circle.strided_slice({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @substitute_splitv_to_split(%0: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %1 = circle.const [2, 2] : tensor<2xi32>
  %2 = circle.const [1] : tensor<1xi32>
  %3, %4 = circle.split_v(%0, %1, %2) {num_splits = 2} : (tensor<2x4xf32>, tensor<2xi32>, tensor<1xi32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  func.return %3, %4 : tensor<2x2xf32>, tensor<2x2xf32>
}
// CHECK-LABEL: func.func @substitute_splitv_to_split(
// CHECK-NOT: circle.split_v(
// CHECK: circle.split({{.*}} -> (tensor<2x2xf32>, tensor<2x2xf32>)
// CHECK: func.return

// -----

func.func @substitute_splitv_to_split_not(%0: tensor<2x4xf32>) -> (tensor<2x1xf32>, tensor<2x3xf32>) {
  %1 = circle.const [1, 3] : tensor<2xi32>
  %2 = circle.const [1] : tensor<1xi32>
  %3, %4 = circle.split_v(%0, %1, %2) {num_splits = 2} : (tensor<2x4xf32>, tensor<2xi32>, tensor<1xi32>) -> (tensor<2x1xf32>, tensor<2x3xf32>)
  func.return %3, %4 : tensor<2x1xf32>, tensor<2x3xf32>
}
// CHECK-LABEL: func.func @substitute_splitv_to_split_not(
// CHECK: circle.split_v({{.*}} -> (tensor<2x1xf32>, tensor<2x3xf32>)
// CHECK: func.return

// -----

func.func @substitute_padv2_to_pad(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.relu(%0) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  %2 = circle.const [0, 0, 1, 1, 1, 1, 0, 0] : tensor<4x2xi32>
  %3 = circle.const [-3.0e+38] : tensor<1xf32>
  %4 = circle.padv2(%1, %2, %3) : (tensor<1x4x5x3xf32>, tensor<4x2xi32>, tensor<1xf32>) -> tensor<1x6x7x3xf32>
  %5 = circle.max_pool_2d(%4) {padding = valid, stride = [1, 1], filter = [3, 3]} : (tensor<1x6x7x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %5 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @substitute_padv2_to_pad(
// CHECK-NOT: circle.padv2(
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.pad({{.*}} -> tensor<1x6x7x3xf32>
// CHECK: circle.max_pool_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @substitute_padv2_to_pad_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0, 0, 1, 1, 1, 1, 0, 0] : tensor<4x2xi32>
  %2 = circle.const [-3.0e+38] : tensor<1xf32>
  %3 = circle.padv2(%0, %1, %2) : (tensor<1x4x5x3xf32>, tensor<4x2xi32>, tensor<1xf32>) -> tensor<1x6x7x3xf32>
  %4 = circle.max_pool_2d(%3) {padding = valid, stride = [1, 1], filter = [3, 3]} : (tensor<1x6x7x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %4 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @substitute_padv2_to_pad_not(
// CHECK: circle.padv2({{.*}} -> tensor<1x6x7x3xf32>
// CHECK: circle.max_pool_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @replace_non_const_fc_with_batch_matmul(%0: tensor<2x4xf32>, %1: tensor<3x4xf32>) -> tensor<2x3xf32> {
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %3 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @replace_non_const_fc_with_batch_matmul(
// CHECK-NOT: circle.fully_connected(
// CHECK: circle.batch_matmul({{.*}} -> tensor<2x3xf32>
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @replace_non_const_fc_with_batch_matmul_not(%0: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2] : tensor<3x4xf32>
  %2 = circle.const [0.0, 1.5, 0.5] : tensor<3xf32>
  %3 = circle.fully_connected(%0, %1, %2) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %3 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @replace_non_const_fc_with_batch_matmul_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @replace_cw_mul_add_with_depthwise_conv(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1] : tensor<3xf32>
  %2 = circle.mul(%0, %1) {activation = relu6} : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %2 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @replace_cw_mul_add_with_depthwise_conv(
// CHECK-NOT: circle.mul(
// CHECK: circle.depthwise_conv_2d({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @replace_cw_mul_add_with_depthwise_conv_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3, -0.6, 1.6, -1.2, 0.4, -1.0, 1.4, -0.0, -0.4, -1.7, 1.7, 0.8, 0.8, 1.1, 0.3, -0.6, -0.8, -0.8, 1.4, -1.5, -0.6, -0.3, 0.2, 0.6, -1.2, -1.7, -0.0, 1.2, 0.8, 0.2, -0.3, 0.3, -0.2, 0.8, -0.8, 0.1, -0.1, 0.5, 0.2, 2.6, 1.5, 1.5, -2.0, -0.3, -0.6, 0.5, -2.3, 1.2, 1.1] : tensor<4x5x3xf32>
  %2 = circle.mul(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %2 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @replace_cw_mul_add_with_depthwise_conv_not(
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @decompose_hardswish(%0: tensor<9xf32>) -> tensor<9xf32> {
  %1 = circle.hard_swish(%0) : (tensor<9xf32>) -> tensor<9xf32>
  func.return %1 : tensor<9xf32>
}
// CHECK-LABEL: func.func @decompose_hardswish(
// CHECK-NOT: circle.hard_swish(
// CHECK: circle.add({{.*}} -> tensor<9xf32>
// CHECK: circle.mul({{.*}} -> tensor<9xf32>
// CHECK: circle.mul({{.*}} -> tensor<9xf32>
// CHECK: func.return

// -----

func.func @decompose_hardswish_not(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.relu(%0) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %1 : tensor<2xf32>
}
// CHECK-LABEL: func.func @decompose_hardswish_not(
// CHECK: circle.relu({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @decompose_softmax(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @decompose_softmax(
// CHECK-NOT: circle.softmax(
// CHECK: circle.reduce_max({{.*}} -> tensor<2x1xf32>
// CHECK: circle.sub({{.*}} -> tensor<2x3xf32>
// CHECK: circle.exp({{.*}} -> tensor<2x3xf32>
// CHECK: circle.sum({{.*}} -> tensor<2x1xf32>
// CHECK: circle.div({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @decompose_softmax_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.log_softmax(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @decompose_softmax_not(
// CHECK: circle.log_softmax({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @remove_gather_guard(%0: tensor<3xi32>) -> tensor<3x3xf32> {
  %1 = circle.const [2.0, -2.6, 0.4, -0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4] : tensor<4x3xf32>
  %2 = circle.const [4] : tensor<1xi32>
  %3 = circle.add(%0, %2) : (tensor<3xi32>, tensor<1xi32>) -> tensor<3xi32>
  %4 = circle.const [4] : tensor<1xi32>
  %5 = circle.floor_mod(%3, %4) : (tensor<3xi32>, tensor<1xi32>) -> tensor<3xi32>
  %6 = circle.gather(%1, %5) : (tensor<4x3xf32>, tensor<3xi32>) -> tensor<3x3xf32>
  func.return %6 : tensor<3x3xf32>
}
// CHECK-LABEL: func.func @remove_gather_guard(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.floor_mod(
// CHECK: circle.gather({{.*}} -> tensor<3x3xf32>
// CHECK: func.return

// -----

func.func @remove_gather_guard_not(%0: tensor<3xi32>) -> tensor<3x3xf32> {
  %1 = circle.const [2.0, -2.6, 0.4, -0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4] : tensor<4x3xf32>
  %2 = circle.const [5] : tensor<1xi32>
  %3 = circle.add(%0, %2) : (tensor<3xi32>, tensor<1xi32>) -> tensor<3xi32>
  %4 = circle.const [4] : tensor<1xi32>
  %5 = circle.floor_mod(%3, %4) : (tensor<3xi32>, tensor<1xi32>) -> tensor<3xi32>
  %6 = circle.gather(%1, %5) : (tensor<4x3xf32>, tensor<3xi32>) -> tensor<3x3xf32>
  func.return %6 : tensor<3x3xf32>
}
// CHECK-LABEL: func.func @remove_gather_guard_not(
// CHECK: circle.add({{.*}} -> tensor<3xi32>
// CHECK: circle.floor_mod({{.*}} -> tensor<3xi32>
// CHECK: circle.gather({{.*}} -> tensor<3x3xf32>
// CHECK: func.return
