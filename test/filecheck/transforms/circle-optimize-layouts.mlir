// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=convert_nchw_to_nhwc' | filecheck %s

func.func @convert_nchw_to_nhwc(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.relu(%2) : (tensor<1x3x4x5xf32>) -> tensor<1x3x4x5xf32>
  %4 = circle.const [0, 2, 3, 1] : tensor<4xi32>
  %5 = circle.transpose(%3, %4) : (tensor<1x3x4x5xf32>, tensor<4xi32>) -> tensor<1x4x5x3xf32>
  func.return %5 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @convert_nchw_to_nhwc(
// CHECK-NOT: circle.transpose(
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @convert_nchw_to_nhwc_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32> {
  %1 = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %2 = circle.transpose(%0, %1) : (tensor<1x4x5x3xf32>, tensor<4xi32>) -> tensor<1x3x4x5xf32>
  %3 = circle.softmax(%2) {beta = 1.0} : (tensor<1x3x4x5xf32>) -> tensor<1x3x4x5xf32>
  func.return %3 : tensor<1x3x4x5xf32>
}
// CHECK-LABEL: func.func @convert_nchw_to_nhwc_not(
// CHECK: circle.transpose({{.*}} -> tensor<1x3x4x5xf32>
// CHECK: circle.softmax({{.*}} -> tensor<1x3x4x5xf32>
// CHECK: func.return
