// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=remove_redundant_reshape,remove_redundant_transpose,substitute_transpose_to_reshape' | filecheck %s

func.func @remove_redundant_reshape(%0: tensor<2x6xf32>) -> tensor<12xf32> {
  %1 = circle.const [3, 4] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [3, 4]} : (tensor<2x6xf32>, tensor<2xi32>) -> tensor<3x4xf32>
  %3 = circle.const [12] : tensor<1xi32>
  %4 = circle.reshape(%2, %3) {new_shape = [12]} : (tensor<3x4xf32>, tensor<1xi32>) -> tensor<12xf32>
  func.return %4 : tensor<12xf32>
}
// CHECK-LABEL: func.func @remove_redundant_reshape(
// CHECK: circle.reshape({{.*}} -> tensor<12xf32>
// CHECK: func.return

// -----

func.func @remove_redundant_reshape_not(%0: tensor<2x6xf32>) -> tensor<12xf32> {
  %1 = circle.const [3, 4] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [3, 4]} : (tensor<2x6xf32>, tensor<2xi32>) -> tensor<3x4xf32>
  %3 = circle.relu(%2) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %4 = circle.const [12] : tensor<1xi32>
  %5 = circle.reshape(%3, %4) {new_shape = [12]} : (tensor<3x4xf32>, tensor<1xi32>) -> tensor<12xf32>
  func.return %5 : tensor<12xf32>
}
// CHECK-LABEL: func.func @remove_redundant_reshape_not(
// CHECK: circle.reshape({{.*}} -> tensor<3x4xf32>
// CHECK: circle.relu({{.*}} -> tensor<3x4xf32>
// CHECK: circle.reshape({{.*}} -> tensor<12xf32>
// CHECK: func.return

// -----

func.func @remove_redundant_transpose(%0: tensor<1x4x5x3xf32>) -> tensor<1x3x5x4xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.const [0, 1, 3, 2] : tensor<4xi32>
  %4 = circle.transpose(%2, %3) : (tensor<1x3x4x5xf32>, tensor<4xi32>) -> tensor<1x3x5x4xf32>
  func.return %4 : tensor<1x3x5x4xf32>
}
// CHECK-LABEL: func.func @remove_redundant_transpose(
// CHECK: circle.transpose({{.*}} -> tensor<1x3x5x4xf32>
// CHECK: func.return

// -----

func.func @remove_redundant_transpose_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x3x5x4xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.relu(%2) : (tensor<1x3x4x5xf32>) -> tensor<1x3x4x5xf32>
  %4 = circle.const [0, 1, 3, 2] : tensor<4xi32>
  %5 = circle.transpose(%3, %4) : (tensor<1x3x4x5xf32>, tensor<4xi32>) -> tensor<1x3x5x4xf32>
  func.return %5 : tensor<1x3x5x4xf32>
}
// CHECK-LABEL: func.func @remove_redundant_transpose_not(
// CHECK: circle.transpose({{.*}} -> tensor<1x3x4x5xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x3x4x5xf32>
// CHECK: circle.transpose({{.*}} -> tensor<1x3x5x4xf32>
// CHECK: func.return

// -----

func.func @substitute_transpose_to_reshape(%0: tensor<1x2x1x3xf32>) -> tensor<1x1x2x3xf32> {
  %1 = circle.const [0, 2, 1, 3] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x2x1x3xf32>, tensor<4xi32>) -> tensor<1x1x2x3xf32>
  func.return %2 : tensor<1x1x2x3xf32>
}
// CHECK-LABEL: func.func @substitute_transpose_to_reshape(
// CHECK-NOT: circle.transpose(
// CHECK: circle.reshape({{.*}} -> tensor<1x1x2x3xf32>
// CHECK: func.return

// -----

func.func @substitute_transpose_to_reshape_not(%0: tensor<1x2x3xf32>) -> tensor<1x3x2xf32> {
  %1 = circle.const [0, 2, 1] : tensor<3xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x2x3xf32>, tensor<3xi32>) -> tensor<1x3x2xf32>
  func.return %2 : tensor<1x3x2xf32>
}
// CHECK-LABEL: func.func @substitute_transpose_to_reshape_not(
// CHECK: circle.transpose({{.*}} -> tensor<1x3x2xf32>
// CHECK: func.return
