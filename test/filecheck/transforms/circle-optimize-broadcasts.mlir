// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=expand_broadcast_const' | filecheck %s

func.func @expand_broadcast_const(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9] : tensor<3xf32>
  %2 = circle.add(%0, %1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @expand_broadcast_const(
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @expand_broadcast_const_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4] : tensor<2x3xf32>
  %2 = circle.add(%0, %1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @expand_broadcast_const_not(
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return
