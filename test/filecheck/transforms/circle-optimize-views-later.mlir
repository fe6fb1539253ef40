// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=forward_reshape_to_unaryop' | filecheck %s

func.func @forward_reshape_to_unaryop(%0: tensor<2x6xf32>) -> tensor<12xf32> {
  %1 = circle.const [3, 4] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [3, 4]} : (tensor<2x6xf32>, tensor<2xi32>) -> tensor<3x4xf32>
  %3 = circle.neg(%2) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %4 = circle.const [12] : tensor<1xi32>
  %5 = circle.reshape(%3, %4) {new_shape = [12]} : (tensor<3x4xf32>, tensor<1xi32>) -> tensor<12xf32>
  func.return %5 : tensor<12xf32>
}
// CHECK-LABEL: func.func @forward_reshape_to_unaryop(
// CHECK: circle.neg({{.*}} -> tensor<2x6xf32>
// CHECK: circle.reshape({{.*}} -> tensor<3x4xf32>
// CHECK: circle.reshape({{.*}} -> tensor<12xf32>
// CHECK: func.return

// -----

func.func @forward_reshape_to_unaryop_not(%0: tensor<2x6xf32>) -> tensor<3x4xf32> {
  %1 = circle.const [3, 4] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [3, 4]} : (tensor<2x6xf32>, tensor<2xi32>) -> tensor<3x4xf32>
  %3 = circle.softmax(%2) {beta = 1.0} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  func.return %3 : tensor<3x4xf32>
}
// CHECK-LABEL: func.func @forward_reshape_to_unaryop_not(
// CHECK: circle.reshape({{.*}} -> tensor<3x4xf32>
// CHECK: circle.softmax({{.*}} -> tensor<3x4xf32>
// CHECK: func.return
