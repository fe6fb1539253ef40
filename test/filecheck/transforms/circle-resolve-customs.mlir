// RUN: odc-opt %s --split-input-file --circle-resolve-customs | filecheck %s

// MediaPipe's transposed convolution: padding 1 (same), a stride of 2 columns and 1 row.
func.func @convolution(%x: tensor<1x4x4x1xf32>) -> tensor<1x4x8x1xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<1x2x2x1xf32>
  %b = circle.const [0.5] : tensor<1xf32>
  %0 = circle.custom(%x, %w, %b) {custom_code = "Convolution2DTransposeBias", custom_options = #circle.blob<"0x010000000200000001000000">} : (tensor<1x4x4x1xf32>, tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x4x8x1xf32>
  func.return %0 : tensor<1x4x8x1xf32>
}
// CHECK-LABEL: func.func @convolution(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[W:.*]] = circle.const [1.0, 2.0, 3.0, 4.0]
// CHECK: %[[B:.*]] = circle.const [0.5]
// CHECK: %[[S:.*]] = circle.const [1, 4, 8, 1] : tensor<4xi32>
// CHECK-NEXT: circle.transpose_conv(%[[S]], %[[W]], %[[X]], %[[B]]) {padding = same, stride = [1, 2]}

// -----

// The number of images is not known, so the result's shape is not a constant.
func.func @unknown(%x: tensor<?x4x4x1xf32>) -> tensor<?x4x8x1xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<1x2x2x1xf32>
  %b = circle.const [0.5] : tensor<1xf32>
  %0 = circle.custom(%x, %w, %b) {custom_code = "Convolution2DTransposeBias", custom_options = #circle.blob<"0x010000000200000001000000">} : (tensor<?x4x4x1xf32>, tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<?x4x8x1xf32>
  func.return %0 : tensor<?x4x8x1xf32>
}
// CHECK-LABEL: func.func @unknown(
// CHECK: circle.custom

// -----

// TensorFlow's operators by their own names; other codes stay.
func.func @names(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = circle.custom(%x, %x) {custom_code = "AddV2"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = circle.custom(%x) {custom_code = "Mine"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32>
}
// CHECK-LABEL: func.func @names(
// CHECK: circle.add
// CHECK: circle.custom(%{{.*}}) {custom_code = "Mine"}
