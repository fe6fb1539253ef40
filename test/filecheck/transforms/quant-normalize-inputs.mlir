// RUN: odc-opt %s --split-input-file --quant-normalize-inputs='moments="%S/Inputs/input-moments.npz"' | filecheck %s

// Columns are centred and have the deviation 1; the layer takes that back.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK: %[[C:.*]] = circle.const [0.3, 1200.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.sub(%{{[^,]*}}, %[[C]]) {{.*}}quant.precision = "float"
// CHECK: %[[F:.*]] = circle.const [2.5, 0.002] : tensor<2xf32>
// CHECK: %[[N:.*]] = circle.mul(%[[M]], %[[F]]) {{.*}}quant.precision = "float"
// CHECK: %[[W:.*]] = circle.const [1.6, 4.9999995] : tensor<1x2xf32>
// CHECK: %[[B:.*]] = circle.const [13.2] : tensor<1xf32>
// CHECK: circle.fully_connected(%[[N]], %[[W]], %[[B]])

// -----

// What pads is zero, so that channels are scaled only; every reader takes it back.
func.func @main(%x: tensor<1x4x4x2xf32> loc("x")) -> (tensor<1x4x4x1xf32>, tensor<1x2x2x2xf32>) {
  %w = circle.const [4.0, 0.01] : tensor<1x1x1x2xf32>
  %v = circle.const [1.0, 1.0] : tensor<1x1x1x2xf32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x4x4x1xf32>
  %1 = circle.depthwise_conv_2d(%x, %v) {padding = valid, stride = [2, 2]} : (tensor<1x4x4x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %0, %1 : tensor<1x4x4x1xf32>, tensor<1x2x2x2xf32>
}
// CHECK: %[[F:.*]] = circle.const [2.0, 0.00076923{{.*}}] : tensor<2xf32>
// CHECK-NEXT: %[[N:.*]] = circle.mul(%{{[^,]*}}, %[[F]])
// CHECK: %[[W:.*]] = circle.const [2.0, 13.0] : tensor<1x1x1x2xf32>
// CHECK: circle.conv_2d(%[[N]], %[[W]])
// CHECK: %[[V:.*]] = circle.const [0.5, 1300.0] : tensor<1x1x1x2xf32>
// CHECK: circle.depthwise_conv_2d(%[[N]], %[[V]])

// -----

// Channels of about one size share a scale well.
func.func @main(%even: tensor<1x2xf32> loc("even")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %0 = circle.fully_connected(%even, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK-NOT: circle.mul

// -----

// An operator reads the input that cannot take factors back.
func.func @main(%x: tensor<1x2xf32> loc("x")) -> (tensor<1x1xf32>, tensor<1x2xf32>) {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  %1 = circle.abs(%x) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %0, %1 : tensor<1x1xf32>, tensor<1x2xf32>
}
// CHECK-NOT: circle.mul

// -----

// Nothing is known of this input.
func.func @main(%other: tensor<1x2xf32> loc("other")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %0 = circle.fully_connected(%other, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK-NOT: circle.mul
